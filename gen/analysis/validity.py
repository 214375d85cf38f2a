"""Check the nodes of any model by the declarations: find certainly invalid nodes, and the types of their
outputs.

A declaration is written for the instances that its sampler draws; a foreign model may hold others. So the
check stays silent where a type is unknown, where a rule needs elements that only a run determines, where a
rule raises, and where ONNX allows more than the declaration covers (`Operator.unmodelled`). It never calls
ONNX, whose inference may crash on a strange node.

Sources: the declarations (gen/operators), the operator page of Split (as many outputs as `num_outputs` says).
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from opsieve.gen.declarations.catalogue import OLDEST, form, has_bodies, operators, qualified_name
from opsieve.gen.declarations.tensor import Attributes, Tensor, Typed
from opsieve.gen.errors import BadInput
from opsieve.gen.model.attributes import constant_array, is_constant, read_attribute
from opsieve.gen.model.structure import bodies
from opsieve.gen.model.tensors import (
    DTYPES,
    TensorType,
    Value,
    dtype_name,
    elements,
    read_tensor,
    read_type,
    tensor_problem,
)

# The most elements of a tensor that rules may read: enough for shapes, axes and bounds.
KNOWN = 64
# The size in bytes from which an attribute is left unread: no rule reads so large a one.
_LARGE = 4096
# The deepest nesting of bodies that is checked.
_DEPTH = 8

# dtype, shape, elements where they are known
Typing: TypeAlias = tuple[str, tuple[int, ...], tuple[Any, ...] | None]


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """The result of a declaration's check of one node. `fault` tells the broken rule, "" if none is certain.

    `types` are those of the outputs as far as they are known; None for one of which nothing is known.
    """

    fault: str
    types: tuple[Typed | None, ...]


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """The result of checking a model's main graph: the first fault (or ""), and every known type, by name."""

    fault: str
    types: Mapping[str, Typed]


_SILENT = NodeCheck("", ())


def check_model(
    model: onnx.ModelProto, inputs: Mapping[str, Value], known: Mapping[str, Typed] | None = None
) -> ModelCheck:
    """Check a model's nodes in order, as far as their types follow from its leaves; fed values bind open
    dimensions.

    The model's structure need not be sound. Declared types of computed values are ignored; `known` has types
    of some of them from other sources, for nodes after unchecked ones. Bodies only contribute faults.
    """
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    local = frozenset((function.domain, function.name) for function in model.functions)
    scope = leaves(model.graph, inputs)
    fault = _walk_graph(model.graph, scope, opsets.get("", opsets.get("ai.onnx", 0)), local, known or {}, 0)
    return ModelCheck(fault, {name: typing[:2] for name, typing in scope.items()})


def _walk_graph(
    graph: onnx.GraphProto,
    scope: dict[str, Typing],
    opset: int,
    local: frozenset[tuple[str, str]],
    known: Mapping[str, Typed],
    depth: int,
) -> str:
    """Return the first fault of a graph, bodies before their node; what nodes make is entered into the
    scope.
    """
    for node in graph.node:
        if (node.domain, node.op_type) in local:
            continue
        if is_constant(node):
            typing = _constant(node)
            if typing is not None and node.output:
                scope[node.output[0]] = typing
            continue
        if has_bodies(node.op_type) and depth < _DEPTH:
            for body in bodies(node):
                inner = {**scope, **leaves(body, {})}
                # Their types follow from the node, which may have changed.
                for info in body.input:
                    inner.pop(info.name, None)
                fault = _walk_graph(body, inner, opset, local, {}, depth + 1)
                if fault:
                    return fault
        check = check_node(node, [scope.get(name) if name else None for name in node.input], opset)
        if check.fault:
            return check.fault
        for place, name in enumerate(node.output):
            typed = check.types[place] if place < len(check.types) else None
            typed = typed or known.get(name)
            if name and typed is not None:
                scope[name] = (*typed, None)
            else:
                scope.pop(name, None)
    return ""


def leaves(graph: onnx.GraphProto, inputs: Mapping[str, Value]) -> dict[str, Typing]:
    """Return the types of inputs and initializers, with the elements of small ones; of small inputs too,
    where they are whole numbers.
    """
    found: dict[str, Typing] = {}
    for info in graph.input:
        value, type_ = inputs.get(info.name), read_type(info.type)
        if isinstance(value, np.ndarray):
            whole = value.dtype.kind in "iu" and value.size <= KNOWN and value.ndim <= 1
            found[info.name] = (
                dtype_name(value),
                value.shape,
                tuple(value.ravel().tolist()) if whole else None,
            )
        elif isinstance(type_, TensorType) and type_.shape is not None:
            sides = tuple(side for side in type_.shape if isinstance(side, int))
            if len(sides) == len(type_.shape):
                found[info.name] = (type_.dtype, sides, None)
    for tensor in graph.initializer:
        if tensor.data_type in DTYPES:
            found[tensor.name] = _read_stored(tensor)
    return found


