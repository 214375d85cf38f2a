"""A subject flattened into numbered tensors and nodes with their types, and how a changed model is settled as
a subject.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.gen.analysis.validity import KNOWN, check_model
from opsieve.gen.declarations.schema import has_bodies
from opsieve.gen.declarations.tensor import Typed
from opsieve.gen.model.detached import tensor_bytes
from opsieve.gen.model.structure import bodies
from opsieve.gen.model.tensors import DTYPES, NUMBERS, Value, dtype_name
from opsieve.reducer.onnx_edit import onnx_subprocess
from opsieve.reducer.onnx_edit.graphs import (
    Array,
    Path,
    constant_array,
    copied,
    declared_type,
    encoded,
    first_output,
    forget_element,
    tensor_array,
)
from opsieve.reducer.problem.onnx_form import Change, OnnxEdit
from opsieve.reducer.problem.order import simpler
from opsieve.reducer.problem.subject import Subject

ABSENT = -1
_LARGE = 64 << 10  # bytes of a tensor
_SHAPES = (TensorProto.INT64, TensorProto.INT32)  # what a vector of sizes is made of


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
        """The first output's name, by which the node is found in its graph."""
        return first_output(self.node)


@dataclass(frozen=True, slots=True)
class View:
    """Every tensor and node of the main graph and of all bodies, bodies before the node that owns them."""

    subject: Subject
    tensors: tuple[GraphTensor, ...]
    steps: tuple[Step, ...]
    known: Mapping[int, Array]  # values of small constants and small inputs, by tensor number


def view(subject: Subject) -> View:
    """The subject flattened, with the types that inference, the inputs' values and the recorded values
    give.
    """
    model = copied(subject.model)
    _make_static(model.graph, subject.inputs)
    _forget_types(model.graph)
    inferred = _inferred(model, strict=False)
    reader = _ViewReader(subject, {entry.domain: entry.version for entry in model.opset_import})
    reader.read(subject.model.graph, (inferred or model).graph, (), {})
    return View(subject, tuple(reader.tensors), tuple(reader.steps), reader.known)


def settle(
    subject: Subject, model: onnx.ModelProto, inputs: dict[str, Value] | None = None
) -> Subject | None:
    """The subject of a changed model, its declared types replaced by the inferred ones; None when inference
    refuses it.

    `model` must be a copy that is the caller's own, and is taken over. What `value_info` declared is declared
    anew; recorded values that no longer fit are dropped.
    """
    inputs = subject.inputs if inputs is None else inputs
    static = copied(model)
    _make_static(static.graph, inputs)
    _forget_types(static.graph)
    ruled = check_model(static, {})  # before inference, which takes longer
    if ruled.fault and not check_model(subject.model, subject.inputs).fault:
        return None
    inferred = _inferred(static, strict=True) or _inferred_by_elements(model, inputs)
    if inferred is None:
        return None
    types = _types(inferred.graph)
    if _has_empty(types) and not _is_empty(subject):
        return None
    untold = any(name and name not in ruled.types for node in static.graph.node for name in node.output)
    if untold and _faulty(subject, static, types):
        return None
    kept = {
        name: value for name, value in subject.values.items() if name in types and _fits(value, types[name])
    }
    if _is_dynamic(model.graph):
        open_ = copied(model)
        _forget_types(open_.graph)
        inferred = _inferred(open_, strict=True)
        if inferred is None:
            return None
        types = {name: _opened(type_) for name, type_ in types.items()} | _types(inferred.graph, shaped=True)
    _retype(model.graph, inferred.graph, types, main=True)
    return Subject(model, inputs, kept)


def _faulty(subject: Subject, model: onnx.ModelProto, declared: Mapping[str, onnx.TypeProto]) -> bool:
    """Whether a node of a changed model is invalid by its declaration, where the subject itself is sound in
    these respects.
    """
    typed = {name: found for name, type_ in declared.items() if (found := _typed(type_)) is not None}
    return bool(check_model(model, {}, typed).fault) and not check_model(subject.model, subject.inputs).fault


def _typed(type_: onnx.TypeProto) -> Typed | None:
    if (
        not type_.HasField("tensor_type")
        or not _is_static(type_)
        or type_.tensor_type.elem_type not in DTYPES
    ):
        return None
    tensor = type_.tensor_type
    return DTYPES[tensor.elem_type], tuple(dim.dim_value for dim in tensor.shape.dim)


def _has_empty(types: Mapping[str, onnx.TypeProto]) -> bool:
    return any(
        dim.HasField("dim_value") and dim.dim_value == 0
        for type_ in types.values()
        if type_.HasField("tensor_type")
        for dim in type_.tensor_type.shape.dim
    )


