"""Attributes of nodes as rules of declarations read them."""

from typing import Any

from onnx import AttributeProto

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.tensors import read_tensor


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
    raise BadInput(f"the attribute {shown(proto.name)} is no number, text or tensor")
