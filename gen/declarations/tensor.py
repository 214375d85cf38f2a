"""Values of a program as rules read them: element types, sets of numbers, tensors, and rules for inputs.

A rule draws inputs that the user did not supply: an index lies inside its axis, a shape fits the data. Each
declaration has its own (`Operator.usual`); this module has their common parts. Sources: the ONNX operator
documentation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from opsieve.gen.declarations.symbolic_arith import Size
from opsieve.gen.model.tensors import NUMBERS

Shape = tuple[int, ...]
# Integers stay integers, exact beyond 2**53, and may be open sizes.
Number = float | Size


@dataclass(frozen=True, slots=True)
class Domain:
    """Numbers from `low` to `high`, both included, without 0 if `nonzero`; or, if given, `exact` numbers in
    this order.

    `numeral` asks of a string that it reads as a number. An end may be an open size while sizes are open
    (gen/strategies/nnsmith).
    """

    low: Number = -math.inf
    high: Number = math.inf
    nonzero: bool = False
    exact: tuple[float, ...] | None = None
    numeral: bool = False

    def meet(self, other: "Domain") -> "Domain":
        """Intersect two domains; `self` wins where they contradict each other."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low > high:
            low, high = self.low, self.high
        exact = other.exact if self.exact is None else self.exact
        return Domain(low, high, self.nonzero or other.nonzero, exact, self.numeral or other.numeral)

    def drop_order(self) -> "Domain":
        """Return the same numbers in any order."""
        if not self.exact:
            return Domain(self.low, self.high, self.nonzero, None, self.numeral)
        return Domain(min(self.exact), max(self.exact), self.nonzero)


@dataclass(frozen=True, slots=True)
class Site:
    """A use of a value: the node, the position among its inputs, and the known shapes and constants around
    it.
    """

    node: onnx.NodeProto
    position: int
    shapes: Mapping[str, Shape | None]
    constants: Mapping[str, np.ndarray[Any, Any]]

    def shape(self, position: int) -> Shape | None:
        """Return the shape of the node's input at `position`; `None` if it is unknown or absent."""
        return self.shapes.get(self.node.input[position]) if position < len(self.node.input) else None

    def output(self, position: int = 0) -> Shape | None:
        """Return the shape of an output; `None` if it is unknown."""
        return self.shapes.get(self.node.output[position]) if position < len(self.node.output) else None

    def constant(self, position: int) -> list[int] | None:
        """Return the integers of an input that is constant."""
        name = self.node.input[position] if position < len(self.node.input) else ""
        return [int(item) for item in self.constants[name].ravel()] if name in self.constants else None

    def attribute(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        return next((item.i for item in self.node.attribute if item.name == name), default)

    @property
    def length(self) -> int:
        """The number of elements of the value, 1 if unknown."""
        shape = self.shape(self.position)
        return 1 if shape is None else math.prod(shape)


Rule = Callable[[Site], Domain]
ANY: Final = Domain()


def exact(values: Sequence[float]) -> Domain:
    """These numbers in this order."""
    return Domain(exact=tuple(values))


def below(size: int | None) -> Domain:
    """Positions in an axis of this size; 0 where it is not known."""
    return Domain(0, max(size - 1, 0)) if size is not None else Domain(0, 0)


def size_of(shape: Shape | None, axis: int) -> int | None:
    """Return the size of an axis; `None` if it is unknown or absent."""
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def axis_index(default: int) -> Rule:
    """Positions in the axis of the first input that the attribute `axis` names."""
    return lambda site: below(size_of(site.shape(0), site.attribute("axis", default)))


def dim_index(position: int, axis: int) -> Rule:
    """Positions in one axis of an input."""
    return lambda site: below(size_of(site.shape(position), axis))


def like_output(fallback: Domain) -> Rule:
    """Draw the sizes of the first output, if it has one element per dimension."""

    def rule(site: Site) -> Domain:
        out = site.output()
        return exact(out) if out is not None and len(out) == site.length else fallback

    return rule


def lengths(attribute: str, default: int) -> Rule:
    """Return how many steps each sequence of a batch has: at most those of the first input's axis that the
    attribute names.
    """
    return lambda site: Domain(1, max(size_of(site.shape(0), site.attribute(attribute, default)) or 1, 1))


def every_axis(site: Site) -> Domain:
    """Return the first axes, as many as there are elements."""
    return exact(range(site.length))


# Away from 0, where quotients and logarithms magnify rounding, and small enough for products of several
# factors in float16.
POSITIVE: Final = Domain(0.01, 2)
ZERO: Final = Domain(0, 0)


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
    **{name: 0.0 if name.startswith("u") or name == "bool" else -most for name, most in LARGEST.items()},
    **{"int8": -128.0, "int16": -32768.0, "int4": -8.0, "int2": -2.0},
}

