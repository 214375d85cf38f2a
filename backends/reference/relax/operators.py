"""Rules of the operators of Relax in numpy: (arguments, attributes, element type of the result) -> result.

Sources: apache-tvm 0.27, `tvm.relax.op`, and numpy where an operator is named after one of its functions.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opsieve.backends.reference.relax import layouts, windows
from opsieve.gen.irs.relax.tree import Attributes

Rule = Callable[[Any, Attributes, str], Any]


class NoRule(NotImplementedError):
    """Something that no rule is written for."""


class Hazards:
    """Where a run met what Relax leaves open: rule and operator."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], None] = {}

    def add(self, rule: str, operator: str) -> None:
        """One more place."""
        self.found.setdefault((rule, operator))

    def watched(self, name: str, rule: Rule, args: Any, attrs: Attributes, dtype: str) -> Any:
        """The result of a rule; hazards of integers are looked for in its arguments and in its result."""
        result = rule(args, attrs, dtype)
        short = name.rpartition(".")[2]
        if short == "astype":
            self._cast(args[0], np.dtype(dtype), name)
        elif short in _GROWING or name.startswith("kernel"):
            self._grown(name, rule, args, attrs, result)
        if (
            short in ("floor_divide", "floor_mod", "mod", "divide")
            and args[1].dtype.kind in "iu"
            and not args[1].all()
        ):
            self.add("integer-division-by-zero", name)
        return result

    def _cast(self, value: Any, to: "np.dtype[Any]", name: str) -> None:
        if value.dtype.kind in "fV" and to.kind in "iu":
            wide = value.astype(np.float64)
            if np.isnan(wide).any():
                self.add("cast-of-nan", name)
            elif wide.size and (wide.min() < np.iinfo(to).min or wide.max() > np.iinfo(to).max):
                self.add("cast-out-of-range", name)

    def _grown(self, name: str, rule: Rule, args: Any, attrs: Attributes, result: Any) -> None:
        first = result[0] if isinstance(result, tuple) else result
        if not hasattr(first, "dtype") or first.dtype.kind not in "iu":
            return
        exact = rule([_float(arg) for arg in args], attrs, "float64")
        limits = np.iinfo(first.dtype)
        exact = exact[0] if isinstance(exact, tuple) else exact
        if exact.size and not (limits.min <= np.min(exact) and np.max(exact) <= limits.max):
            self.add("integer-overflow", name)


_GROWING = frozenset(
    {
        "add",
        "subtract",
        "multiply",
        "power",
        "square",
        "negative",
        "abs",
        "sum",
        "prod",
        "cumsum",
        "cumprod",
        "matmul",
    }
    | {"outer", "einsum", "collapse_sum_to", "collapse_sum_like"}
)


def _float(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_float, value))
    return value.astype(np.float64) if hasattr(value, "dtype") and value.dtype.kind in "iu" else value


def _erf(value: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(value.astype(np.float64)).astype(value.dtype)


def _unary(function: Callable[[Any], Any]) -> Rule:
    return lambda args, attrs, dtype: np.asarray(function(args[0])).astype(args[0].dtype, copy=False)


def _pair(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda args, attrs, dtype: np.asarray(function(args[0], args[1]))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _truncated_mod(x: Any, y: Any) -> Any:
    return np.fmod(x, y)


def _round(x: Any) -> Any:
    return np.rint(x) if x.dtype.kind in "fV" else x


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _selu(x: Any) -> Any:
    return 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(np.minimum(x, 0)) - 1))


def _softplus(args: Any, attrs: Attributes, dtype: str) -> Any:
    x, beta, limit = args[0], float(_number(attrs, "beta")), float(_number(attrs, "threshold"))
    soft = np.log1p(np.exp(np.minimum(x * beta, limit))) / beta
    return np.where(x * beta > limit, x, soft).astype(x.dtype)


def _number(attrs: Attributes, name: str) -> Any:
    return attrs.get(name)


def _clip(args: Any, attrs: Attributes, dtype: str) -> Any:
    x, low, high = args
    return np.minimum(np.maximum(x, np.asarray(low).astype(x.dtype)), np.asarray(high).astype(x.dtype))


def _astype(args: Any, attrs: Attributes, dtype: str) -> Any:
    return args[0].astype(np.bool_ if dtype == "bool" else np.dtype(dtype))


