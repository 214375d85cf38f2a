"""A subject flattened into numbered tensors and nodes with their types, and the edits that change a copy of
it; plain values for tensors that no compiler at hand can compute.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import onnx
from onnx import helper

from opsieve.gen.analysis.validity import KNOWN, check_node, leaves
from opsieve.gen.declarations.tensor import Typed
from opsieve.gen.irs.onnx.view import (
    Array,
    Graph,
    Path,
    Subject,
    declared_type,
    first_output,
    graphs,
    opset_of,
)
from opsieve.gen.irs.view import StoredTensor
from opsieve.gen.model import attributes, structure
from opsieve.gen.model.tensors import DTYPES, NUMBERS, TensorType, Value, dtype_name, read_type
from opsieve.reducer.onnx_edit.inference import infer_types, types_of
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.problem.order import Change, OnnxEdit, simpler

ABSENT = -1
# Numbers of tensors, or dimensions
K = TypeVar("K", int, tuple[int, int])


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """A tensor of some graph. `dtype` is ONNX's number (0 unknown), `shape` is None when a size is unknown.

    `source` says what holds its value: `input`, `initializer`, `constant` (a Constant node), "" for what a
    node computes.
    """

    name: str
    path: Path
    dtype: int
    shape: tuple[int, ...] | None
    source: str


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A graph in a node's attribute; `inputs` and `outputs` are tensor numbers."""

    path: Path
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A node; `inputs` and `outputs` are tensor numbers, ABSENT for one left out. `version` is its domain's
    opset.
    """

    path: Path
    node: onnx.NodeProto
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bodies: tuple[Subgraph, ...]
    version: int

    @property
    def key(self) -> str:
        """Return the first output's name, by which the node is found in its graph."""
        return first_output(self.node)


@dataclass(frozen=True, slots=True)
class View:
    """Every tensor and node of the main graph and of all bodies, bodies before the node that owns them."""

    subject: Subject
    tensors: tuple[GraphTensor, ...]
    steps: tuple[Step, ...]
    # Values of small constants and small inputs, by tensor number
    known: Mapping[int, Array]


class UnionFind(Generic[K]):
    """Classes of keys; the smallest key represents its class, so that the order of joins does not matter."""

    def __init__(self) -> None:
        self._parent: dict[K, K] = {}

    def root(self, key: K) -> K:
        """Return the key that represents the class."""
        top = key
        while (up := self._parent.get(top, top)) != top:
            top = up
        # Path compression: later look-ups from here are short.
        while (up := self._parent.get(key, key)) != top:
            self._parent[key], key = top, up
        return top

    def unite(self, a: K, b: K) -> None:
        """Put two keys into one class."""
        x, y = self.root(a), self.root(b)
        self._parent[max(x, y)] = min(x, y)


def view(subject: Subject) -> View:
    """Flatten the subject, with types from inference, the inputs' values and the recorded values."""
    reader = _ViewReader(subject, {entry.domain: entry.version for entry in subject.model.opset_import})
    reader.read(subject.model.graph, infer_types(subject).graph, (), {})
    return View(subject, tuple(reader.tensors), tuple(reader.steps), reader.known)


