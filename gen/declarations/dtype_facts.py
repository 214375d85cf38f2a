"""What is known of each element type while a program is generated: names, sizes of values, the numbers that
ONNX gives them.
"""

from typing import Final

from opsieve.gen.declarations.domains import Domain
from opsieve.gen.model.tensors import NUMBERS

FLOATS: Final = ("float32", "float16", "float64", "bfloat16")
SIGNED: Final = ("int64", "int32", "int16", "int8")
UNSIGNED: Final = ("uint64", "uint32", "uint16", "uint8")
INTEGERS: Final = (*SIGNED, *UNSIGNED)
NUMERIC: Final = (*FLOATS, *INTEGERS)
PLAIN: Final = (*NUMERIC, "bool")

# The largest magnitude that generated values may reach: a sum or product of two neighbours still has room in
# its type, and an integer stays exact as a float32 nearly always. Of narrow integers all values are in use.
LARGEST: Final[dict[str, float]] = {
    "float64": 1e8,
    "float32": 1e5,
    "bfloat16": 1e4,
    "float16": 512.0,
    "int64": 2.0**40,
    "uint64": 2.0**40,
    "int32": 2.0**24,
    "uint32": 2.0**24,
    "int16": 32767.0,
    "uint16": 65535.0,
    "int8": 127.0,
    "uint8": 255.0,
    "int4": 7.0,
    "uint4": 15.0,
    "int2": 1.0,
    "uint2": 3.0,
    "bool": 1.0,
    "float8_e4m3fn": 240.0,
    "float8_e4m3fnuz": 120.0,
    "float8_e5m2": 1024.0,
    "float8_e5m2fnuz": 1024.0,
    "float4_e2m1fn": 6.0,
    "string": 0.0,
}
LEAST: dict[str, float] = {
    dtype: 0.0 if dtype.startswith("u") or dtype == "bool" else -largest for dtype, largest in LARGEST.items()
}
LEAST |= {"int8": -128.0, "int16": -32768.0, "int4": -8.0, "int2": -2.0}

# Where values of leaves are drawn from, when nothing else is asked: small numbers keep long chains inside
# their types.
USUAL: dict[str, tuple[float, float]] = dict.fromkeys(LARGEST, (-2.0, 2.0))
USUAL |= dict.fromkeys(SIGNED, (-8.0, 8.0))
USUAL |= dict.fromkeys(UNSIGNED, (0.0, 12.0))
USUAL |= {"bool": (0.0, 1.0), "string": (0.0, 0.0), "int4": (-8.0, 7.0), "uint4": (0.0, 15.0)}
USUAL |= {"int2": (-2.0, 1.0), "uint2": (0.0, 3.0)}

NUMBER: Final = NUMBERS  # the dtype's name -> ONNX's number of it


def is_float(dtype: str) -> bool:
    """Whether elements are floating-point numbers, narrow ones included."""
    return "float" in dtype


def leaf_range(dtype: str, domain: Domain) -> tuple[float, float]:
    """Where the elements of a new leaf are drawn from: the usual window of the dtype, slid into the domain as
    little as need be.
    """
    low, high = USUAL.get(dtype, (0.0, 0.0))
    least, largest = max(domain.low, LEAST.get(dtype, low)), min(domain.high, LARGEST.get(dtype, high))
    if domain.nonzero and low <= 0 <= high:
        low, high = 0.5 if is_float(dtype) else 1.0, max(high, 2.0)
        least = max(least, min(low, largest))
    width = high - low
    low = max(min(low, largest - width), least)
    return low, min(low + width, largest)
