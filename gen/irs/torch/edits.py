"""A PyTorch program with its values as passes see it, and the edits of it.

Types follow from a run in a worker. An edit that changes types leaves those unknown that may change, until
the values are recorded again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from opsieve.gen.irs.torch.graph import Argument, Branch, Ref, TorchCall, TorchGraph, Word, iter_leaves
from opsieve.gen.irs.torch.program import TorchProgram
from opsieve.gen.irs.view import Array, Opening, Operation, SizeClass, StoredTensor, TypeClass
from opsieve.gen.model.tensors import TensorType, Value

# The element types that values may be turned into; torch computes in all of them.
_PLAIN = ("float32", "int64", "int32")


@dataclass(frozen=True)
class TorchSubject:
    """A program, a value for every input, and the recorded values that calls make, by name."""

    program: TorchProgram
    inputs: dict[str, Value]
    values: Mapping[str, Array] = field(default_factory=dict, compare=False)

    @property
    def graph(self) -> TorchGraph:
        """Return the graph, which is shared."""
        return self.program.graph

    @cached_property
    def identity(self) -> bytes:
        """Return bytes that tell it from any other; types that follow from the rest are left out."""
        graph = self.graph
        arrays = [*graph.constants.values(), *map(np.asarray, self.inputs.values())]
        # Types are left out: recording them would otherwise make another subject.
        words = repr((graph.inputs, tuple(graph.constants), graph.calls, graph.outputs, graph.strides))
        held = ((array.dtype.name, array.shape, array.tobytes()) for array in arrays)
        return words.encode() + repr([*held]).encode()

    def with_graph(
        self, graph: TorchGraph, inputs: Mapping[str, Value] | None = None
    ) -> "TorchSubject | None":
        """Return the subject of another graph, without the inputs and constants that nothing reads;
        `None` for a graph without calls or outputs.
        """
        if not graph.outputs or not graph.calls:
            return None
        read = graph.list_read()
        kept = tuple(name for name in graph.inputs if name in read)
        constants = {name: array for name, array in graph.constants.items() if name in read}
        made = {name for call in graph.calls for name in call.results}
        types = {name: type_ for name, type_ in graph.types.items() if name in kept or name in made}
        strides = {name: steps for name, steps in graph.strides.items() if name in types}
        given = self.inputs if inputs is None else inputs
        clean = TorchGraph(kept, constants, graph.calls, graph.outputs, types, strides)
        program = TorchProgram.from_graph(clean, self.program.name)
        return TorchSubject(program, {name: given[name] for name in kept}, self.values)


@dataclass(frozen=True)
class TorchView:
    """A program as passes see it."""

    subject: TorchSubject

    @property
    def graph(self) -> TorchGraph:
        """Return the program's graph."""
        return self.subject.graph

    def inputs(self) -> Sequence[str]:
        """Return the inputs."""
        return self.graph.inputs

    def outputs(self) -> Sequence[str]:
        """Return the outputs, by their places, since a value may be returned twice."""
        return [str(place) for place in range(len(self.graph.outputs))]

    def operations(self) -> Sequence[Operation]:
        """Return the calls. One that goes takes along what only it needs, so it touches all behind it."""
        found, behind = [], dict[str, frozenset[str]]()
        for place, call in enumerate(self.graph.calls):
            key = _call_key(place, call)
            read = tuple(dict.fromkeys(call.reads()))
            touches = frozenset([key]).union(*(behind.get(name, frozenset([name])) for name in read))
            behind.update((name, touches) for name in call.results if name)
            result = call.results[0] if len(call.results) == 1 else self._only_read(call)
            found.append(Operation(key, f"{key} ({call.operator})", read, result, touches))
        return found

    @cached_property
    def _read(self) -> frozenset[str]:
        return frozenset(self.graph.list_read())

    def _only_read(self, call: TorchCall) -> str:
        read = [name for name in call.results if name in self._read]
        return read[0] if len(read) == 1 else ""

    def type_of(self, name: str) -> TensorType | None:
        """Return the type of a value."""
        return self.graph.type_of(name)

    def scope(self, operation: Operation) -> Iterator[str]:
        """Return the values that are there before a call."""
        yield from (*self.graph.inputs, *self.graph.constants)
        for place, call in enumerate(self.graph.calls):
            if _call_key(place, call) == operation.key:
                return
            yield from filter(None, call.results)

    def tensors(self) -> Iterator[StoredTensor]:
        """Return the values of the inputs, and the constants."""
        for name in self.graph.inputs:
            yield StoredTensor(name, np.asarray(self.subject.inputs[name]), True)
        for name, array in self.graph.constants.items():
            yield StoredTensor(name, array, False)

    def openings(self) -> Iterable[Opening]:
        """Return the sides of each `torch.cond`."""
        for call in self.graph.calls:
            for branch in (leaf for leaf in call.leaves() if isinstance(leaf, Branch)):
                parts = frozenset([call.key])
                yield Opening(f"put a side in the place of {call.key}", parts, parts, (call, branch.graph))

    def sizes(self) -> list[SizeClass]:
        """Return a class for each size, wherever it occurs."""
        shapes = [np.shape(tensor.array) for tensor in self.tensors()]
        found = {size for shape in shapes for size in shape}
        for call in self.graph.calls:
            found |= {item for item in call.leaves() if type(item) is int}
        touches = frozenset(["sizes"])
        held = {size for shape in shapes for size in shape}
        return [
            SizeClass("every size", size, touches, size in held, None)
            for size in sorted(found, reverse=True)
            # torch writes the end of a slice as 2^63 - 1, which is no size.
            if 1 < size < 1 << 31
        ]

    def dtypes(self) -> list[TypeClass]:
        """Return a class for each element type, wherever it occurs."""
        found = {tensor.array.dtype.name for tensor in self.tensors()}
        for call in self.graph.calls:
            found |= {item.text for item in call.leaves() if isinstance(item, Word)}
        touches = frozenset(["types"])
        return [
            TypeClass("every value", dtype, touches, _PLAIN, None)
            for dtype in sorted(found)
            # Words are of several kinds; element types end with their bits.
            if dtype not in ("bool", "cpu", "cuda", "strided") and dtype[-1].isdigit()
        ]


