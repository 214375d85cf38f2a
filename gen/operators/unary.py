"""Elementwise operators with one input, and the interval of each result.

Sources: the ONNX operator pages.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opsieve.gen.declarations import declaration, instance
from opsieve.gen.declarations.properties import (
    Rounding,
    nan_element,
    overflow,
)
from opsieve.gen.declarations.tensor import ANY, SIGNED, Bounds, Domain, Ins

Interval = Callable[[float, float], Bounds]


def rising(function: Callable[[float], float]) -> Interval:
    """Make the interval rule of a function that never falls."""
    return lambda low, high: (function(low), function(high))


def constant_interval(low: float, high: float) -> Interval:
    """Make an interval that does not depend on the input."""
    return lambda _low, _high: (low, high)


def absolute(low: float, high: float) -> Bounds:
    """Return the interval of magnitudes."""
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high)), max(-low, high))


def _positive(x: float) -> float:
    return x if x > 0 else 0.0


def falling(function: Callable[[float], float]) -> Interval:
    """Make the interval rule of a function that never rises."""
    return lambda low, high: (function(high), function(low))


def above(least: float, slope: float, most: float = 1.0) -> Interval:
    """Make the interval rule of an activation that dips to `least`, and lies between `slope` and `most` times
    a positive operand.
    """
    return lambda low, high: (slope * low if low >= 0 else least, most * _positive(high))


def _wave(low: float, high: float, crest: float) -> Bounds:
    """Return the interval of a cosine that is shifted to have a crest at `crest`."""
    turn = 2 * math.pi
    peak = math.floor((high - crest) / turn) * turn + crest >= low
    dip = math.floor((high - crest - math.pi) / turn) * turn + crest + math.pi >= low
    ends = (math.cos(low - crest), math.cos(high - crest))
    return (-1.0 if dip else min(ends), 1.0 if peak else max(ends))


def _cosh(low: float, high: float) -> Bounds:
    near, far = absolute(low, high)
    return math.cosh(near), math.cosh(far)


def unary(
    name: str, interval: Interval, safe: Domain = ANY, parts: tuple[instance.Part, ...] = (), **more: Any
) -> declaration.Operator:
    """Return an operator with one input, whose result has the same type."""

    def bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
        return interval(ins[0].low, ins[0].high)

    return declaration.Operator(
        name,
        parts=parts,
        bounds=bounds,
        safe=(safe,) if safe is not ANY else (),
        family="unary",
        symbolic=True,
        **more,
    )


def _leaky(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    slope = attrs.get("alpha", 0.01)
    low, high = ins[0].low, ins[0].high
    ends = (
        low if low > 0 else slope * low,
        high if high > 0 else slope * high,
        0.0 if low < 0 < high else low if low > 0 else slope * low,
    )
    return min(ends), max(ends)


def _hard_sigmoid(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    slope, middle = attrs.get("alpha", 0.2), attrs.get("beta", 0.5)
    ends = (slope * ins[0].low + middle, slope * ins[0].high + middle)
    return min(max(min(ends), 0.0), 1.0), min(max(max(ends), 0.0), 1.0)


UNARY = (
    unary("Abs", absolute, undefined=(overflow(np.abs),), rounding=Rounding.EXACT),
    # The derivative is infinite at -1 and 1, where a rounding error of the operand would grow without bound.
    unary("Acos", falling(math.acos), Domain(-0.95, 0.95)),
    # As above: the derivative is infinite at 1.
    unary("Acosh", rising(math.acosh), Domain(1.05, 1e4)),
    unary("Asin", rising(math.asin), Domain(-0.95, 0.95)),
    unary("Asinh", rising(math.asinh)),
    unary("Atan", rising(math.atan)),
    unary("Atanh", rising(math.atanh), Domain(-0.95, 0.95)),
    unary("Ceil", rising(math.ceil), rounding=Rounding.EXACT | Rounding.JUMPS),
    unary(
        "Celu",
        lambda low, high: (min(low, -2.0) if low < 0 else low, _positive(high)),
        parts=(instance.Attr("alpha", (0.5, 2.0), 0.5),),
        undefined=(nan_element,),
        rounding=Rounding.BOUNDED,
    ),
    # Reduction of large angles to one turn loses digits, differently in each compiler.
    unary("Cos", lambda low, high: _wave(low, high, 0.0), Domain(-30, 30)),
    unary("Cosh", _cosh, Domain(-5, 5)),
    unary(
        "Elu",
        above(-2.0, 1.0),
        parts=(instance.Attr("alpha", (0.5, 2.0), 0.5),),
        undefined=(nan_element,),
        rounding=Rounding.BOUNDED,
    ),
    unary("Erf", rising(math.erf), rounding=Rounding.BOUNDED),
    # exp(5) is 148, so that the product of two results still fits float16.
    unary("Exp", rising(math.exp), Domain(-20, 5)),
    unary("Floor", rising(math.floor), rounding=Rounding.EXACT | Rounding.JUMPS),
    unary("Gelu", above(-0.2, 0.5), parts=(instance.Attr("approximate", ("tanh", "none"), 0.5),)),
    declaration.Operator(
        "HardSigmoid",
        parts=(instance.Attr("alpha", (0.1, 0.5), 0.5),),
        bounds=_hard_sigmoid,
        family="unary",
        undefined=(nan_element,),
        symbolic=True,
    ),
    unary("HardSwish", above(-0.4, 0.5), undefined=(nan_element,)),
    unary(
        "Identity", lambda low, high: (low, high), moves=declaration.Moves.IN_ORDER, rounding=Rounding.EXACT
    ),
    # Near 0 a small error of the operand becomes a large one of the logarithm.
    unary("Log", rising(math.log), Domain(0.1, 1e8), usual={0: Domain(0.1, 8)}),
    unary("Mish", above(-0.4, 0.6)),
    unary(
        "Neg", lambda low, high: (-high, -low), undefined=(overflow(np.negative),), rounding=Rounding.EXACT
    ),
    unary("Reciprocal", lambda low, high: (1 / high, 1 / low), Domain(0.1, 1e4)),
    unary("Relu", rising(_positive), undefined=(nan_element,), rounding=Rounding.EXACT),
    unary("Round", rising(round), rounding=Rounding.EXACT | Rounding.JUMPS),
    unary("Selu", above(-1.8, 1.05, 1.06), undefined=(nan_element,), rounding=Rounding.BOUNDED),
    unary(
        "Sigmoid", rising(lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0), rounding=Rounding.BOUNDED
    ),
    unary(
        "Sign",
        rising(lambda x: float((x > 0) - (x < 0))),
        undefined=(nan_element,),
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
    unary("Sin", lambda low, high: _wave(low, high, math.pi / 2), Domain(-30, 30)),
    unary("Sinh", rising(math.sinh), Domain(-5, 5)),
    unary("Softplus", rising(lambda x: x if x > 30 else math.log1p(math.exp(x))), rounding=Rounding.BOUNDED),
    unary("Softsign", rising(lambda x: x / (1 + abs(x)))),
    unary("Sqrt", rising(math.sqrt), Domain(0.01, 1e8)),
    # Inside of the poles at -pi/2 and pi/2.
    unary("Tan", rising(math.tan), Domain(-1.5, 1.5)),
    unary("Tanh", rising(math.tanh), rounding=Rounding.BOUNDED),
    unary(
        "ThresholdedRelu",
        lambda low, high: (0.0, _positive(high)),
        parts=(instance.Attr("alpha", (0.0, 0.5, 2.0), 0.5),),
        undefined=(nan_element,),
        rounding=Rounding.JUMPS,
    ),
    unary("Not", constant_interval(0, 1), rounding=Rounding.EXACT),
    unary("BitwiseNot", lambda low, high: (-high - 1, -low - 1), dtypes=SIGNED),
    declaration.Operator(
        "LeakyRelu",
        parts=(instance.Attr("alpha", (0.1, 0.5, 1.5), 0.5),),
        bounds=_leaky,
        family="unary",
        undefined=(nan_element,),
        symbolic=True,
    ),
)
