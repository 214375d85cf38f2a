"""A program of any IR as passes see it, and the edits that they make.

Parts have names, so that an edit finds its place after others. `S` is a program with the values of its
inputs. It is never changed in place: an edit returns a new one, or `None` where it does not apply (any more).
Operations without readers stay, and types are updated.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from opsieve.gen.model.tensors import Value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        key: The name of its first result.
        label: Its name in a log.
        reads: The values that it reads.
        result: The one value that something reads of it, for which another value may stand; "" for none.
        touches: The names that change when it goes.
        spare: Values that stay as they are when it goes.
    """

    key: str
    label: str
    reads: tuple[str, ...]
    result: str
    touches: frozenset[str]
    spare: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that the program stores or receives as input; `path` leads to the body that contains it."""

    name: str
    array: Array
    is_fed: bool
    path: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the tensor's name in the whole program."""
        return "/".join((*self.path, self.name))

    def holds(self, value: Value | None) -> bool:
        """Return whether a value has this tensor's element type, shape and elements."""
        own = self.array
        if not isinstance(value, np.ndarray) or (value.dtype, value.shape) != (own.dtype, own.shape):
            return False
        # NaN equals NaN here, since both are the same input; numpy cannot look for NaN in strings.
        return bool(np.array_equal(value, own, equal_nan=value.dtype.kind == "f"))


@dataclass(frozen=True, slots=True)
class Opening:
    """A body that may replace the operation that owns or calls it; `place` is for the IR's own use."""

    label: str
    touches: frozenset[str]
    parts: frozenset[str]
    place: Any = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Dimensions that change together; `is_held` tells whether a stored or fed tensor has one of them."""

    label: str
    size: int
    touches: frozenset[str]
    is_held: bool
    place: Any = field(compare=False)


@dataclass(frozen=True, slots=True)
class TypeClass:
    """Values whose element type changes together, and the types that it may become."""

    label: str
    dtype: str
    touches: frozenset[str]
    allowed: Collection[str]
    place: Any = field(compare=False)


class ProgramView(Protocol):
    """A program with the values of its inputs."""

    def inputs(self) -> Sequence[str]:
        """Return the program's inputs and the parameters of other functions, which may become constants."""

    def outputs(self) -> Sequence[str]:
        """Return the program's results."""

    def operations(self) -> Sequence[Operation]:
        """Return the operations in order."""

    def type_of(self, name: str) -> Hashable:
        """Return the type of a value, `None` if unknown; values of equal types are interchangeable."""

    def scope(self, operation: Operation) -> Iterable[str]:
        """Return the values that an operation could read."""

    def tensors(self) -> Iterable[StoredTensor]:
        """Yield the input tensors, then the stored ones."""

    def openings(self) -> Iterable[Opening]:
        """Return the bodies that may replace operations."""

    def sizes(self) -> Sequence[SizeClass]:
        """Return the classes of dimensions, those of most elements first."""

    def dtypes(self) -> Sequence[TypeClass]:
        """Return the classes of values by element type."""


S = TypeVar("S")
K = TypeVar("K", bound=Hashable)


class ProgramEdits(Protocol[S]):
    """The edits of an IR."""

    def view(self, subject: S) -> ProgramView:
        """Return the program as passes see it."""

    def drop_output(self, subject: S, name: str) -> S | None:
        """Yield one value less."""

    def remove(self, subject: S, operation: Operation) -> S | None:
        """Remove an operation; inputs or constants replace its results."""

    def replace(self, subject: S, result: str, by: str, retype: bool) -> S | None:
        """Read another value wherever a result is read, and drop the operation; `retype`: it may be one of
        another type, and what follows gets other types too.
        """

    def open(self, subject: S, opening: Opening) -> S | None:
        """Put a body in the place of its operation."""

    def store(self, subject: S, tensor: StoredTensor, array: Array) -> S | None:
        """Give a tensor another value of its type, where it still has the one that it was seen with."""

    def freeze(self, subject: S, name: str) -> S | None:
        """Make an input a constant."""

    def resize(self, subject: S, sizes: SizeClass, size: int, keep_last: bool) -> S | None:
        """Give dimensions a smaller size; tensors keep their first elements or their last."""

    def retype(self, subject: S, classes: Sequence[TypeClass], dtype: str) -> S | None:
        """Change the element type of whole classes of values."""


def list_reachable(starts: Iterable[K], following: Callable[[K], Iterable[K]]) -> list[K]:
    """List what can be reached from some items, these included, each once."""
    found: dict[K, None] = {}
    waiting = list(starts)
    while waiting:
        item = waiting.pop()
        if item not in found:
            found[item] = None
            waiting += following(item)
    return list(found)


class FreshNames:
    """A source of names that are unique in a program."""

    def __init__(self, taken: Iterable[str] = (), first: int = 0) -> None:
        self._taken, self._first = set(taken), first
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """`stem0`, `stem1`, ..."""
        while True:
            number = self._next.get(stem, self._first)
            self._next[stem] = number + 1
            if (name := f"{stem}{number}") not in self._taken:
                return name