def _read_stored(tensor: TensorProto) -> Typing:
    shape = tuple(tensor.dims)
    if not 0 <= elements(shape) <= KNOWN or DTYPES[tensor.data_type] == "string" or tensor_problem(tensor):
        return DTYPES[tensor.data_type], shape, None
    array = read_tensor(tensor)
    plain = array if array.dtype.type.__module__ == "numpy" else array.astype(np.float64)
    return DTYPES[tensor.data_type], shape, tuple(plain.ravel().tolist())


def _constant(node: onnx.NodeProto) -> Typing | None:
    if len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        return _read_stored(attribute.t) if attribute.t.data_type in DTYPES else None
    array = constant_array(node)
    if array is None or array.dtype == object:
        return None
    return dtype_name(array), array.shape, tuple(array.ravel().tolist()) if array.size <= KNOWN else None


def check_node(node: onnx.NodeProto, ins: Sequence[Typing | None], opset: int) -> NodeCheck:
    """Check a node on such inputs by its operator's declaration; None stands for an unknown input."""
    name = qualified_name(node.domain, node.op_type)
    if name not in operators() or any(attribute.ByteSize() > _LARGE for attribute in node.attribute):
        return _SILENT
    given = tuple((typing, bool(name)) for typing, name in zip(ins, node.input, strict=True))
    attributes = tuple(attribute.SerializeToString() for attribute in node.attribute)
    return _check_rules(name, opset, given, attributes, len(node.output))


@functools.lru_cache(maxsize=8192)
def _check_rules(
    name: str,
    opset: int,
    given: tuple[tuple[Typing | None, bool], ...],
    attributes: tuple[bytes, ...],
    outputs: int,
) -> NodeCheck:
    attrs = read_attributes([AttributeProto.FromString(data) for data in attributes])
    if attrs is None:
        return _SILENT
    parts = attrs.get("num_outputs", outputs)
    # Checked even if nothing else is known: shape inference of onnx 1.23 reads past the end of the outputs.
    if parts != outputs:
        return NodeCheck(f"{name} has {outputs} outputs and num_outputs {parts}", ())
    if any(there and typing is None for typing, there in given):
        return _SILENT
    ins = [None if typing is None else Tensor("", *typing[:2], values=typing[2]) for typing, _ in given]
    found = settle_types(name, opset, ins, attrs, outputs)
    if found is None:
        return _SILENT
    broken, types = found
    return NodeCheck(f"{name} breaks rule {broken[0]}", ()) if broken else NodeCheck("", types)


def settle_types(
    name: str, opset: int, ins: Sequence[Tensor | None], attrs: Attributes, outputs: int
) -> tuple[tuple[int, ...], tuple[Typed | None, ...]] | None:
    """Return the numbers of the rules that an instance breaks, and its outputs' types (empty if these faults
    hide them); `None` if the declaration does not cover it.
    """
    operator = operators().get(name)
    if operator is None:
        return None
    if attrs.get("num_outputs", outputs) != outputs:
        return (0,), ()
    if not operator.domain:
        # Declarations are written for `OLDEST` and later; many forms are older and have not changed since.
        had = form(operator.name, max(OLDEST, opset))
        if had is None or opset < max(had.since, operator.since) or len(ins) < had.least_inputs:
            return None
    types: Sequence[Typed | None] = ()
    try:
        if operator.unmodelled(ins, attrs):  # type: ignore[arg-type]
            return None
        rules = operator.requires(ins, attrs)  # type: ignore[arg-type]
        broken = tuple(number for number, truth in enumerate(rules) if not truth)
    except Exception:  # noqa: BLE001
        # Rules are written for what the generator draws; a foreign node may be anything
        return None
    try:
        types = operator.infer(ins, attrs)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001
        # As for relations: rules may raise anything for foreign nodes.
        return (broken, ()) if broken else None
    if any(typed is not None and not all(type(side) is int for side in typed[1]) for typed in types):
        return (broken, ()) if broken else None
    return broken, tuple(typed if typed is None or typed[0] else None for typed in types)


def read_attributes(protos: Sequence[AttributeProto]) -> Attributes | None:
    """Return attributes as rules read them; `None` if one is a graph, a sparse tensor or a reference."""
    if any(proto.ref_attr_name for proto in protos):
        return None
    try:
        return {proto.name: read_attribute(proto) for proto in protos}
    except BadInput:
        return None
