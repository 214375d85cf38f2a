"""What declarations of operators that move elements share.

Sources: the ONNX operator pages.
"""

from collections.abc import Mapping
from typing import Any

from opsieve.gen.declarations.builder import Builder
from opsieve.gen.declarations.declaration import Operator, hull
from opsieve.gen.declarations.symbolic_arith import (
    divisors,
)
from opsieve.gen.declarations.tensor import Bounds, Ins, Tensor


def values_of(tensor: Tensor) -> list[Any]:
    """The elements of a tensor that a rule has to know: int-like, as sizes are."""
    assert tensor.values is not None
    return [int(value) if type(value) is float else value for value in tensor.values]


def sides_for(builder: Builder, count: int) -> list[int]:
    """Sizes whose product is `count`."""
    rng, left, sides = builder.rng, count, list[int]()
    for _ in range(rng.below(4)):
        side = rng.choice(divisors(left))
        sides.append(side)
        left //= side
    sides.insert(rng.below(len(sides) + 1), left)
    return sides


def all_hull(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """The interval of all inputs together."""
    return min(t.low for t in ins), max(t.high for t in ins)


def with_zero(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """The interval of the first input and zero."""
    return min(ins[0].low, 0.0), max(ins[0].high, 0.0)


def layout(name: str, **more: Any) -> Operator:
    """An operator that moves elements."""
    return Operator(name, family=more.pop("family", "layout"), bounds=more.pop("bounds", hull), **more)