def _call_key(place: int, call: TorchCall) -> str:
    return call.key or f"call {place}"


class TorchEdits:
    """The edits of PyTorch programs."""

    def view(self, subject: TorchSubject) -> TorchView:
        """Return the program as passes see it."""
        return TorchView(subject)

    def drop_output(self, subject: TorchSubject, name: str) -> TorchSubject | None:
        """Return one value less, and drop what only it needed."""
        place, outputs = int(name), subject.graph.outputs
        if place >= len(outputs) or len(outputs) < 2:
            return None
        return settle_graph(subject, replace(subject.graph, outputs=outputs[:place] + outputs[place + 1 :]))

    def remove(self, subject: TorchSubject, operation: Operation) -> TorchSubject | None:
        """Drop a call: its results become inputs with their recorded values. A call without a reader goes
        alone.
        """
        graph = subject.graph
        keys = (_call_key(place, call) for place, call in enumerate(graph.calls))
        place = next((place for place, key in enumerate(keys) if key == operation.key), None)
        if place is None:
            return None
        call = graph.calls[place]
        left = graph.calls[:place] + graph.calls[place + 1 :]
        read = {name for other in left for name in other.reads()}
        wanted = [name for name in call.results if name in read]
        # A result without a recorded value cannot be fed.
        if any(name not in subject.values for name in wanted):
            return None
        # An output that was computed here is returned no more; what it was read for stays.
        gone = set(call.results) - set(wanted)
        outputs = tuple(name for name in graph.outputs if name not in gone)
        values = {name: subject.values[name] for name in wanted}
        types = {name: TensorType(value.dtype.name, value.shape) for name, value in values.items()}
        made = replace(
            graph,
            inputs=(*graph.inputs, *wanted),
            calls=left,
            outputs=outputs,
            types={**graph.types, **types},
        )
        return settle_graph(subject, made, {**subject.inputs, **values})

    def replace(self, subject: TorchSubject, result: str, by: str, retype: bool) -> TorchSubject | None:
        """Read another value wherever a result is read; with `retype` what follows has unknown types."""
        graph = subject.graph
        place = find_result(graph, result)
        if place is None or by in graph.calls[place].results:
            return None
        # Only what exists before the call, or the program would read a value before it is made.
        made = (name for call in graph.calls[:place] for name in call.results)
        if by not in {*graph.inputs, *graph.constants, *made}:
            return None

        def change(item: Argument) -> Argument:
            return Ref(by) if item == Ref(result) else item

        calls = tuple(call.change(change) for call in graph.calls)
        outputs = tuple(by if name == result else name for name in graph.outputs)
        calls = calls[:place] + calls[place + 1 :]
        types = known_before(graph, place) if retype else graph.types
        return settle_graph(subject, replace(graph, calls=calls, outputs=outputs, types=types))

    def open(self, subject: TorchSubject, opening: Opening) -> TorchSubject | None:
        """Put the calls of one side of a `torch.cond` in its place."""
        cond, branch = opening.place
        graph = subject.graph
        if cond not in graph.calls:
            return None
        place = graph.calls.index(cond)
        inside = {name: f"{cond.key}_{name}" for call in branch.calls for name in call.results if name}
        # The last argument lists what the branch takes.
        operands = (item.name for item in iter_leaves(cond.args[-1]) if isinstance(item, Ref))
        inside |= dict(zip(branch.inputs, operands, strict=False))
        outside = {
            name: inside.get(made, made) for name, made in zip(cond.results, branch.outputs, strict=False)
        }

        def rename(item: Argument, names: Mapping[str, str]) -> Argument:
            return Ref(names.get(item.name, item.name)) if isinstance(item, Ref) else item

        calls = (
            *graph.calls[:place],
            *(
                replace(
                    call.change(partial(rename, names=inside)),
                    results=tuple(inside.get(name, "") for name in call.results),
                )
                for call in branch.calls
            ),
            *(call.change(partial(rename, names=outside)) for call in graph.calls[place + 1 :]),
        )
        outputs = tuple(outside.get(name, name) for name in graph.outputs)
        return settle_graph(subject, replace(graph, calls=calls, outputs=outputs))

    def store(self, subject: TorchSubject, tensor: StoredTensor, array: Array) -> TorchSubject | None:
        """Give an input or a constant another value."""
        graph = subject.graph
        if tensor.is_fed:
            if not tensor.holds(subject.inputs.get(tensor.name)):
                return None
            return replace(subject, inputs={**subject.inputs, tensor.name: array})
        if not tensor.holds(graph.constants.get(tensor.name)):
            return None
        return settle_graph(subject, replace(graph, constants={**graph.constants, tensor.name: array}))

    def freeze(self, subject: TorchSubject, name: str) -> TorchSubject | None:
        """Make an input a constant; one with strides of its own stays."""
        graph = subject.graph
        if name not in graph.inputs or name in graph.strides:
            return None
        inputs = tuple(item for item in graph.inputs if item != name)
        constants = {**graph.constants, name: np.asarray(subject.inputs[name])}
        return settle_graph(subject, replace(graph, inputs=inputs, constants=constants))

    def resize(
        self, subject: TorchSubject, sizes: SizeClass, size: int, keep_last: bool
    ) -> TorchSubject | None:
        """Replace a size by a smaller one wherever it occurs, in shapes and among arguments."""

        def number(item: Argument) -> Argument:
            return size if type(item) is int and item == sizes.size else item

        def cut(array: Array) -> Array:
            # A failure may need the last elements: those of an index or a tail loop.
            part = slice(-size, None) if keep_last else slice(0, size)
            return array[tuple(part if each == sizes.size else slice(None) for each in array.shape)]

        return _refit_values(subject, number, cut)

    def retype(self, subject: TorchSubject, classes: Sequence[TypeClass], dtype: str) -> TorchSubject | None:
        """Replace an element type wherever it occurs."""
        old = classes[0].dtype

        def word(item: Argument) -> Argument:
            return Word("dtype", dtype) if item == Word("dtype", old) else item

        def convert(array: Array) -> Array:
            # A value out of range becomes what numpy makes of it, which the run then judges.
            with np.errstate(all="ignore"):
                return array.astype(dtype) if array.dtype.name == old else array

        return _refit_values(subject, word, convert)