# Where values of leaves are drawn from, when nothing else is asked: small numbers keep long chains inside
# their types.
USUAL: dict[str, tuple[float, float]] = {
    **dict.fromkeys(LARGEST, (-2.0, 2.0)),
    **dict.fromkeys(SIGNED, (-8.0, 8.0)),
    **dict.fromkeys(UNSIGNED, (0.0, 12.0)),
    **{"bool": (0.0, 1.0), "string": (0.0, 0.0), "int4": (-8.0, 7.0), "uint4": (0.0, 15.0)},
    **{"int2": (-2.0, 1.0), "uint2": (0.0, 3.0)},
}

# The dtype's name -> ONNX's number of it
NUMBER: Final = NUMBERS


def is_float(dtype: str) -> bool:
    """Return whether elements are floating-point numbers, narrow ones included."""
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


# int, float, str, list of one of these, numpy array (a tensor), BodyGraph
Attributes = dict[str, Any]
# A size may also be a name, for a size that only a run determines.
Typed = tuple[str, tuple[Size, ...]]
Bounds = tuple[float, float]
# Counts as zero: ends of intervals are rounded (sin(pi) is not 0), and float16 has nothing below 6e-8.
_TINY: Final = 1e-6
# Relative steps of the types that generated programs compute in.
_STEPS: Final = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}


def _is_rounded(value: float, end: float, dtype: str) -> bool:
    """Return whether a value is the end of a domain, as its type rounds it."""
    return abs(value - end) <= _STEPS.get(dtype, 0.0) * abs(end) < math.inf


class Tensor:
    """A value of a program: its name, its type, an interval that holds all its elements, and how often it is
    read.

    `values` are its elements where an operator needs to know them (a shape, axes, pads), row by row; else
    None. `dtype` may also be `sequence(float32)` or `optional(float32)`; then `shape` is that of the
    elements. `leaf` is "" for the output of a node, else `input`, `initializer` or `constant` (a Constant
    node). `depth` is how many nodes the longest path to it has.
    """

    __slots__ = ("depth", "dtype", "high", "leaf", "low", "name", "reads", "shape", "values")

    def __init__(
        self,
        name: str,
        dtype: str,
        shape: tuple[Size, ...],
        low: float = 0.0,
        high: float = 0.0,
        values: tuple[Number, ...] | None = None,
        leaf: str = "",
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.low = low
        self.high = high
        self.values = values
        self.leaf = leaf
        self.reads = 0
        self.depth = 0

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> float:
        """The largest magnitude an element can have."""
        return max(-self.low, self.high)

    def within(self, domain: Domain) -> bool:
        """Return whether every element lies in a domain, whose ends are rounded as the type rounds them."""
        return (
            (domain.low <= self.low or _is_rounded(self.low, domain.low, self.dtype))
            and (self.high <= domain.high or _is_rounded(self.high, domain.high, self.dtype))
            and not (domain.nonzero and self.low < _TINY and self.high > -_TINY)
        )

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} in {self.low:g}..{self.high:g}"


# An omitted optional input is None: rules that read one use `optional`.
Ins = Sequence[Tensor]


def optional(ins: Sequence[Tensor | None], position: int) -> Tensor | None:
    """Return an input that may have been left out, in the middle or at the end."""
    return ins[position] if position < len(ins) else None
