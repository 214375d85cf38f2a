"""Spellings of operators that compute each element alone."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.spellings.spelling import (
    Onnx,
    SpelledCall,
    Spelling,
    cast_to,
    is_float,
    reshape_to,
    spell_pair,
    spell_unary,
    to_constant,
    to_integers,
)


def _spell_rounding(operator: str) -> Spelling:
    """Spell a rounding: ONNX's operators take floats only, and integers need none."""
    return spell_unary(lambda onnx, x: onnx(operator if is_float(x) else "Identity", x))


def _trunc(onnx: Onnx, x: Any) -> Any:
    if not is_float(x):
        return onnx("Identity", x)
    return onnx("Where", onnx("Less", x, to_constant(x, 0)), onnx("Ceil", x), onnx("Floor", x))


def _relu(onnx: Onnx, x: Any) -> Any:
    # Relu takes integers only since opset 14.
    return onnx("Relu", x) if is_float(x) else onnx("Max", x, to_constant(x, 0))


def _gelu(onnx: Onnx, x: Any) -> Any:
    return _halved_product(onnx, x, onnx("Erf", onnx("Mul", x, to_constant(x, 1 / math.sqrt(2)))))


def _gelu_tanh(onnx: Onnx, x: Any) -> Any:
    cube = onnx("Mul", onnx("Mul", x, x), x)
    inner = onnx("Add", x, onnx("Mul", cube, to_constant(x, 0.044715)))
    return _halved_product(onnx, x, onnx("Tanh", onnx("Mul", inner, to_constant(x, math.sqrt(2 / math.pi)))))


def _halved_product(onnx: Onnx, x: Any, inner: Any) -> Any:
    """x (1 + inner) / 2."""
    return onnx("Mul", onnx("Mul", x, to_constant(x, 0.5)), onnx("Add", inner, to_constant(x, 1)))


def _selu(onnx: Onnx, x: Any) -> Any:
    below = onnx("Sub", onnx("Exp", onnx("Min", x, to_constant(x, 0))), to_constant(x, 1))
    # The constants of the paper (Klambauer et al., "Self-normalizing neural networks", 2017).
    steep = onnx("Mul", below, to_constant(x, 1.6732632423543772))
    curve = onnx("Where", onnx("Greater", x, to_constant(x, 0)), x, steep)
    return onnx("Mul", curve, to_constant(x, 1.0507009873554805))


def _floor_divide(onnx: Onnx, x: Any, y: Any) -> Any:
    if is_float(x):
        return onnx("Floor", onnx("Div", x, y))
    # ONNX's Div of integers truncates; less its remainder, which has the sign of the divisor, x divides
    # exactly.
    return onnx("Div", onnx("Sub", x, onnx("Mod", x, y)), y)


def _floor_mod(onnx: Onnx, x: Any, y: Any) -> Any:
    if not is_float(x):
        return onnx("Mod", x, y)
    return onnx("Sub", x, onnx("Mul", onnx("Floor", onnx("Div", x, y)), y))


def _atan2(onnx: Onnx, y: Any, x: Any) -> Any:
    zero = to_constant(x, 0)
    # Atan of the quotient is the angle on the right; on the left half a turn is missing.
    turn = onnx("Where", onnx("Less", y, zero), to_constant(x, -math.pi), to_constant(x, math.pi))
    angle = onnx("Add", onnx("Atan", onnx("Div", y, x)), onnx("Where", onnx("Less", x, zero), turn, zero))
    # The quotient is NaN at the origin, where atan2 gives 0.
    nowhere = onnx("And", onnx("Equal", x, zero), onnx("Equal", y, zero))
    return onnx("Where", nowhere, zero, angle)


def _log_add_exp(onnx: Onnx, x: Any, y: Any) -> Any:
    """Compute relative to the larger operand, so that no exponential overflows."""
    apart = onnx("Neg", onnx("Abs", onnx("Sub", x, y)))
    return onnx("Add", onnx("Max", x, y), onnx("Softplus", apart))


def _left_shift(onnx: Onnx, x: Any, by: Any) -> Any:
    """Shift unsigned numbers of the same bits, the only ones that ONNX shifts."""
    bits = x.dtype.name if x.dtype.kind == "u" else f"u{x.dtype.name}"
    shifted = onnx("BitShift", cast_to(onnx, x, bits), cast_to(onnx, by, bits), direction="LEFT")
    return cast_to(onnx, shifted, x.dtype.name)


def _right_shift(onnx: Onnx, x: Any, by: Any) -> Any:
    """Shift right with the sign kept: a signed shift divides and rounds down."""
    if x.dtype.kind == "u":
        return onnx("BitShift", x, by, direction="RIGHT")
    wide, power = cast_to(onnx, x, "int64"), onnx("Pow", np.array(2, np.int64), cast_to(onnx, by, "int64"))
    return cast_to(onnx, _floor_divide(onnx, wide, power), x.dtype.name)


