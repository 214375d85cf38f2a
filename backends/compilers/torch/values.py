"""ONNX's element types, tensors and attributes as torch's, both ways. See table.py."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import onnx
import torch
from onnx import numpy_helper

DTYPES = {
    "float32": torch.float32, "uint8": torch.uint8, "int8": torch.int8, "uint16": torch.uint16,
    "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "bool": torch.bool,
    "float16": torch.float16, "float64": torch.float64, "uint32": torch.uint32, "uint64": torch.uint64,
    "complex64": torch.complex64, "complex128": torch.complex128, "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn, "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2, "float8_e5m2fnuz": torch.float8_e5m2fnuz,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# Types that torch does not exchange with numpy, and the integers that carry their bits.
CARRIED = {
    name: np.int16 if name == "bfloat16" else np.uint8 for name in DTYPES if name.startswith(("bf", "float8"))
}

DTYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "precision")


class Unsupported(NotImplementedError):
    """Raised with the reason for an operator that the table cannot lower."""


def attributes(proto: Any, bound: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes of a NodeProto as Python values, with those of the function around it inserted;
    and its bodies.
    """
    given, bodies = {}, {}
    for item in proto.attribute:
        if item.ref_attr_name:
            if item.ref_attr_name in bound:
                given[item.name] = bound[item.ref_attr_name]
        elif item.type == onnx.AttributeProto.GRAPH:
            bodies[item.name] = item.g
        else:
            given[item.name] = attribute(item)
    return given, bodies


def attribute(item: Any) -> Any:
    """Convert an AttributeProto to a Python value: text for bytes, a torch tensor for a tensor."""
    value = onnx.helper.get_attribute_value(item)
    if item.type == onnx.AttributeProto.STRING:
        return value.decode("utf-8", "replace")
    if item.type == onnx.AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    if item.type == onnx.AttributeProto.TENSOR:
        return to_tensor(numpy_helper.to_array(value))
    if item.type in (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT):
        return value
    if item.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(value)
    if item.type == onnx.AttributeProto.TYPE_PROTO:
        return value
    # Sparse tensors and lists of graphs have no operator in the table.
    raise Unsupported("an attribute of type %s" % onnx.AttributeProto.AttributeType.Name(item.type))


def constant(node: Any) -> torch.Tensor:
    """Return the value of a Constant node."""
    # A sparse or text constant, which `attributes` leaves out.
    if not node.attributes:
        raise Unsupported("Constant: a value that the table does not read")
    ((name, value),) = node.attributes.items()
    if name == "value":
        return value
    if name in ("value_float", "value_floats"):
        return torch.tensor(value, dtype=torch.float32)
    if name in ("value_int", "value_ints"):
        return torch.tensor(value, dtype=torch.int64)
    raise Unsupported("Constant: %s" % name)


def element(number: int) -> torch.dtype:
    """Return torch's dtype for ONNX's number of an element type; raise Unsupported for the others."""
    name = (
        str(onnx.helper.tensor_dtype_to_np_dtype(number)) if number != onnx.TensorProto.STRING else "string"
    )
    if name not in DTYPES:
        raise Unsupported("the element type %s" % onnx.TensorProto.DataType.Name(number).lower())
    return DTYPES[name]


def to_tensor(value: Any) -> Any:
    """Convert a numpy array to a torch tensor on torch's default device, lists recursively; shapes and
    element types stay, the memory is not shared.
    """
    if value is None or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (list, tuple)):
        return [to_tensor(item) for item in value]
    # A copy: the caller may reuse its memory for the next test.
    array = np.array(value)
    name = array.dtype.name
    if name not in DTYPES:
        raise Unsupported("the element type %s" % name)
    if name in CARRIED:
        tensor = torch.from_numpy(array.view(CARRIED[name])).view(DTYPES[name])
    else:
        # torch refuses arrays of the other byte order.
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    return tensor.to(torch.get_default_device())


def to_value(tensor: Any) -> Any:
    """Convert a torch tensor to a numpy array, lists recursively."""
    if tensor is None or isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(tensor, (list, tuple)):
        return [to_value(item) for item in tensor]
    # numpy knows neither torch's lazy conjugates nor its lazy signs.
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = NAMES[tensor.dtype]
    if name in CARRIED:
        return tensor.view(torch.int16 if name == "bfloat16" else torch.uint8).numpy().view(_numpy_name(name))
    return tensor.numpy()


def serialised_type(value: Any) -> bytes:
    """Return the TypeProto of a value, as ONNX's C++ takes it; an empty one for None."""
    # ONNX's C++ wants a type for each input, also for an absent one.
    kind = onnx.TypeProto()
    if isinstance(value, list):
        if not value:
            raise Unsupported("an empty sequence, whose type torch does not know")
        number = _number_of(value[0])
        kind = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(number, None))
    elif value is not None:
        kind = onnx.helper.make_tensor_type_proto(_number_of(value), list(value.shape))
    data: bytes = kind.SerializeToString()
    return data


def _number_of(value: Any) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(_numpy_name(NAMES[value.dtype]))))


def _numpy_name(name: str) -> Any:
    import ml_dtypes

    return getattr(ml_dtypes, name) if name in CARRIED else name
