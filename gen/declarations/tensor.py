"""A value of a program as rules read it, and the types that rules give and take."""

import math
from collections.abc import Sequence
from typing import Any, Final

from opsieve.gen.declarations.domains import Domain, Number
from opsieve.gen.declarations.symbolic_arith import Size

Attributes = dict[str, Any]  # int, float, str, list of one of these, numpy array (a tensor), BodyGraph
Typed = tuple[str, tuple[Size, ...]]  # a size may also be a name: one that only a run tells
Bounds = tuple[float, float]
# As good as zero: ends of intervals are rounded (a sine of 0 is none), and float16 has nothing below 6e-8.
_TINY: Final = 1e-6
# Relative steps of the types that generated programs compute in.
_STEPS: Final = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}


def _is_rounded(value: float, end: float, dtype: str) -> bool:
    """Whether a value is the end of a domain, as its type rounds it."""
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
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> float:
        """The largest magnitude an element can have."""
        return max(-self.low, self.high)

    def within(self, domain: Domain) -> bool:
        """Whether every element lies in a domain, whose ends are rounded as the type rounds them."""
        return (
            (domain.low <= self.low or _is_rounded(self.low, domain.low, self.dtype))
            and (self.high <= domain.high or _is_rounded(self.high, domain.high, self.dtype))
            and not (domain.nonzero and self.low < _TINY and self.high > -_TINY)
        )

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} in {self.low:g}..{self.high:g}"


Ins = Sequence[Tensor]  # an optional input that is left out is None: rules that look at one ask `optional`


def optional(ins: Sequence[Tensor | None], position: int) -> Tensor | None:
    """An input that may have been left out, in the middle or at the end."""
    return ins[position] if position < len(ins) else None
