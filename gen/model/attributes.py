"""Attributes of nodes as rules of declarations read them, and the values of Constant nodes."""

from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.tensors import read_tensor

# The attributes of a Constant that hold one number or text, and those that hold a list
CONSTANT_SCALARS = {
    "value_float": TensorProto.FLOAT,
    "value_int": TensorProto.INT64,
    "value_string": TensorProto.STRING,
}
CONSTANT_LISTS = {
    "value_floats": TensorProto.FLOAT,
    "value_ints": TensorProto.INT64,
    "value_strings": TensorProto.STRING,
}


def read_attribute(proto: AttributeProto, errors: str = "surrogateescape") -> Any:
    """Return the value of an attribute: a number, a text, a list of either, or an array.

    `errors` is the handler for bytes that are not UTF-8, as in `bytes.decode`. Raises BadInput for unreadable
    tensors, and for graphs, sparse tensors and types.
    """
    kind = proto.type
    if kind == AttributeProto.INT:
        return proto.i
    if kind == AttributeProto.FLOAT:
        return proto.f
    if kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        return [*proto.ints, *proto.floats]
    if kind == AttributeProto.STRING:
        return proto.s.decode(errors=errors)
    if kind == AttributeProto.STRINGS:
        return [text.decode(errors=errors) for text in proto.strings]
    if kind == AttributeProto.TENSOR:
        return read_tensor(proto.t)
    raise BadInput(f"the attribute {shown(proto.name)} is not a number, text or tensor")


def is_constant(node: NodeProto) -> bool:
    """Return whether a node is ONNX's Constant."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output) > 0


def constant_array(node: NodeProto) -> "np.ndarray[Any, Any] | None":
    """Return the value of a Constant node; `None` for a sparse or an unreadable one, and for a parameter of
    its function.
    """
    if len(node.attribute) != 1 or node.attribute[0].ref_attr_name:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value" and attribute.HasField("t"):
        return tensor_array(attribute.t)
    kind = {**CONSTANT_SCALARS, **CONSTANT_LISTS}.get(attribute.name)
    if kind is None:
        return None
    value = helper.get_attribute_value(attribute)
    if kind == TensorProto.STRING:
        items = value if isinstance(value, list) else [value]
        texts = np.empty(len(items), dtype=object)
        texts[:] = [item.decode("utf-8", "surrogateescape") for item in items]
        return texts if isinstance(value, list) else texts.reshape(())
    return np.asarray(value, dtype=helper.tensor_dtype_to_np_dtype(kind))


def tensor_array(tensor: TensorProto) -> "np.ndarray[Any, Any] | None":
    """Return a tensor's value; `None` if the model alone does not hold it (external or damaged data)."""
    try:
        return read_tensor(tensor)
    except BadInput:
        return None