class _ViewReader:
    """Numbers the tensors of nested graphs; names are looked up from the inside out."""

    def __init__(self, subject: Subject, opsets: Mapping[str, int]) -> None:
        self.subject = subject
        self.opsets = opsets
        self.tensors: list[GraphTensor] = []
        self.steps: list[Step] = []
        self.known: dict[int, Array] = {}

    def read(
        self, graph: onnx.GraphProto, typed: onnx.GraphProto, path: Path, outer: Mapping[str, int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        types = types_of(typed)
        names = dict(outer)
        initial = {tensor.name for tensor in graph.initializer}
        inputs = []
        for info in graph.input:
            # Up to IR version 3 an initializer is listed among the inputs too; its value is the stored one.
            source = "input" if not path and info.name not in initial else ""
            value = self.subject.inputs.get(info.name)
            type_ = types.get(info.name, info.type)
            if source and isinstance(value, np.ndarray):
                type_ = declared_type(value)
            number = self._add(info.name, path, type_, source, names)
            inputs.append(number)
            # Larger values are never axes or sizes, which is all that rules read.
            if source and isinstance(value, np.ndarray) and value.size <= KNOWN:
                self.known[number] = value
        for tensor in graph.initializer:
            type_ = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            number = self._add(tensor.name, path, type_, "initializer", names)
            shape = self.tensors[number].shape
            if shape is not None and len(shape) <= 1 and np.prod(shape, initial=1) <= KNOWN:
                array = attributes.tensor_array(tensor)
                if array is not None:
                    self.known[number] = array
        for node, twin in zip(graph.node, typed.node, strict=True):
            self._read_node(node, twin, path, types, names)
        return tuple(inputs), tuple(names.get(info.name, ABSENT) for info in graph.output)

    def _read_node(
        self,
        node: onnx.NodeProto,
        twin: onnx.NodeProto,
        path: Path,
        types: Mapping[str, onnx.TypeProto],
        names: dict[str, int],
    ) -> None:
        found = []
        for attribute, other in zip(node.attribute, twin.attribute, strict=True):
            if attribute.HasField("g"):
                inner = (*path, first_output(node), attribute.name)
                found.append(Subgraph(inner, *self.read(attribute.g, other.g, inner, names)))
        inputs = tuple(names.get(name, ABSENT) if name else ABSENT for name in node.input)
        constant = attributes.is_constant(node)
        outputs = []
        for name in node.output:
            type_ = types.get(name, onnx.TypeProto())
            outputs.append(
                self._add(name, path, type_, "constant" if constant else "", names) if name else ABSENT
            )
        if constant and outputs:
            array = attributes.constant_array(node)
            if array is not None and array.size <= KNOWN:
                self.known[outputs[0]] = array
        version = self.opsets.get(node.domain, self.opsets.get("ai.onnx" if not node.domain else "", 0))
        self.steps.append(Step(path, node, inputs, tuple(outputs), tuple(found), version))

    def _add(self, name: str, path: Path, type_: onnx.TypeProto, source: str, names: dict[str, int]) -> int:
        dtype, shape = 0, None
        if type_.HasField("tensor_type"):
            tensor = type_.tensor_type
            dtype = tensor.elem_type
            if structure.is_static(type_):
                shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        # Values are recorded in the main graph only, and a body may use the same name.
        recorded = self.subject.values.get(name) if not path else None
        if isinstance(recorded, np.ndarray) and (shape is None or not dtype):
            dtype, shape = NUMBERS[dtype_name(recorded)], recorded.shape
        names[name] = len(self.tensors)
        self.tensors.append(GraphTensor(name, path, dtype, shape, source))
        return names[name]


def stored_tensors(subject: Subject) -> Iterator[StoredTensor]:
    """Yield the inputs that are tensors; then the initializers and Constant nodes of each graph."""
    for name, value in subject.inputs.items():
        if isinstance(value, np.ndarray):
            yield StoredTensor(name, value, True)
    for path, graph in graphs(subject.model.graph):
        stored = [(tensor.name, attributes.tensor_array(tensor)) for tensor in graph.initializer]
        stored += (
            (node.output[0], attributes.constant_array(node))
            for node in graph.node
            if attributes.is_constant(node)
        )
        for name, array in stored:
            if name and array is not None:
                yield StoredTensor(name, array, False, path)


def changing(
    label: str, touches: Iterable[str], change: Change, parts: Iterable[str] | None = None
) -> OnnxEdit:
    """Make the edit that applies `change` to a copy of the model and of the inputs by name, then settles it.

    `change` may alter both and returns the remaining inputs, or `None` if it does not apply (any more).
    """

    def apply(subject: Subject) -> Subject | None:
        model = structure.copied(subject.model)
        inputs = change(model, dict(subject.inputs))
        return None if inputs is None else settle(subject, model, inputs)

    return OnnxEdit(label, frozenset(touches), apply, None if parts is None else frozenset(parts))


def only_simpler(edit: OnnxEdit) -> OnnxEdit:
    """Restrict an edit to simpler results, which depend on the parts it must add."""

    def apply(subject: Subject) -> Subject | None:
        found = edit.apply(subject)
        return found if found is not None and simpler(found, subject) else None

    return replace(edit, apply=apply)


# The largest value, in elements: a larger one would make the model larger than what it replaces.
_MOST = 1 << 20


def plain_tensor(dtype: int, shape: tuple[int, ...]) -> Array:
    """Small whole numbers from -1 to 3; `dtype` is ONNX's number."""
    # Neither all equal nor all positive: a wrong order or a lost sign still shows.
    flat = (np.arange(int(np.prod(shape, dtype=np.int64))) % 5) - 1
    if DTYPES.get(dtype) == "string":
        return flat.astype(str).astype(object).reshape(shape)
    return flat.astype(helper.tensor_dtype_to_np_dtype(dtype)).reshape(shape)


def plain_values(subject: Subject) -> Callable[[str], Value | None]:
    """Make a function that returns a plain value for a tensor that a node of the main graph computes; `None`
    if its type is unknown, or is no tensor's.

    Types come from ONNX's inference, otherwise from the declaration of the operator, otherwise from the
    model's own declarations. If all three are silent, the result is assumed to have the type of the
    operator's first input: the test decides whether that holds.
    """
    types = _types(subject)

    def make(name: str) -> Value | None:
        dtype, shape = types.get(name, ("", ()))
        # In float64, since the product of hostile sizes overflows int64.
        small = dtype in NUMBERS and 0 <= np.prod(shape, dtype=np.float64) <= _MOST
        return plain_tensor(NUMBERS[dtype], shape) if small else None

    return make


def _types(subject: Subject) -> Mapping[str, Typed]:
    model, graph = subject.model, Graph(subject)
    opset = opset_of(model)
    declared_types: dict[str, Typed] = {}
    for name, type_ in graph.declared.items():
        declared = read_type(type_)
        if (
            isinstance(declared, TensorType)
            and declared.shape is not None
            and all(type(n) is int for n in declared.shape)
        ):
            declared_types[name] = declared.dtype, tuple(n for n in declared.shape if isinstance(n, int))
    inferred = {
        tensor.name: (DTYPES[tensor.dtype], tensor.shape)
        for tensor in view(replace(subject, values={})).tensors
        if not tensor.path and tensor.shape is not None and tensor.dtype in DTYPES
    }
    scope, found = leaves(model.graph, subject.inputs), {}
    for node in graph.nodes:
        check = check_node(node, [scope.get(name) for name in node.input], opset)
        first = next((scope[name][:2] for name in node.input if name in scope), None)
        for place, name in enumerate(node.output):
            ruled = check.types[place] if place < len(check.types) else None
            # In the order of trust.
            typed = inferred.get(name) or ruled or declared_types.get(name) or first
            if name and typed is not None:
                found[name], scope[name] = typed, (*typed, None)
    return found