def _prelu(args: Any, attrs: Attributes, dtype: str) -> Any:
    shape = [1] * args[0].ndim
    shape[int(_number(attrs, "axis"))] = -1
    return np.where(args[0] > 0, args[0], args[0] * args[1].reshape(shape)).astype(args[0].dtype)


def _leaky(args: Any, attrs: Attributes, dtype: str) -> Any:
    return np.where(args[0] > 0, args[0], args[0] * float(_number(attrs, "alpha"))).astype(args[0].dtype)


def _dequantize(args: Any, attrs: Attributes, dtype: str) -> Any:
    shape = [1] * args[0].ndim
    shape[int(_number(attrs, "axis"))] = -1
    x, zero = args[0].astype(np.int64), args[2].astype(np.int64).reshape(shape)
    return ((x - zero).astype(np.float64) * args[1].reshape(shape)).astype(dtype)


def _bucketize(args: Any, attrs: Attributes, dtype: str) -> Any:
    side: Any = "right" if _number(attrs, "right") else "left"
    return np.searchsorted(args[1], args[0], side=side).astype(dtype)


def _axes(attrs: Attributes) -> tuple[int, ...] | None:
    axis = attrs.get("axis")
    return axis if axis is None or isinstance(axis, tuple) else (axis,)  # type: ignore[return-value]


def _fold(function: Callable[..., Any]) -> Rule:
    def rule(args: Any, attrs: Attributes, dtype: str) -> Any:
        kept = bool(_number(attrs, "keepdims"))
        return np.asarray(function(args[0], axis=_axes(attrs), keepdims=kept)).astype(
            args[0].dtype, copy=False
        )

    return rule


def _position(function: Callable[..., Any]) -> Rule:
    def rule(args: Any, attrs: Attributes, dtype: str) -> Any:
        axis, kept = _number(attrs, "axis"), bool(_number(attrs, "keepdims"))
        return np.asarray(function(args[0], axis=axis, keepdims=kept)).astype(dtype)

    return rule


def _running(function: Callable[..., Any], start: int) -> Rule:
    def rule(args: Any, attrs: Attributes, dtype: str) -> Any:
        axis = int(_number(attrs, "axis"))
        found = function(args[0], axis=axis, dtype=args[0].dtype)
        if _number(attrs, "exclusive"):
            found = np.roll(found, 1, axis)
            first = [slice(None)] * found.ndim
            first[axis] = slice(0, 1)
            found[tuple(first)] = start
        return found

    return rule


def _softmax(args: Any, attrs: Attributes, dtype: str) -> Any:
    axis = int(_number(attrs, "axis"))
    shifted = np.exp(args[0] - args[0].max(axis=axis, keepdims=True))
    return (shifted / shifted.sum(axis=axis, keepdims=True)).astype(args[0].dtype)


def _log_softmax(args: Any, attrs: Attributes, dtype: str) -> Any:
    axis = int(_number(attrs, "axis"))
    shifted = args[0] - args[0].max(axis=axis, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).astype(args[0].dtype)


def _sort(args: Any, attrs: Attributes, dtype: str) -> Any:
    axis = int(_number(attrs, "axis"))
    found = np.sort(args[0], axis=axis)
    return np.flip(found, axis) if _number(attrs, "descending") else found


def order(values: Any, axis: int, largest: bool) -> Any:
    """Positions that sort along an axis, equal elements in their order."""
    keys = -values.astype(np.float64) if largest else values
    return np.argsort(keys, axis=axis, kind="stable")


def _argsort(args: Any, attrs: Attributes, dtype: str) -> Any:
    return order(args[0], int(_number(attrs, "axis")), bool(_number(attrs, "descending"))).astype(dtype)


def _topk(args: Any, attrs: Attributes, dtype: str) -> Any:
    axis, k = int(_number(attrs, "axis")), int(_number(attrs, "k"))
    places = np.take(order(args[0], axis, bool(_number(attrs, "largest"))), range(k), axis)
    return np.take_along_axis(args[0], places, axis), places.astype(str(_number(attrs, "dtype")))