def _is_empty(subject: Subject) -> bool:
    """Whether tensors without elements are part of the subject already; elsewhere they only hide what is
    looked for.
    """
    graph = subject.model.graph
    arrays = [*subject.inputs.values(), *subject.values.values()]
    return (
        any(isinstance(array, np.ndarray) and array.size == 0 for array in arrays)
        or any(0 in tensor.dims for tensor in graph.initializer)
        or _has_empty({info.name: info.type for info in (*graph.output, *graph.value_info)})
    )


def _retype(
    graph: onnx.GraphProto, inferred: onnx.GraphProto, types: Mapping[str, onnx.TypeProto], main: bool
) -> None:
    """Replace what is declared of outputs, of bodies' inputs and of intermediate values by what was inferred;
    only of outputs is a rank asked for.
    """
    for info in graph.output if main else (*graph.input, *graph.output):
        found = types.get(info.name)
        if found is not None and (
            _is_shaped(found) or not _is_shaped(info.type) if main else not _empty(info.type)
        ):
            info.type.CopyFrom(found)
        elif info.type.HasField("tensor_type"):
            info.type.CopyFrom(_opened(info.type))
            if found is not None and found.tensor_type.elem_type:
                info.type.tensor_type.elem_type = found.tensor_type.elem_type
    declared = sorted({info.name for info in graph.value_info} & types.keys()) if main else []
    del graph.value_info[:]
    graph.value_info.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in declared)
    for place in _owners(graph):
        for body, other in zip(bodies(graph.node[place]), bodies(inferred.node[place]), strict=True):
            _retype(body, other, _types(other), main=False)


def _owners(graph: onnx.GraphProto) -> list[int]:
    """The places of nodes with bodies. Only these operators have any; asking each node for its attributes
    takes far longer.
    """
    return [place for place, node in enumerate(graph.node) if has_bodies(node.op_type)]


def _opened(type_: onnx.TypeProto) -> onnx.TypeProto:
    """A tensor type of the same rank whose sizes are unknown."""
    bare = onnx.TypeProto()
    bare.CopyFrom(type_)
    for dim in bare.tensor_type.shape.dim if bare.HasField("tensor_type") else ():
        dim.Clear()
    return bare


def _types(graph: onnx.GraphProto, shaped: bool = False) -> dict[str, onnx.TypeProto]:
    infos = (*graph.value_info, *graph.output, *graph.input)
    return {
        info.name: info.type
        for info in infos
        if not _empty(info.type) and (_is_shaped(info.type) or not shaped)
    }


def _is_shaped(type_: onnx.TypeProto) -> bool:
    return not type_.HasField("tensor_type") or type_.tensor_type.HasField("shape")


def _empty(type_: onnx.TypeProto) -> bool:
    return type_.WhichOneof("value") is None


def _fits(value: Value, type_: onnx.TypeProto) -> bool:
    if not isinstance(value, np.ndarray) or not type_.HasField("tensor_type"):
        return True
    tensor = type_.tensor_type
    if tensor.elem_type != NUMBERS.get(dtype_name(value)):
        return False
    return not tensor.HasField("shape") or [dim.dim_value for dim in tensor.shape.dim] == list(value.shape)


def _is_dynamic(graph: onnx.GraphProto) -> bool:
    return any(info.type.HasField("tensor_type") and not _is_static(info.type) for info in graph.input)


def _make_static(graph: onnx.GraphProto, inputs: Mapping[str, Value]) -> None:
    """Give inputs the types of their values; small integers become constants, for they may be shapes."""
    defaults = {tensor.name for tensor in graph.initializer}
    for index in reversed(range(len(graph.input))):
        info = graph.input[index]
        value = inputs.get(info.name)
        if (
            not isinstance(value, np.ndarray)
            or not info.type.HasField("tensor_type")
            or info.name in defaults
        ):
            continue
        if value.dtype.kind in "iu" and value.size <= KNOWN and value.ndim <= 1:
            graph.initializer.append(encoded(value, info.name))
            del graph.input[index]
        else:
            info.type.CopyFrom(declared_type(value))


def _forget_types(graph: onnx.GraphProto, main: bool = True, elements: bool = False) -> None:
    """Clear what inference finds out by itself: it would hold what is declared against a change.

    With `elements`, what bodies take keeps its element type.
    """
    del graph.value_info[:]
    for info in graph.output if main else (*graph.input, *graph.output):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type" or kind is None:
            info.ClearField("type")
        elif main:
            forget_element(info.type)
    for place in _owners(graph):
        for body in bodies(graph.node[place]):
            taken = {info.name: info.type.tensor_type.elem_type for info in body.input} if elements else {}
            _forget_types(body, main=False, elements=elements)
            # what is handed on as it came has no node that gives it a type
            for info in (
                *body.input,
                *body.output,
            ):
                if taken.get(info.name):
                    info.type.tensor_type.elem_type = taken[info.name]