def _refit_values(
    subject: TorchSubject, change: Callable[[Argument], Argument], convert: Callable[[Array], Array]
) -> TorchSubject | None:
    """Change every argument, input and constant; the types of what is computed become unknown."""
    graph = subject.graph
    calls = tuple(call.change(change) for call in graph.calls)
    inputs = {name: convert(np.asarray(value)) for name, value in subject.inputs.items()}
    constants = {name: convert(array) for name, array in graph.constants.items()}
    types = {name: TensorType(value.dtype.name, value.shape) for name, value in inputs.items()}
    same = {name: steps for name, steps in graph.strides.items() if graph.types.get(name) == types.get(name)}
    made = TorchGraph(graph.inputs, constants, calls, graph.outputs, types, same)
    return settle_graph(subject, made, inputs)


def settle_graph(
    subject: TorchSubject, graph: TorchGraph, inputs: Mapping[str, Value] | None = None
) -> TorchSubject | None:
    """Return the subject of a changed graph, without calls that lost their last reader. One that had none
    before stays, to be dropped by an edit of its own, and so does one that writes.
    """
    before = _unread(subject.graph)
    # Until nothing changes: a call may have been read by another dropped one alone.
    count = -1
    while len(graph.calls) != count:
        count, read = len(graph.calls), graph.list_read()
        kept = tuple(
            call
            for call in graph.calls
            if call.mutates or call.key in before or any(name in read for name in call.results)
        )
        graph = replace(graph, calls=kept)
    found = subject.with_graph(graph, inputs)
    return None if found is None or found.identity == subject.identity else found


def _unread(graph: TorchGraph) -> set[str]:
    read = graph.list_read()
    return {call.key for call in graph.calls if not any(name in read for name in call.results)}


def known_before(graph: TorchGraph, place: int) -> dict[str, TensorType]:
    """Return the types of the inputs and of what is made before a call."""
    names = {*graph.inputs, *(name for call in graph.calls[:place] for name in call.results)}
    return {name: type_ for name, type_ in graph.types.items() if name in names}


def find_result(graph: TorchGraph, name: str) -> int | None:
    """Return the place of the call that makes a value; `None` if no call does."""
    return next((place for place, call in enumerate(graph.calls) if name in call.results), None)
