"""Rules of operators that work element by element, and of casts. See table.py."""

from __future__ import annotations

from functools import reduce
from typing import Any, Callable

import torch

# torch's own name for it
import torch.nn.functional as F  # noqa: N812

# torch stores them and computes next to nothing with them
UNSIGNED = (torch.uint16, torch.uint32)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)

# Without saturation, magnitudes that round beyond the largest value become NaN where the type has no
# infinity. A tie goes to the even neighbour: of 448 and 480 that is 448, so its bound is the next float32.
OVERFLOW = {torch.float8_e4m3fn: 464.00003, torch.float8_e4m3fnuz: 248.0, torch.float8_e5m2fnuz: 61440.0}


def wide(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Apply the rule in int64 to unsigned integers of 16 or 32 bits; int64 holds them, the result wraps."""

    def run_wide(n: Any, *values: Any) -> Any:
        narrow = values[0].dtype
        if narrow not in UNSIGNED:
            return rule(n, *values)
        result = rule(n, *(value.to(torch.int64) for value in values))
        return result.to(narrow) if result.dtype == torch.int64 else result

    return run_wide


def wraps(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Apply the rule as `wide` does, and to uint64 by the bits of int64: for results of equal
    bits in both.
    """

    def wrapping(n: Any, *values: Any) -> Any:
        if values[0].dtype != torch.uint64:
            return wide(rule)(n, *values)
        # No wider type holds uint64; in two's complement sums, products and bits are the same.
        return rule(n, *(value.view(torch.int64) for value in values)).view(torch.uint64)

    return wrapping


def keep_order(rule: Callable[..., Any], kept: bool) -> Callable[..., Any]:
    """Run a rule on uint64 as int64 with the highest bit flipped, which has the same order, and on other
    types as `wide` does; flips results back if `kept`.
    """

    def run_turned(n: Any, *values: Any) -> Any:
        if values[0].dtype != torch.uint64:
            return wide(rule)(n, *values)
        lowest = torch.iinfo(torch.int64).min
        made = rule(n, *(value.view(torch.int64) ^ lowest for value in values))
        return (made ^ lowest).view(torch.uint64) if kept else made

    return run_turned


def unary(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule that applies a function of one tensor."""
    return lambda n, x: function(x)


def binary(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule that applies a function of two tensors, which broadcast."""
    return lambda n, a, b: function(a, b)


def fold_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a rule that folds any number of broadcasting tensors."""
    return lambda n, *values: reduce(function, values)


def divide(n: Any, a: Any, b: Any) -> Any:
    """Divide; integers are rounded towards zero."""
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def power(n: Any, a: Any, b: Any) -> Any:
    """Return a result of the base's type; an integer to the power of a float is computed in float64."""
    if a.is_floating_point():
        common = torch.promote_types(a.dtype, b.dtype)
        return torch.pow(a.to(common), b.to(common)).to(a.dtype)
    if b.is_floating_point():
        return torch.pow(a.double(), b.double()).to(a.dtype)
    return torch.pow(a.long(), b.long()).to(a.dtype)


def shift(n: Any, a: Any, b: Any) -> Any:
    """Shift unsigned integers."""
    if n("direction") == "LEFT":
        return wraps(binary(torch.bitwise_left_shift))(n, a, b)
    # torch shifts int64 arithmetically: the mask clears the copies of the sign.
    if a.dtype == torch.uint64:
        a, b = a.view(torch.int64), b.view(torch.int64)
        mask = torch.bitwise_not(torch.bitwise_left_shift(torch.full_like(a, -2), 63 - b))
        return torch.where(b == 0, a, torch.bitwise_right_shift(a, b) & mask).view(torch.uint64)
    return wide(binary(torch.bitwise_right_shift))(n, a, b)


def clip(n: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    """Clip; where the bounds cross, the upper one counts. Bounds were attributes before opset 11."""
    low, high = n("min", low), n("max", high)
    if low is None and high is None:
        return x
    if n.opset < 11:
        return torch.clamp(x, low, high)
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def cast(n: Any, x: Any, to: Any) -> Any:
    """Convert to another type; to float8, values out of range saturate unless `saturate` is 0."""
    if to in FLOAT8 and x.is_floating_point():
        x = x if x.dtype not in FLOAT8 else x.float()
        # torch.clamp keeps NaN, but infinities become the largest value, as ONNX's table has it.
        if n("saturate", 1):
            top = torch.finfo(to).max
            return torch.where(torch.isnan(x), x, torch.clamp(x, -top, top)).to(to)
        if to in OVERFLOW:
            x = torch.where(x.abs() >= OVERFLOW[to], torch.nan, x)
    if x.dtype in FLOAT8 and to not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        x = x.float()
    return x.to(to)


def bitcast(n: Any, x: Any) -> Any:
    """Return the same bits as another type of the same width."""
    to = n.dtype("to")
    return x.view(to) if to.itemsize == x.dtype.itemsize else n.refuse("types of unequal width")


def run_flattened(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Make a rule along one axis, which before opset 13 saw its input as a matrix."""

    def along(n: Any, x: Any) -> Any:
        if n.opset >= 13:
            return rule(x, n("axis", -1))
        axis = n("axis", 1) % max(x.dim(), 1)
        matrix = x.reshape([int(torch.Size(x.shape[:axis]).numel()), -1])
        return rule(matrix, 1).reshape(x.shape)

    return along


def hardmax(x: Any, axis: int) -> Any:
    """Return 1 at the first largest element, 0 elsewhere."""
    return torch.zeros_like(x).scatter(axis, torch.argmax(x, axis, keepdim=True), 1)


def dropout(n: Any, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Pass the input through, as inference and a ratio of 0 do."""
    if n.one(training) and n.one(ratio, 0.5):
        n.refuse("random numbers")
    return x, torch.ones_like(x, dtype=torch.bool)


def shrink(n: Any, x: Any) -> Any:
    """Shrink values outside of [-lambd, lambd] towards zero by the bias; set others to zero."""
    bias, bound, nothing = n("bias", 0.0), n("lambd", 0.5), torch.zeros_like(x)
    shrunk = torch.where(x < -bound, x + bias, torch.where(x > bound, x - bias, nothing))
    return shrunk.to(x.dtype)


def infinite(n: Any, x: Any) -> Any:
    """Find infinities of the requested signs."""
    up, down = n("detect_positive", 1), n("detect_negative", 1)
    x = x.float() if x.dtype in FLOAT8 else x
    return (x == float("inf")) & bool(up) | (x == float("-inf")) & bool(down)


def mean(n: Any, *values: Any) -> Any:
    """Compute the mean of any number of tensors."""
    return reduce(torch.add, values) / len(values)


FUNCTIONS = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh,
    "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh,
    "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "HardSwish": F.hardswish, "Log": torch.log,
    "Mish": F.mish, "Neg": torch.neg, "Not": torch.logical_not, "Reciprocal": torch.reciprocal,
    "Relu": torch.relu, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin,
    "Sinh": torch.sinh, "Softsign": F.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh,
}  # fmt: skip
COMPARISONS = {
    "Equal": torch.eq, "Greater": torch.gt, "GreaterOrEqual": torch.ge, "Less": torch.lt,
    "LessOrEqual": torch.le,
}  # fmt: skip
PAIRS = {
    "And": torch.logical_and, "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor, "Or": torch.logical_or, "Xor": torch.logical_xor,
}  # fmt: skip

ASKS = {"Dropout": (1, 2)}
TABLE: dict[str, Callable[..., Any]] = {
    **{op: unary(function) for op, function in FUNCTIONS.items()},
    **{op: keep_order(binary(function), False) for op, function in COMPARISONS.items()},
    **{op: wraps(binary(function)) for op, function in PAIRS.items()},
    "Add": wraps(binary(torch.add)),
    "Sub": wraps(binary(torch.sub)),
    "Mul": wraps(binary(torch.mul)),
    "Div": wide(divide),
    "Mod": wide(lambda n, a, b: torch.fmod(a, b) if n("fmod", 0) else torch.remainder(a, b)),
    "Pow": wide(power),
    "BitwiseNot": wraps(unary(torch.bitwise_not)),
    "BitShift": shift,
    "Max": keep_order(fold_tensors(torch.maximum), True),
    "Min": keep_order(fold_tensors(torch.minimum), True),
    "Sum": fold_tensors(torch.add),
    "Mean": mean,
    "Clip": wide(clip),
    "Where": lambda n, c, a, b: torch.where(c, a, b),
    "Identity": lambda n, x: x,
    "IsNaN": lambda n, x: torch.isnan(x.float() if x.dtype in FLOAT8 else x),
    "IsInf": infinite,
    "LeakyRelu": lambda n, x: F.leaky_relu(x, n("alpha", 0.01)),
    "Elu": lambda n, x: F.elu(x, n("alpha", 1.0)),
    "Celu": lambda n, x: F.celu(x, n("alpha", 1.0)),
    "Selu": lambda n, x: n("gamma", 1.0507010221481323) * F.elu(x, n("alpha", 1.6732631921768188)),
    "PRelu": lambda n, x, slope: torch.where(x < 0, slope * x, x),
    "ThresholdedRelu": lambda n, x: torch.where(x > n("alpha", 1.0), x, torch.zeros_like(x)),
    "HardSigmoid": lambda n, x: torch.clamp(n("alpha", 0.2) * x + n("beta", 0.5), 0, 1),
    "Gelu": lambda n, x: F.gelu(x, approximate=n("approximate", "none")),
    # torch's own threshold is for float32
    "Softplus": lambda n, x: F.softplus(x, threshold=40),
    "Swish": lambda n, x: x * torch.sigmoid(n("alpha", 1.0) * x),
    "Shrink": shrink,
    "Softmax": run_flattened(lambda x, axis: torch.softmax(x, axis)),
    "LogSoftmax": run_flattened(lambda x, axis: torch.log_softmax(x, axis)),
    "Hardmax": run_flattened(hardmax),
    "Dropout": dropout,
    "Cast": lambda n, x: cast(n, x, n.dtype("to")),
    "CastLike": lambda n, x, like: cast(n, x, like.dtype),
    "BitCast": bitcast,
}
