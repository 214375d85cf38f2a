"""The same model in float64, which the arbiter of mismatches evaluates.

Every float16, bfloat16 and float32 tensor of a model becomes float64: graph inputs and outputs, value_info,
initializers, constants, the targets of casts and the dtype attributes, in bodies and local functions too.
What rounds on purpose stays: float8 and integer quantisation still quantise, and an attribute that ONNX
stores as a float32 (epsilon, alpha) keeps that value. A cast to float16 in the middle of a model no longer
rounds: the result is the mathematical one, and a compiler's distance from it is judged against its peers
(docs/explanation/oracles.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    helper,
    numpy_helper,
)

PROMOTED = frozenset([TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
# The same types as names of numpy dtypes
NARROW = frozenset(["float16", "bfloat16", "float32"])

# Attributes that hold an element type, in the standard domain.
_DTYPE_ATTRIBUTES = frozenset(
    ["to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision"]
)
# Operators that make float32 when the attribute is absent.
_DEFAULT_FLOAT = {
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
    "HannWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "BlackmanWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
}


_BITS = "BitCast looks at the bits of a float, so the model has no float64 version"


class Unpromotable(NotImplementedError):
    """The meaning of a program depends on the width of its floats, so it has no float64 version."""


def promote(model: ModelProto, *, bits: bool = False) -> ModelProto:
    """Copy `model` with float64 in place of every float16, bfloat16 and float32.

    Raises Unpromotable for a model with a BitCast, unless the caller ensures that only `bits` of integers are
    read (`refuse_bits`).
    """
    functions = (node for function in model.functions for node in function.node)
    if not bits and "BitCast" in _operators([*model.graph.node, *functions]):
        raise Unpromotable(_BITS)
    copy = ModelProto()
    copy.CopyFrom(model)
    linked = {(f.domain, f.name): _linked_dtypes(f.node) for f in copy.functions}
    for function in copy.functions:
        for node in function.node:
            _node(node, linked)
        for attribute in function.attribute_proto:
            if attribute.name in linked[function.domain, function.name]:
                _dtype(attribute)
        for value in function.value_info:
            promote_type(value.type)
    _graph(copy.graph, linked)
    return copy


def refuse_bits(value: Any) -> None:
    """Raise Unpromotable for a BitCast of a float, whose bits change in float64."""
    if value.dtype == np.float64:
        raise Unpromotable(_BITS)


def promote_value(value: Any) -> Any:
    """Convert a feed to float64: arrays of a promoted type are cast, other values stay; lists recursively."""
    if isinstance(value, (list, tuple)):
        return [promote_value(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in NARROW:
        return value.astype(np.float64)
    return value


def narrow_value(value: Any) -> Any:
    """Convert a float64 array to float32; other values stay."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype == np.float64:
        return value.astype(np.float32)
    return value


def promote_type(declared: TypeProto) -> None:
    """Make a declared type float64 in place."""
    kind = declared.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        inner = getattr(declared, kind)
        if inner.elem_type in PROMOTED:
            inner.elem_type = TensorProto.DOUBLE
    elif kind in ("sequence_type", "optional_type"):
        promote_type(getattr(declared, kind).elem_type)
    elif kind == "map_type":
        promote_type(declared.map_type.value_type)


def _operators(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Yield the standard operators of nodes and their bodies."""
    for node in nodes:
        if node.domain in ("", "ai.onnx"):
            yield node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _operators(graph.node)


def _graph(graph: GraphProto, linked: Mapping[tuple[str, str], frozenset[str]]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        promote_type(value.type)
    for tensor in graph.initializer:
        _tensor(tensor)
    for sparse in graph.sparse_initializer:
        _tensor(sparse.values)
    for node in graph.node:
        _node(node, linked)


def _node(node: NodeProto, linked: Mapping[tuple[str, str], frozenset[str]]) -> None:
    standard = node.domain in ("", "ai.onnx")
    # Its attribute says how bits are read; in float64 they would be others.
    if standard and node.op_type == "BitCast":
        return
    dtypes = _DTYPE_ATTRIBUTES if standard else linked.get((node.domain, node.op_type), frozenset())
    for attribute in node.attribute:
        if attribute.type == AttributeProto.INT and attribute.name in dtypes:
            _dtype(attribute)
        elif attribute.type == AttributeProto.GRAPH:
            _graph(attribute.g, linked)
        else:
            _attribute(attribute)
        for graph in attribute.graphs:
            _graph(graph, linked)
    if not standard:
        return
    if node.op_type == "Constant":
        # value_float and value_floats make float32 whatever the model says, so they become a `value`.
        for index, attribute in enumerate(node.attribute):
            if attribute.ref_attr_name or attribute.name not in ("value_float", "value_floats"):
                continue
            held = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.array(held, np.float32).astype(np.float64))
            node.attribute[index].CopyFrom(helper.make_attribute("value", tensor))
    default = _DEFAULT_FLOAT.get(node.op_type)
    # Without the attribute the operator makes float32, which the rest of the model no longer takes.
    if default and all(attribute.name != default for attribute in node.attribute):
        node.attribute.append(helper.make_attribute(default, int(TensorProto.DOUBLE)))
    if node.op_type == "ConstantOfShape" and all(attribute.name != "value" for attribute in node.attribute):
        # Its default is a zero of float32.
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))


def _attribute(attribute: AttributeProto) -> None:
    if attribute.type == AttributeProto.TENSOR:
        _tensor(attribute.t)
    elif attribute.type == AttributeProto.SPARSE_TENSOR:
        _tensor(attribute.sparse_tensor.values)
    elif attribute.type == AttributeProto.TYPE_PROTO:
        promote_type(attribute.tp)
    tensors: Iterable[TensorProto] = attribute.tensors
    for tensor in tensors:
        _tensor(tensor)
    sparse: Iterable[SparseTensorProto] = attribute.sparse_tensors
    for item in sparse:
        _tensor(item.values)
    for declared in attribute.type_protos:
        promote_type(declared)


def _dtype(attribute: AttributeProto) -> None:
    if attribute.i in PROMOTED:
        attribute.i = TensorProto.DOUBLE


def _tensor(tensor: TensorProto) -> None:
    if tensor.data_type in PROMOTED:
        array = np.asarray(numpy_helper.to_array(tensor)).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _linked_dtypes(nodes: Iterable[NodeProto]) -> frozenset[str]:
    """Return the attributes of a local function that its body uses as an element type."""
    names: set[str] = set()
    for node in nodes:
        for attribute in node.attribute:
            if (
                attribute.ref_attr_name
                and attribute.name in _DTYPE_ATTRIBUTES
                and node.domain in ("", "ai.onnx")
            ):
                names.add(attribute.ref_attr_name)
            for graph in (attribute.g, *attribute.graphs):
                names |= _linked_dtypes(graph.node)
    return frozenset(names)
