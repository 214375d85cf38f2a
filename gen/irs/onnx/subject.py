"""A model with the values of its inputs and what an unoptimised run recorded: what edits work on."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import onnx

from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.tensors import Value


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with everything that an edit may need; it is never changed in place.

    `inputs` has a value for every graph input that must be fed, by name. `values` are tensors of the main
    graph as an unoptimised run records them, in their native precision; {} if unknown. A name in `values`
    that the model lacks is ignored.
    """

    model: onnx.ModelProto
    inputs: dict[str, Value]
    values: Mapping[str, Value]
    # Whether the edit that made it changed types, and so what others declare
    redeclared: bool = False

    @cached_property
    def program(self) -> OnnxProgram:
        """The model, serialised; equal models give equal bytes."""
        return OnnxProgram.of(self.model)


class Recording(Mapping[str, Value]):
    """Values by name that are recorded when they are first asked for: those of a large model can take
    gigabytes.

    `play` is given names and returns everything recorded so far, these names among it as far as they can be
    had.
    """

    def __init__(self, names: Iterable[str], play: Callable[[Collection[str]], Mapping[str, Value]]):
        self._names = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self._play = play

    def __getitem__(self, name: str) -> Value:
        if name not in self._names:
            raise KeyError(name)
        return self._play([name])[name]

    def __iter__(self) -> Iterator[str]:
        found = self._play(self._names)
        return (name for name in self._names if name in found)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def want(self, names: Iterable[str]) -> None:
        """Record these values, as far as they are not yet, in one go."""
        self._play([name for name in names if name in self._names])

    def only(self, names: Collection[str]) -> "Recording":
        """Return the same recording, of these names alone."""
        return Recording(sorted(self._names.keys() & names, key=self._names.__getitem__), self._play)