def _median(args: Any, attrs: Attributes, dtype: str) -> Any:
    axes, kept = _axes(attrs), bool(_number(attrs, "keepdims"))
    axis = axes[0] if axes else 0
    places = np.argsort(args[0], axis=axis, kind="stable")
    middle = np.take(places, [(args[0].shape[axis] - 1) // 2], axis)
    value = np.take_along_axis(args[0], middle, axis)
    return (value, middle) if kept else (value.squeeze(axis), middle.squeeze(axis))


def _filled(value: int) -> Rule:
    return lambda args, attrs, dtype: np.full(args[0], value, dtype)


def _like(value: int) -> Rule:
    return lambda args, attrs, dtype: np.full(args[0].shape, value, dtype)


def _arange(args: Any, attrs: Attributes, dtype: str) -> Any:
    return np.arange(*args).astype(dtype)


def _hamming(args: Any, attrs: Attributes, dtype: str) -> Any:
    size, periodic, alpha, beta = args
    angle = 2 * math.pi * np.arange(size) / (size if periodic else size - 1)
    return (alpha - beta * np.cos(angle)).astype(dtype)


def _norm(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    mean = x.mean(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon)


def _layer_norm(args: Any, attrs: Attributes, dtype: str) -> Any:
    x, gamma, beta = args
    axes = tuple(axis % x.ndim for axis in _number(attrs, "axes"))
    return (_norm(x, axes, float(_number(attrs, "epsilon"))) * gamma + beta).astype(x.dtype)


def _rms_norm(args: Any, attrs: Attributes, dtype: str) -> Any:
    x, weight = args
    axes = tuple(axis % x.ndim for axis in _number(attrs, "axes"))
    square = (x * x).mean(axis=axes, keepdims=True)
    return (x / np.sqrt(square + float(_number(attrs, "epsilon"))) * weight).astype(x.dtype)


def _channels(value: Any, ndim: int) -> Any:
    return value.reshape((1, -1) + (1,) * (ndim - 2))


def _group_norm(args: Any, attrs: Attributes, dtype: str) -> Any:
    x, gamma, beta = args
    groups = int(_number(attrs, "num_groups"))
    split = x.reshape((x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    normal = _norm(split, tuple(range(2, split.ndim)), float(_number(attrs, "epsilon"))).reshape(x.shape)
    return (normal * _channels(gamma, x.ndim) + _channels(beta, x.ndim)).astype(x.dtype)


def _instance_norm(args: Any, attrs: Attributes, dtype: str) -> Any:
    x, gamma, beta = args
    normal = _norm(x, tuple(range(2, x.ndim)), float(_number(attrs, "epsilon")))
    return (normal * _channels(gamma, x.ndim) + _channels(beta, x.ndim)).astype(x.dtype)


def _batch_norm(args: Any, attrs: Attributes, dtype: str) -> Any:
    """In training the statistics are those of the batch, and the running ones are moved towards them (the
    variance unbiased).
    """
    x, gamma, beta, mean, variance = args
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    if _number(attrs, "training"):
        keep, count = float(_number(attrs, "momentum")), x.size // x.shape[1]
        batch_mean, batch_variance = x.mean(axis=axes), x.var(axis=axes)
        moved = (1 - keep) * mean + keep * batch_mean
        spread = (1 - keep) * variance + keep * batch_variance * (count / max(1, count - 1))
    else:
        batch_mean, batch_variance, moved, spread = mean, variance, mean, variance
    deviation = np.sqrt(_channels(batch_variance, x.ndim) + float(_number(attrs, "epsilon")))
    normal = (x - _channels(batch_mean, x.ndim)) / deviation
    result = normal * _channels(gamma, x.ndim) + _channels(beta, x.ndim)
    return tuple(part.astype(x.dtype) for part in (result, moved, spread))


def _quantize(args: Any, attrs: Attributes, dtype: str) -> Any:
    shape = [1] * args[0].ndim
    shape[int(_number(attrs, "axis"))] = -1
    limits = np.iinfo(dtype)
    scaled = np.rint(args[0] / args[1].reshape(shape)) + args[2].astype(np.int64).reshape(shape)
    return np.clip(scaled, limits.min, limits.max).astype(dtype)


def _cross_entropy(args: Any, attrs: Attributes, dtype: str) -> Any:
    return np.asarray(-(args[0] * args[1]).sum() / args[0].shape[0]).astype(dtype)


def _nll(args: Any, attrs: Attributes, dtype: str) -> Any:
    predictions, targets, weights = args
    rows = np.arange(targets.size)
    loss, weight = -predictions[rows, targets] * weights[targets], weights[targets]
    total = loss.sum() / weight.sum() if _number(attrs, "reduction") == "mean" else loss.sum()
    return np.asarray(total).astype(dtype)


def _einsum(args: Any, attrs: Attributes, dtype: str) -> Any:
    return np.einsum(str(_number(attrs, "subscripts")), *args[0]).astype(dtype)


def _matmul(args: Any, attrs: Attributes, dtype: str) -> Any:
    kind = np.dtype(dtype)
    return np.asarray(np.matmul(args[0].astype(kind), args[1].astype(kind)))


def _where(args: Any, attrs: Attributes, dtype: str) -> Any:
    return np.where(args[0], args[1], args[2])


_FLOOR: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": _truncated_mod,
    "divide": np.true_divide,
}
_PAIRS: Mapping[str, Callable[[Any, Any], Any]] = _FLOOR | {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "power": np.power, "atan2": np.arctan2,
    "log_add_exp": np.logaddexp, "maximum": np.maximum, "minimum": np.minimum, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "left_shift": np.left_shift,
    "right_shift": np.right_shift, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "less": np.less, "less_equal": np.less_equal, "outer": np.outer,
}  # fmt: skip
_UNARIES: Mapping[str, Callable[[Any], Any]] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh, "erf": _erf,
    "exp": np.exp, "floor": np.floor, "log": np.log, "negative": np.negative, "round": _round,
    "trunc": np.trunc, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": _sigmoid, "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "tan": np.tan, "tanh": np.tanh,
    "bitwise_not": np.invert, "logical_not": np.logical_not, "nn.relu": lambda x: np.maximum(x, 0),
    "nn.gelu_tanh": _gelu_tanh, "nn.gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "nn.silu": lambda x: x * _sigmoid(x), "nn.selu": _selu,
}  # fmt: skip
_OTHERS: Mapping[str, Rule] = {
    "isfinite": lambda args, attrs, dtype: np.isfinite(args[0]),
    "isinf": lambda args, attrs, dtype: np.isinf(args[0]),
    "isnan": lambda args, attrs, dtype: np.isnan(args[0]),
    "where": _where,
    "ewise_fma": lambda args, attrs, dtype: args[0] * args[1] + args[2],
    "clip": _clip,
    "astype": _astype,
    "nn.leakyrelu": _leaky,
    "nn.softplus": _softplus,
    "nn.dropout": lambda args, attrs, dtype: (args[0], np.ones_like(args[0])),
    "nn.prelu": _prelu,
    "dequantize": _dequantize,
    "bucketize": _bucketize,
    "sum": _fold(np.sum),
    "max": _fold(np.max),
    "min": _fold(np.min),
    "prod": _fold(np.prod),
    "mean": _fold(np.mean),
    "std": _fold(np.std),
    "variance": _fold(np.var),
    "median": _median,
    "argmax": _position(np.argmax),
    "argmin": _position(np.argmin),
    "cumsum": _running(np.cumsum, 0),
    "cumprod": _running(np.cumprod, 1),
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "sort": _sort,
    "argsort": _argsort,
    "topk": _topk,
    "full": lambda args, attrs, dtype: np.full(args[0], args[1], dtype),
    "zeros": _filled(0),
    "ones": _filled(1),
    "full_like": lambda args, attrs, dtype: np.full(args[0].shape, args[1], dtype),
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "arange": _arange,
    "eye": lambda args, attrs, dtype: np.eye(*args).astype(dtype),
    "eye_like": (
        lambda args, attrs, dtype: np.eye(args[0].shape[0], args[0].shape[1], int(args[1])).astype(dtype)
    ),
    "hamming_window": _hamming,
    "matmul": _matmul,
    "einsum": _einsum,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.batch_norm": _batch_norm,
    "quantize": _quantize,
    "nn.cross_entropy_with_logits": _cross_entropy,
    "nn.nll_loss": _nll,
}

RULES: Mapping[str, Rule] = {
    f"relax.{name}": rule
    for table in (
        {name: _unary(function) for name, function in _UNARIES.items()},
        {name: _pair(function) for name, function in _PAIRS.items()},
        _OTHERS,
        layouts.RULES,
        windows.RULES,
    )
    for name, rule in table.items()
}
