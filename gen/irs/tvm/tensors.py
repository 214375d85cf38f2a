"""The constants of a graph: TVM's base64 of a tensor, with shape and element type.

The bytes are those of TVM's `SaveDLTensor`: magic, reserved, device, rank, element type (code, bits, lanes),
dimensions, size and data, little-endian.
"""

import base64
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode

# TVM's own magic number of serialised tensors (`kTVMNDArrayMagic` in ndarray.h).
_MAGIC = 0xDD5E40F096B4A13F
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
_CODES |= {"float8_e4m3fn": 10, "float8_e5m2": 12}
_NAMES = {code: name for name, code in _CODES.items()}
# Magic, reserved, device type and id, rank, then the element type: code, bits, lanes.
_HEAD = struct.Struct("<QQiiiBBH")


@dataclass(frozen=True, slots=True)
class Array:
    """A dense tensor: element type (TVM's name), shape, and the bytes of its elements, row by row,
    little-endian.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        wanted = math.prod(self.shape) * width(self.dtype)
        if len(self.data) != wanted:
            raise ValueError(
                f"a tensor of {self.dtype} {list(self.shape)} has {wanted} bytes, not {len(self.data)}"
            )


def to_numpy(array: Array) -> "np.ndarray[Any, Any] | None":
    """Return the elements of a constant; `None` for an element type that numpy lacks."""
    try:
        return np.frombuffer(array.data, np.dtype(array.dtype)).reshape(array.shape)
    except TypeError:
        # numpy has no name for some of TVM's dtypes, such as 4-bit floats.
        return None


def width(dtype: str) -> int:
    """Bytes of an element. Raises ValueError for a type that is not made of whole bytes or not known."""
    bits = _code(dtype)[1]
    if bits % 8:
        raise ValueError(f"a constant of {dtype} cannot be written")
    return bits // 8


def _code(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return _CODES["bool"], 8
    # float8_e4m3fn
    if dtype in _CODES:
        return _CODES[dtype], 8
    found = re.fullmatch(r"(int|uint|float|bfloat)(\d{1,3})", dtype)
    if found is None:
        raise ValueError(f"{dtype[:40]!r} is no element type of a constant")
    return _CODES[found[1]], int(found[2])


def to_node(array: Array) -> ObjectNode:
    """Return the node of a tensor (`ffi.Tensor`)."""
    code, bits = _code(array.dtype)
    head = _HEAD.pack(_MAGIC, 0, 1, 0, len(array.shape), code, bits, 1)
    body = struct.pack(f"<{len(array.shape)}qq", *array.shape, len(array.data))
    return ObjectNode("ffi.Tensor", raw=base64.b64encode(head + body + array.data).decode())


def from_node(node: ObjectNode) -> Array:
    """Return the tensor of a node.

    Raises:
        MalformedGraph: the bytes do not make a tensor, or its element type is unknown.
    """
    try:
        raw = base64.b64decode(node.raw, validate=True)
        magic, _, _, _, rank, code, bits, lanes = _HEAD.unpack_from(raw)
        if magic != _MAGIC or lanes != 1 or not 0 <= rank <= 16:
            raise ValueError("not a tensor of plain elements")
        numbers = struct.unpack_from(f"<{rank + 1}q", raw, _HEAD.size)
        name = _NAMES[code]
        dtype = name if name == "bool" or "_" in name else f"{name}{bits}"
        if any(size < 0 for size in numbers):
            raise ValueError("negative size")
        return Array(dtype, tuple(numbers[:-1]), raw[_HEAD.size + 8 * (rank + 1) :])
    except (ValueError, KeyError, struct.error, TypeError) as error:
        raise MalformedGraph(f"a constant of the graph cannot be read: {str(error)[:120]}") from None
