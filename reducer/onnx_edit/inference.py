"""The types of a model's values: inferred from those of its inputs, on a copy without declarations.

What is declared would contradict a change. A Loop does not tell its body the shapes of its states; they are
taken from the operands that they begin with, as far as the body keeps them.
"""

from collections.abc import Iterator, Mapping
from weakref import WeakKeyDictionary

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.gen.analysis.validity import KNOWN
from opsieve.gen.declarations.catalogue import has_bodies
from opsieve.gen.irs.onnx import edits, view
from opsieve.gen.model import detached, structure, tensors
from opsieve.reducer.onnx_edit import onnx_subprocess

Types = Mapping[str, onnx.TypeProto]
# The size in bytes from which a tensor is sent without elements: inference reads the elements of shapes only.
_LARGE = 64 << 10
# Element types of a vector of sizes.
_SHAPES = (TensorProto.INT64, TensorProto.INT32)
# Inferred types of subjects that are in use: several edits are applied to each.
INFERRED: WeakKeyDictionary[view.Subject, onnx.ModelProto] = WeakKeyDictionary()
# Passes of inference over one model with bodies: a nested body learns its states one pass later.
_MOST_PASSES = 4


def infer_types(subject: view.Subject) -> onnx.ModelProto:
    """Return the subject's model with the types that inference derives from its inputs' values."""
    if subject not in INFERRED:
        bare = without_types(subject.model, subject.inputs)
        found = infer(structure.copied(bare), strict=False)
        found = bare if found is None else with_states(subject.model, subject.inputs, found, False)
        INFERRED[subject] = found
    return INFERRED[subject]


def without_types(
    model: onnx.ModelProto, inputs: Mapping[str, tensors.Value], elements: bool = False
) -> onnx.ModelProto:
    """Return a copy with the types of the inputs' values and no other declarations."""
    bare = structure.copied(model)
    defaults = {tensor.name for tensor in bare.graph.initializer}
    # From the back, since a deletion moves everything behind it.
    for index in reversed(range(len(bare.graph.input))):
        info = bare.graph.input[index]
        value = inputs.get(info.name)
        if (
            not isinstance(value, np.ndarray)
            or not info.type.HasField("tensor_type")
            or info.name in defaults
        ):
            continue
        # Small integers become constants, for they may be shapes.
        if value.dtype.kind in "iu" and value.size <= KNOWN and value.ndim <= 1:
            bare.graph.initializer.append(edits.encode_array(value, info.name))
            del bare.graph.input[index]
        else:
            info.type.CopyFrom(view.declared_type(value))
    _forget_types(bare.graph, elements=elements)
    return bare


def with_states(
    model: onnx.ModelProto, inputs: Mapping[str, tensors.Value], inferred: onnx.ModelProto, anew: bool
) -> onnx.ModelProto:
    """Return the types of `inferred` with the shapes of the states of Loops and Scans, and what follows from
    them.

    The states begin as the operands of the node; where no shape of an operand is known, a declared one is
    believed unless the change was one of types (`anew`).
    """
    last = b""
    # The shapes of a state and those of the body depend on each other, so both are inferred until nothing
    # changes.
    for _ in range(_MOST_PASSES if owners(model.graph) else 0):
        shaped = without_types(model, inputs)
        _shape_states(model.graph, shaped.graph, inferred.graph, {}, anew)
        data = shaped.SerializeToString(deterministic=True)
        found = None if data == last else infer(shaped, strict=True)
        if found is None:
            break
        inferred, last = found, data
    return inferred


def _shape_states(
    graph: onnx.GraphProto, target: onnx.GraphProto, inferred: onnx.GraphProto, outer: Types, anew: bool
) -> None:
    """Declare in `target` the states of the bodies of `graph`."""
    stored = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in graph.initializer
    }
    types = {**outer, **stored, **types_of(inferred)}
    for place in owners(graph):
        node = graph.node[place]
        nested = zip(
            structure.bodies(node),
            structure.bodies(target.node[place]),
            structure.bodies(inferred.node[place]),
            strict=True,
        )
        for body, shaped, found in nested:
            inner = types_of(found)
            for at, (name, result) in _states(node, body):
                declared = body.input[at].type
                held = types.get(name)
                if not declared.HasField("tensor_type") or not structure.is_shaped(declared):
                    continue
                if held is not None and structure.is_shaped(held):
                    declared = declared if agrees(declared, held) else held
                elif anew and name:
                    continue
                seen = [inner[each] for each in (body.input[at].name, result) if each in inner]
                if all(agrees(declared, type_) for type_ in seen):
                    shaped.input[at].type.CopyFrom(declared)
            _shape_states(body, shaped, found, types, anew)


