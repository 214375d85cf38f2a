"""Types and values of a program's inputs and outputs, and their encoding in ONNX.

A *value* is a numpy array (bfloat16, float8, int4 and the like as ml_dtypes arrays, one element per item;
strings as an object array of `str`), a list of values (an ONNX sequence), or None (an absent optional). A
string of invalid UTF-8 keeps its bytes as surrogate escapes, so that it is written as it was read.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.detached import part_of
from opsieve.gen.model.files import BUDGET
from opsieve.gen.model.printable import printable

Value: TypeAlias = Any
M = TypeVar("M", bound=Message)

# ONNX's number of an element type -> the dtype's name in numpy or ml_dtypes, and back.
DTYPES: dict[int, str] = {
    number: "string" if number == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(number).name
    for number in TensorProto.DataType.values()
    if number != TensorProto.UNDEFINED
}
NUMBERS: dict[str, int] = {name: number for number, name in DTYPES.items()}
_BITS = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor: the dtype's name ("" if undeclared) and its dimensions.

    A dimension is a size, the name of a size (symbolic), or None if unknown; `shape` is None for an unknown
    rank.
    """

    dtype: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        dims = (
            "..."
            if self.shape is None
            else ", ".join("?" if dim is None else str(dim)[:40] for dim in self.shape[:12])
        )
        return f"{self.dtype or 'untyped'}[{printable(dims)}]"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: "ValueType"

    def __str__(self) -> str:
        return f"sequence of {self.element}"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent."""

    element: "ValueType"

    def __str__(self) -> str:
        return f"optional {self.element}"


@dataclass(frozen=True, slots=True)
class OtherType:
    """A map, a sparse tensor, an opaque type or no type at all: a model may have it, but no value of it can
    be kept.
    """

    kind: str

    def __str__(self) -> str:
        return self.kind


ValueType: TypeAlias = TensorType | SequenceType | OptionalType | OtherType


def read_type(proto: onnx.TypeProto) -> ValueType:
    """Read the type in a TypeProto. A negative size counts as unknown, an unknown element type as dtype
    "".
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        shape = tuple(_dimension(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
        return TensorType(DTYPES.get(tensor.elem_type, ""), shape)
    if kind == "sequence_type":
        return SequenceType(read_type(proto.sequence_type.elem_type))
    if kind == "optional_type":
        return OptionalType(read_type(proto.optional_type.elem_type))
    return OtherType((kind or "untyped value").removesuffix("_type").replace("_", " "))


def type_of(value: Any) -> onnx.TypeProto | None:
    """Return the static type of a value; `None` if the value does not determine it (such as an empty
    sequence).
    """
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return helper.make_tensor_type_proto(NUMBERS[dtype_name(array)], array.shape)
    if isinstance(value, list) and value:
        element = type_of(value[0])
        if element is None:
            return None
        if element.HasField("tensor_type"):
            # The elements of a sequence may differ in shape
            element.tensor_type.ClearField("shape")
        return helper.make_sequence_type_proto(element)
    return None


def graph_inputs(model: onnx.ModelProto) -> dict[str, ValueType]:
    """Return the inputs that must be fed, in the graph's order: those without an initializer as their
    default.
    """
    graph = model.graph
    defaults = {tensor.name for tensor in graph.initializer}
    defaults.update(sparse.values.name for sparse in graph.sparse_initializer)
    return {info.name: read_type(info.type) for info in graph.input if info.name not in defaults}


def graph_outputs(model: onnx.ModelProto) -> dict[str, ValueType]:
    """Return the outputs in the graph's order."""
    return {info.name: read_type(info.type) for info in model.graph.output}


def elements(dims: Iterable[int]) -> int:
    """Return how many elements a tensor of these dimensions has, or -1 when a dimension is negative."""
    sizes = tuple(dims)
    return -1 if any(size < 0 for size in sizes) else math.prod(sizes)


def data_size(dtype: str, count: int) -> int:
    """Return the bytes of `count` elements in ONNX's raw form, where types under 8 bits are packed."""
    if dtype in _BITS:
        return -(-count * _BITS[dtype] // 8)
    return count * helper.tensor_dtype_to_np_dtype(NUMBERS[dtype]).itemsize


def tensor_problem(tensor: TensorProto, external: bool = False) -> str:
    """Describe the error in a tensor's declaration or data; "" if it is valid. Only the size of the data is
    checked.

    With `external`, data that lies in a file beside the model counts as right: it is checked when it is read.
    So does what `opsieve.gen.model.detached` keeps, if it is as long as it should be.
    """
    dtype = DTYPES.get(tensor.data_type, "")
    if not dtype:
        return f"has the unknown element type {tensor.data_type}"
    if tensor.HasField("segment"):
        return "is split into segments, which no tool reads"
    count = elements(tensor.dims)
    if count < 0 or len(tensor.dims) > BUDGET.rank:
        return f"has the shape {shown(list(tensor.dims[: BUDGET.rank + 1]))}"
    if count > BUDGET.elements:
        return f"declares {count if count < 10**30 else 'over 10^30'} elements"
    counts = {field: size for field in _FIELDS if (size := len(getattr(tensor, field)))}
    raw = tensor.HasField("raw_data")
    if tensor.data_location == TensorProto.EXTERNAL:
        if dtype == "string" or raw or counts:
            return "has both external and inline data, or external strings"
        part = part_of(tensor)
        if part is None:
            return "" if external else "has its data in another file"
        wanted = data_size(dtype, count)
        return "" if len(part) == wanted else _disagreement(tensor, wanted, len(part), "bytes")
    if raw:
        wanted, found, unit = data_size(dtype, count), len(tensor.raw_data), "bytes"
        if dtype == "string" or counts:
            return "holds its data in more than one field, or strings as raw bytes"
        return "" if found == wanted else _disagreement(tensor, wanted, found, unit)
    field = helper.tensor_dtype_to_field(tensor.data_type)
    if set(counts) - {field}:
        return f"holds its data in a field that is not for {dtype}"
    least, most = _entries(dtype, count)
    found = counts.get(field, 0)
    return "" if least <= found <= most else _disagreement(tensor, most, found, "entries")


def read_tensor(tensor: TensorProto) -> np.ndarray[Any, Any]:
    """Return a tensor's value, in its shape (0-d stays 0-d), read-only where its data is mapped; BadInput
    when its declaration and its data disagree.
    """
    problem = tensor_problem(tensor)
    if problem:
        raise BadInput(f"tensor {shown(tensor.name)} {problem}")
    shape = tuple(tensor.dims)
    if tensor.data_type == TensorProto.STRING:
        texts = np.empty(len(tensor.string_data), dtype=object)
        texts[:] = [item.decode("utf-8", "surrogateescape") for item in tensor.string_data]
        return texts.reshape(shape)
    part = part_of(tensor)
    if part is not None and DTYPES[tensor.data_type] not in _BITS:
        return np.frombuffer(part.view(), helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(shape)
    # Elements of less than 8 bits are packed, so they cannot be mapped.
    if part is not None:
        tensor = TensorProto(data_type=tensor.data_type, dims=shape, raw_data=part.view().tobytes())
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise BadInput(f"tensor {shown(tensor.name)} cannot be read: {shown(str(error), 120)}") from None
    return np.asarray(array).reshape(shape)


def write_tensor(array: np.ndarray[Any, Any], name: str = "") -> TensorProto:
    """Return a TensorProto of an array, its data in the raw form (strings as UTF-8)."""
    if array.dtype.kind not in "OUS":
        return numpy_helper.from_array(np.asarray(array), name)
    texts = [
        item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
        for item in array.ravel()
    ]
    return TensorProto(name=name, data_type=TensorProto.STRING, dims=array.shape, string_data=texts)


def decode(message: M, data: bytes) -> M | None:
    """Fill `message` from protobuf bytes; `None` for malformed ones. MemoryError, protobuf's DecodeError."""
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        if "alloc" not in str(error):
            return None
        raise MemoryError from None
    return message


def read_value(data: bytes, type_: ValueType) -> Value:
    """Read a value of type `type_` from ONNX's `*.pb` bytes. Raises BadInput for anything else."""
    if isinstance(type_, TensorType):
        return read_tensor(_decode_message(TensorProto(), data, type_))
    if isinstance(type_, SequenceType):
        return _read_sequence(_decode_message(onnx.SequenceProto(), data, type_))
    if isinstance(type_, OptionalType):
        return _read_optional(_decode_message(onnx.OptionalProto(), data, type_))
    raise BadInput(f"a value of type {type_} cannot be kept in a case")


def write_value(value: Value, type_: ValueType, name: str = "") -> bytes:
    """Return ONNX's `*.pb` bytes of a value; equal values give equal bytes."""
    proto: TensorProto | onnx.SequenceProto | onnx.OptionalProto
    if isinstance(type_, TensorType):
        proto = write_tensor(np.asarray(value), name)
    elif isinstance(type_, SequenceType):
        proto = _write_sequence(value, type_, name)
    elif isinstance(type_, OptionalType):
        proto = _write_optional(value, type_, name)
    else:
        raise BadInput(f"a value of type {type_} cannot be kept in a case")
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def misfit(value: Value, type_: ValueType) -> str:
    """Explain why a value does not have the type `type_`, "" if it does. Symbolic and unknown dimensions fit
    any size.
    """
    if isinstance(type_, OptionalType):
        return "" if value is None else misfit(value, type_.element)
    if isinstance(type_, SequenceType):
        if not isinstance(value, list):
            return f"is no sequence, but {type_} is wanted"
        found = (
            f"has an element {index} that {problem}"
            for index, item in enumerate(value)
            if (problem := misfit(item, type_.element))
        )
        return next(found, "")
    if isinstance(type_, OtherType):
        return f"would have to be a {type_.kind}, which opsieve cannot feed"
    # numpy returns scalars for tensors without dimensions.
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return f"is no tensor, but {type_} is wanted"
    dtype = dtype_name(value)
    if type_.dtype and dtype != type_.dtype:
        return f"is {dtype}, but {type_.dtype} is wanted"
    if type_.shape is not None and not _fits(value.shape, type_.shape):
        return f"has the shape {shown(value.shape)}, but {type_} is wanted"
    return ""


def dtype_name(array: np.ndarray[Any, Any]) -> str:
    """Return the name of an array's dtype, `string` for text."""
    return "string" if array.dtype.kind in "OUS" else array.dtype.name


def _fits(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        not isinstance(want, int) or size == want for size, want in zip(shape, wanted, strict=True)
    )


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.WhichOneof("value") == "dim_value":
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _entries(dtype: str, count: int) -> tuple[int, int]:
    """Return the least and the most entries that a typed data field holds for `count` elements.

    onnx packs types of 2 and 4 bits into one byte per int32 entry, its checker counts four bytes per entry.
    """
    if dtype.startswith("complex"):
        return 2 * count, 2 * count
    if dtype in _BITS and _BITS[dtype] != 6:
        return -(-data_size(dtype, count) // 4), data_size(dtype, count)
    return count, count


def _decode_message(message: M, data: bytes, type_: ValueType) -> M:
    decoded = decode(message, data)
    if decoded is None:
        raise BadInput(f"the bytes are no {type_} in ONNX's protobuf form")
    return decoded


def _disagreement(tensor: TensorProto, wanted: int, found: int, unit: str) -> str:
    return (
        f"declares the shape {shown(list(tensor.dims[:12]))}, which takes {wanted} {unit}, but holds {found}"
    )


def _read_sequence(proto: onnx.SequenceProto) -> list[Value]:
    if proto.elem_type == onnx.SequenceProto.TENSOR:
        return [read_tensor(item) for item in proto.tensor_values]
    if proto.elem_type == onnx.SequenceProto.SEQUENCE:
        return [_read_sequence(item) for item in proto.sequence_values]
    if proto.elem_type == onnx.SequenceProto.OPTIONAL:
        return [_read_optional(item) for item in proto.optional_values]
    raise BadInput("a sequence of maps or sparse tensors cannot be kept in a case")


def _read_optional(proto: onnx.OptionalProto) -> Value:
    if proto.HasField("tensor_value"):
        return read_tensor(proto.tensor_value)
    if proto.HasField("sequence_value"):
        return _read_sequence(proto.sequence_value)
    if proto.HasField("optional_value"):
        return _read_optional(proto.optional_value)
    if proto.HasField("map_value") or proto.HasField("sparse_tensor_value"):
        raise BadInput("an optional map or sparse tensor cannot be kept in a case")
    return None


def _write_sequence(value: list[Value], type_: SequenceType, name: str) -> onnx.SequenceProto:
    proto = onnx.SequenceProto(name=name)
    element = type_.element
    if isinstance(element, SequenceType):
        proto.elem_type = onnx.SequenceProto.SEQUENCE
        proto.sequence_values.extend(_write_sequence(item, element, "") for item in value)
    elif isinstance(element, OptionalType):
        proto.elem_type = onnx.SequenceProto.OPTIONAL
        proto.optional_values.extend(_write_optional(item, element, "") for item in value)
    elif isinstance(element, TensorType):
        proto.elem_type = onnx.SequenceProto.TENSOR
        proto.tensor_values.extend(write_tensor(np.asarray(item)) for item in value)
    else:
        raise BadInput(f"a value of type {type_} cannot be kept in a case")
    return proto


def _write_optional(value: Value, type_: OptionalType, name: str) -> onnx.OptionalProto:
    proto = onnx.OptionalProto(name=name)
    element = type_.element
    if isinstance(element, SequenceType):
        proto.elem_type = onnx.OptionalProto.SEQUENCE
        if value is not None:
            proto.sequence_value.CopyFrom(_write_sequence(value, element, ""))
    elif isinstance(element, TensorType):
        proto.elem_type = onnx.OptionalProto.TENSOR
        if value is not None:
            proto.tensor_value.CopyFrom(write_tensor(np.asarray(value)))
    else:
        raise BadInput(f"a value of type {type_} cannot be kept in a case")
    return proto
