"""What becomes of a rounding error in an operator: where a difference behind it may be honest, the judge asks
this.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any

from opsieve.gen.declarations.dtype_facts import NUMBER


class Rounding(enum.Flag):
    """What an operator does with an error in its inputs, and whether it adds one of its own. Most do neither
    of these.
    """

    NONE = 0
    EXACT = enum.auto()  # values pass on without rounding
    JUMPS = enum.auto()  # near some values, the smallest error can become any difference behind it
    # it adds terms up, which may cancel: its own error is relative to the largest of them, not to what they
    # amount to
    SUMS = enum.auto()
    # Computed by way of numbers around 1 (an exponential less 1, a share of 1): its own error is absolute.
    BOUNDED = enum.auto()
    _INSIDE = enum.auto()
    _SCALES = enum.auto()
    # It computes before it jumps: the value that goes in does not tell on which side it falls.
    COMPUTES = JUMPS | _INSIDE
    # An integer by a quotient of scales: float32 in a compiler, and x.5 falls to either side.
    REQUANTISES = COMPUTES | _SCALES


# by the attributes of a node and how many outputs it has
RoundingRule = Callable[[Mapping[str, Any], int], Rounding]
# narrower ones are steps
_FLOATS = frozenset(NUMBER[dtype] for dtype in ("float32", "float16", "bfloat16", "float64"))


def cast_rounding(attrs: Mapping[str, Any], outputs: int) -> Rounding:
    """A Cast jumps where it gives no floating-point numbers."""
    return Rounding.NONE if attrs.get("to") in _FLOATS else Rounding.JUMPS