def _states(node: onnx.NodeProto, body: onnx.GraphProto) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the places of a body's inputs that are states, each with its initial operand and with the result
    that replaces it; "" for a Loop's counter and condition, which have neither.
    """
    ports = structure.ports_of(node)
    states = list(node.input)[ports.operands :][: ports.states]
    results = [info.name for info in body.output][ports.results :]
    yield from ((at, ("", "")) for at in range(min(ports.inputs, len(body.input))))
    yield from enumerate(zip(states, results, strict=False), ports.inputs)


def agrees(declared: onnx.TypeProto, found: onnx.TypeProto | None) -> bool:
    """Return whether a declaration is consistent with the known type."""
    if found is None or structure.is_untyped(found):
        return True
    kind = declared.WhichOneof("value")
    if kind != found.WhichOneof("value"):
        return False
    if kind != "tensor_type":
        return kind not in ("sequence_type", "optional_type") or agrees(
            getattr(declared, kind).elem_type, getattr(found, kind).elem_type
        )
    one, other = declared.tensor_type, found.tensor_type
    if other.elem_type and one.elem_type != other.elem_type:
        return False
    if not one.HasField("shape") or not other.HasField("shape"):
        return True
    return len(one.shape.dim) == len(other.shape.dim) and all(
        a.dim_value == b.dim_value
        for a, b in zip(one.shape.dim, other.shape.dim, strict=True)
        if a.HasField("dim_value") and b.HasField("dim_value")
    )


def types_of(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """Return the types that a graph declares, by name."""
    infos = (*graph.value_info, *graph.output, *graph.input)
    return {info.name: info.type for info in infos if not structure.is_untyped(info.type)}


def owners(graph: onnx.GraphProto) -> list[int]:
    """Return the places of nodes with bodies, found by operator: reading the attributes of each node takes
    far longer.
    """
    return [place for place, node in enumerate(graph.node) if has_bodies(node.op_type)]


def _forget_types(graph: onnx.GraphProto, main: bool = True, elements: bool = False) -> None:
    """Clear the types that inference derives itself, because it would compare declared ones with a change.

    With `elements`, the inputs of bodies keep their element types.
    """
    del graph.value_info[:]
    for info in graph.output if main else (*graph.input, *graph.output):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type" or kind is None:
            info.ClearField("type")
        elif main:
            edits.forget_element(info.type)
    for place in owners(graph):
        for body in structure.bodies(graph.node[place]):
            taken = {tensor.name: tensor.data_type for tensor in body.initializer} | (
                {info.name: info.type.tensor_type.elem_type for info in body.input} if elements else {}
            )
            _forget_types(body, main=False, elements=elements)
            # A value that a body stores, or returns unchanged, is computed by no node, so inference cannot
            # type it.
            for info in (
                *body.input,
                *body.output,
            ):
                if taken.get(info.name):
                    info.type.tensor_type.elem_type = taken[info.name]


def infer_by_elements(model: onnx.ModelProto, inputs: Mapping[str, tensors.Value]) -> onnx.ModelProto | None:
    """Infer the types of a model with bodies whose inputs keep their element types: onnx 1.23 does not type
    the condition in the body of a Loop without a condition, and then strictly refuses its readers. Returns
    `None` for a model without bodies, or if it is still refused.
    """
    return infer(without_types(model, inputs, elements=True), strict=True) if owners(model.graph) else None


def infer(model: onnx.ModelProto, strict: bool) -> onnx.ModelProto | None:
    """The model with all types; sizes that are computed by nodes are propagated only where that is needed,
    for it is slow.

    `model` is the caller's own: its large weights, at whose elements inference does not look, are emptied.
    """
    for tensor in model.graph.initializer:
        if detached.tensor_bytes(tensor) > _LARGE and (
            len(tensor.dims) > 1 or tensor.data_type not in _SHAPES
        ):
            type_, dims, name = tensor.data_type, list(tensor.dims), tensor.name
            tensor.Clear()
            tensor.data_type, tensor.name = type_, name
            tensor.dims.extend(dims)
    found = onnx_subprocess.infer_types(model, strict)
    # Data propagation is slow; it only helps where nodes compute a size.
    if found is None or all(
        structure.is_static(info.type) for info in (*found.graph.value_info, *found.graph.output)
    ):
        return found
    return onnx_subprocess.infer_types(model, strict, propagate=True)