def _clip(call: SpelledCall) -> Any:
    x, low, high = call.args
    return call("Min", call("Max", x, to_constant(x, low)), to_constant(x, high))


def _spell_slope(onnx: Onnx, x: Any, slope: Any) -> Any:
    return onnx("Where", onnx("Greater", x, to_constant(x, 0)), x, onnx("Mul", x, slope))


def _per_channel(call: SpelledCall, vector: Any) -> Any:
    """Reshape a vector to lie along the axis that the attributes name."""
    shape = [1] * call.args[0].ndim
    shape[call["axis"]] = vector.size
    return reshape_to(call, vector, shape)


def _softplus(call: SpelledCall) -> Any:
    x, beta = call.args[0], to_constant(call.args[0], call["beta"])
    grown = call("Mul", x, beta)
    straight = call("Greater", grown, to_constant(x, call["threshold"]))
    # Softplus is not computed where it would overflow.
    soft = call("Softplus", call("Min", grown, to_constant(x, call["threshold"])))
    return call("Where", straight, x, call("Div", soft, beta))


def _quantize(call: SpelledCall) -> Any:
    x, scale, zero = (call.args[0], *(_per_channel(call, arg) for arg in call.args[1:]))
    # Clipped before the cast, since Cast leaves open what a float out of range becomes.
    limits = np.iinfo(call.dtype)
    scaled = call("Add", call("Round", call("Div", x, scale)), cast_to(call, zero, x.dtype.name))
    clipped = call("Min", call("Max", scaled, to_constant(x, limits.min)), to_constant(x, limits.max))
    return cast_to(call, clipped, call.dtype)


def _dequantize(call: SpelledCall) -> Any:
    x, scale, zero = (call.args[0], *(_per_channel(call, arg) for arg in call.args[1:]))
    # In int64 no difference of the narrow types wraps around.
    away = call("Sub", cast_to(call, x, "int64"), cast_to(call, zero, "int64"))
    return call("Mul", cast_to(call, away, call.dtype), scale)


def _bucketize(call: SpelledCall) -> Any:
    """Return the number of bounds below a value, those that are equal to it included where `right` says
    so.
    """
    compared = "GreaterOrEqual" if call["right"] else "Greater"
    below = call(compared, call("Unsqueeze", call.args[0], to_integers(-1)), call.args[1])
    return call("ReduceSum", cast_to(call, below, call.dtype), to_integers(-1), keepdims=0)


SPELLINGS: Mapping[str, Spelling] = {
    "ceil": _spell_rounding("Ceil"),
    "floor": _spell_rounding("Floor"),
    "round": _spell_rounding("Round"),
    "trunc": spell_unary(_trunc),
    "rsqrt": spell_unary(lambda onnx, x: onnx("Div", to_constant(x, 1), onnx("Sqrt", x))),
    "square": spell_unary(lambda onnx, x: onnx("Mul", x, x)),
    "nn.relu": spell_unary(_relu),
    "nn.gelu": spell_unary(_gelu),
    "nn.gelu_tanh": spell_unary(_gelu_tanh),
    "nn.silu": spell_unary(lambda onnx, x: onnx("Mul", x, onnx("Sigmoid", x))),
    "nn.selu": spell_unary(_selu),
    "nn.dropout": spell_unary(lambda onnx, x: (x, np.ones_like(x))),
    "isfinite": spell_unary(lambda onnx, x: onnx("Not", onnx("Or", onnx("IsInf", x), onnx("IsNaN", x)))),
    "floor_divide": spell_pair(_floor_divide),
    "floor_mod": spell_pair(_floor_mod),
    # TVM's mod has the sign of the dividend, as C's has.
    "mod": spell_pair(lambda onnx, x, y: onnx("Mod", x, y, fmod=1)),
    "atan2": spell_pair(_atan2),
    "log_add_exp": spell_pair(_log_add_exp),
    "left_shift": spell_pair(_left_shift),
    "right_shift": spell_pair(_right_shift),
    "not_equal": spell_pair(lambda onnx, x, y: onnx("Not", onnx("Equal", x, y))),
    "ewise_fma": lambda call: call("Add", call("Mul", call.args[0], call.args[1]), call.args[2]),
    "clip": _clip,
    "astype": lambda call: cast_to(call, call.args[0], call.dtype),
    "nn.leakyrelu": lambda call: _spell_slope(call, call.args[0], to_constant(call.args[0], call["alpha"])),
    "nn.softplus": _softplus,
    "nn.prelu": lambda call: _spell_slope(call, call.args[0], _per_channel(call, call.args[1])),
    "quantize": _quantize,
    "dequantize": _dequantize,
    "bucketize": _bucketize,
}
