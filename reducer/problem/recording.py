"""Every tensor of a subject's main graph, recorded in an unoptimised run, so that any of them can become an
input.
"""

import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import onnx

from opsieve.backends.judge.oracles import NATIVE, SECOND_ORACLES
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.edits import shell
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Graph, Recording, Subject, list_called_functions
from opsieve.gen.model.tensors import Value, misfit, read_type

# The most nodes of a model that is always recorded whole: one run is cheaper than several.
_FEW = 64
# With inputs up to this many bytes, intermediate values are assumed to be small too.
_SMALL_INPUTS = 16 << 10
# The estimated total size, in bytes, up to which all values are recorded at once.
_WHOLE = 32 << 20
# The number of results that cost about as much as a few in one run.
_MANY = 4096
# The size in bytes from which a value is kept in a mapped file.
_MAPPED = 1 << 20
# The number of single recordings from which the size of the others is estimated.
_TELLING = 16
# Makes a function that invents values of a subject by name.
Plain: TypeAlias = Callable[[Subject], Callable[[str], Value | None]]
# A source that ended like this is not run again.
_ENDED = frozenset(["crash", "hang", "environment"])


def record_values(
    subject: Subject,
    source: ResolvedTarget | None,
    workers: Workers,
    plain: Plain = lambda _: lambda _: None,
) -> Subject:
    """Return the subject with the values of all its tensors, as far as available; each is computed on demand.

    They come from `source`, the unoptimised build of the compiler under test; where it fails, from the
    reference evaluator; where that fails too, from onnxruntime without optimisation. A value that all of them
    fail on, such as the result of a user's operator, stays as it was, or else is the value that `plain` makes
    for the subject.
    """
    tape = _Tape(subject, source, workers, plain)
    return replace(subject, values=Recording(tape.names, tape.play))


class _Tape:
    """The values recorded of one model so far."""

    def __init__(
        self,
        subject: Subject,
        source: ResolvedTarget | None,
        workers: Workers,
        plain: Plain,
    ):
        self._plain = plain
        self.graph = Graph(subject)
        self.names = [name for node in subject.model.graph.node for name in node.output if name]
        # onnxruntime for values that neither the compiler under test nor the reference computes.
        own = "" if source is None else source.name
        others = [each for each in SECOND_ORACLES if own != each.name == "onnxruntime"]
        sources = dict.fromkeys([source, NATIVE, *others])
        self._sources = [target for target in sources if target is not None]
        self._workers = workers
        self._held: dict[str, Value] = {}
        self._requested: set[str] = set()
        # Whether all values were requested at once.
        self._whole = False

    def play(self, names: Collection[str]) -> Mapping[str, Value]:
        """Record these values, and return all values recorded so far."""
        missing = [name for name in names if name not in self._requested]
        if missing and not self._whole and len(missing) < len(self.names) and self._worth_it():
            self._whole = True
            self._record([name for name in self.names if name not in self._requested])
            missing = [name for name in missing if name not in self._held]
        if missing:
            self._record(missing)
            self._requested.update(missing)
            old = self.graph.subject.values
            self._held.update((name, old[name]) for name in missing if name not in self._held and name in old)
            self._make_up([name for name in missing if name not in self._held])
        self._requested.update(self._held)
        return self._held

    def _make_up(self, names: list[str]) -> None:
        """Invent plain values behind operators that no installed compiler knows; values before them are
        recorded in a run of their own.
        """
        known = [
            name for name in names if not self._strange & self.graph.ancestors([self.graph.producer[name]])
        ]
        if known and len(known) < len(names):
            self._record(known)
        made = {name: self._made_up(name) for name in names if name not in self._held}
        self._held.update(
            (name, value) for name, value in made.items() if value is not None and self._fits(name, value)
        )

    @cached_property
    def _made_up(self) -> Callable[[str], Value | None]:
        return self._plain(self.graph.subject)

    @cached_property
    def _strange(self) -> set[int]:
        """The nodes of operators that are unknown to ONNX and to the model."""
        local = {(function.domain, function.name) for function in self.graph.subject.model.functions}
        return {
            place
            for place, node in enumerate(self.graph.nodes)
            if (node.domain, node.op_type) not in local and not onnx.defs.has(node.op_type, node.domain)
        }

    def _worth_it(self) -> bool:
        """Return whether recording everything costs little more than recording the requested values."""
        if len(self.names) <= _FEW:
            return True
        if len(self.names) > _MANY:
            return False
        if len(self._held) < _TELLING:
            return _bytes(self.graph.subject.inputs) <= _SMALL_INPUTS
        return _bytes(self._held) * len(self.names) <= _WHOLE * len(self._held)

    def _record(self, names: list[str]) -> None:
        for target in list(self._sources):
            missing = [name for name in names if name not in self._held]
            if not missing:
                return
            program, inputs = _expose_values(self.graph, missing)
            answer = self._workers.observe(target, program, inputs)
            found = answer.outputs or {}
            self._held.update(
                (name, _keep_value(found[name]))
                for name in missing
                if found.get(name) is not None and self._fits(name, found[name])
            )
            # A source that crashed or hung once would do so for every later request, at its full cost.
            if answer.outcome in _ENDED:
                self._sources.remove(target)

    def _fits(self, name: str, value: Value) -> bool:
        """Return whether a value has its declared type: a source that is wrong about it is not believed."""
        type_ = self.graph.declared.get(name)
        return type_ is None or not type_.WhichOneof("value") or not misfit(value, read_type(type_))


def _keep_value(value: Value) -> Value:
    """Detach a value from the answer that it came in; a large one moves to an unnamed mapped file, so that
    its memory can be reclaimed.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind == "O":
        return value
    if value.nbytes < _MAPPED:
        return value.copy()
    with tempfile.TemporaryFile(prefix="opsieve-") as file:
        value.tofile(file)
        file.flush()
        return np.asarray(np.memmap(file, value.dtype, "r", shape=value.shape))


def _bytes(values: Mapping[str, Any]) -> int:
    arrays = [item for value in values.values() for item in (value if isinstance(value, list) else [value])]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def _expose_values(graph: Graph, names: list[str]) -> tuple[OnnxProgram, dict[str, Value]]:
    """Return the program that computes these values, with them as outputs, and its inputs; the compiler
    infers the outputs' types.
    """
    places = sorted(graph.ancestors(graph.producer[name] for name in names))
    read = {name for place in places for name in graph.reads[place]}
    source = graph.subject.model.graph
    model = shell(graph.subject.model)
    model.graph.node.extend(graph.nodes[place] for place in places)
    model.graph.input.extend(info for info in source.input if info.name in read)
    model.graph.initializer.extend(tensor for tensor in source.initializer if tensor.name in read)
    model.graph.sparse_initializer.extend(
        item for item in source.sparse_initializer if item.values.name in read
    )
    model.graph.value_info.extend(info for info in source.value_info if info.name in graph.producer)
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name, type=graph.declared[name])
        if name in graph.declared
        else onnx.ValueInfoProto(name=name)
        for name in names
    )
    model.functions.extend(list_called_functions(graph.subject.model, model.graph))
    data: bytes = model.SerializeToString()
    inputs = {info.name: info for info in model.graph.input}
    return OnnxProgram(data), {name: value for name, value in graph.subject.inputs.items() if name in inputs}