def _inferred_by_elements(model: onnx.ModelProto, inputs: Mapping[str, Value]) -> onnx.ModelProto | None:
    """The types of a model with bodies whose inputs keep their element types: of a Loop without a condition
    onnx 1.23 types no body's condition, and strictly refuses what reads it. None for a model without bodies,
    and where it is refused all the same.
    """
    if not _owners(model.graph):
        return None
    static = copied(model)
    _make_static(static.graph, inputs)
    _forget_types(static.graph, elements=True)
    return _inferred(static, strict=True)


def _inferred(model: onnx.ModelProto, strict: bool) -> onnx.ModelProto | None:
    """The model with all types; sizes that are computed by nodes are propagated only where that is needed,
    for it is slow.

    `model` is the caller's own: its large weights, at whose elements inference does not look, are emptied.
    """
    for tensor in model.graph.initializer:
        if tensor_bytes(tensor) > _LARGE and (len(tensor.dims) > 1 or tensor.data_type not in _SHAPES):
            type_, dims, name = tensor.data_type, list(tensor.dims), tensor.name
            tensor.Clear()
            tensor.data_type, tensor.name = type_, name
            tensor.dims.extend(dims)
    found = onnx_subprocess.inferred(model, strict)
    if found is None or all(_is_static(info.type) for info in (*found.graph.value_info, *found.graph.output)):
        return found
    return onnx_subprocess.inferred(model, strict, propagate=True)


def _is_static(type_: onnx.TypeProto) -> bool:
    if not type_.HasField("tensor_type"):
        return not _empty(type_)
    tensor = type_.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


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
        types = _types(typed)
        names = dict(outer)
        initial = {tensor.name for tensor in graph.initializer}
        inputs = []
        for info in graph.input:
            source = "input" if not path and info.name not in initial else ""
            value = self.subject.inputs.get(info.name)
            type_ = types.get(info.name, info.type)
            if source and isinstance(value, np.ndarray):
                type_ = declared_type(value)
            number = self._add(info.name, path, type_, source, names)
            inputs.append(number)
            if source and isinstance(value, np.ndarray) and value.size <= KNOWN:
                self.known[number] = value
        for tensor in graph.initializer:
            type_ = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            number = self._add(tensor.name, path, type_, "initializer", names)
            self._know(number, tensor)
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
        constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        outputs = []
        for name in node.output:
            type_ = types.get(name, onnx.TypeProto())
            outputs.append(
                self._add(name, path, type_, "constant" if constant else "", names) if name else ABSENT
            )
        if constant and outputs:
            array = constant_array(node)
            if array is not None and array.size <= KNOWN:
                self.known[outputs[0]] = array
        version = self.opsets.get(node.domain, self.opsets.get("ai.onnx" if not node.domain else "", 0))
        self.steps.append(Step(path, node, inputs, tuple(outputs), tuple(found), version))

    def _know(self, number: int, tensor: TensorProto) -> None:
        shape = self.tensors[number].shape
        if shape is not None and len(shape) <= 1 and np.prod(shape, initial=1) <= KNOWN:
            array = tensor_array(tensor)
            if array is not None:
                self.known[number] = array

    def _add(self, name: str, path: Path, type_: onnx.TypeProto, source: str, names: dict[str, int]) -> int:
        dtype, shape = 0, None
        if type_.HasField("tensor_type"):
            tensor = type_.tensor_type
            dtype = tensor.elem_type
            if _is_static(type_):
                shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        recorded = self.subject.values.get(name) if not path else None
        if isinstance(recorded, np.ndarray) and (shape is None or not dtype):
            dtype, shape = NUMBERS[dtype_name(recorded)], recorded.shape
        names[name] = len(self.tensors)
        self.tensors.append(GraphTensor(name, path, dtype, shape, source))
        return names[name]


def changing(
    label: str, touches: Iterable[str], change: Change, parts: Iterable[str] | None = None
) -> OnnxEdit:
    """The edit that applies `change` to a copy of the model and of the inputs by name, then settles it.

    `change` may alter both and returns the inputs that are left; None when it does not apply (any more).
    """

    def apply(subject: Subject) -> Subject | None:
        model = copied(subject.model)
        inputs = change(model, dict(subject.inputs))
        return None if inputs is None else settle(subject, model, inputs)

    return OnnxEdit(label, frozenset(touches), apply, None if parts is None else frozenset(parts))


def only_simpler(edit: OnnxEdit) -> OnnxEdit:
    """The same edit, none where its result is no simpler: whether it is depends on what must be added."""

    def apply(subject: Subject) -> Subject | None:
        found = edit.apply(subject)
        return found if found is not None and simpler(found, subject) else None

    return replace(edit, apply=apply)
