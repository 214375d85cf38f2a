"""Spellings of reductions, sorting, normalisations, losses, and of tensors made from numbers alone."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.spellings.spelling import (
    Attrs,
    Onnx,
    Spelling,
    cast_to,
    reshape_to,
    to_constant,
    to_integers,
)


def _fold(operator: str) -> Spelling:
    def spell_call(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
        axes = attrs["axis"]
        given = () if axes is None else (to_integers(axes),)
        return onnx(operator, args[0], *given, keepdims=int(bool(attrs["keepdims"])))

    return spell_call


def _variance(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    axes = range(args[0].ndim) if attrs["axis"] is None else attrs["axis"]
    away = onnx("Sub", args[0], onnx("ReduceMean", args[0], to_integers(axes), keepdims=1))
    return _fold("ReduceMean")(onnx, (onnx("Mul", away, away),), attrs, dtype)


def _std(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return onnx("Sqrt", _variance(onnx, args, attrs, dtype))


def _position(operator: str) -> Spelling:
    def spell_call(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
        x, axis, kept = args[0], attrs["axis"], int(bool(attrs["keepdims"]))
        if axis is not None:
            return cast_to(onnx, onnx(operator, x, axis=axis, keepdims=kept), dtype)
        flat = onnx(operator, reshape_to(onnx, x, [x.size]), axis=0, keepdims=0)
        return cast_to(onnx, reshape_to(onnx, flat, [1] * x.ndim * kept), dtype)

    return spell_call


def _scanned(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> tuple[Any, int]:
    """The tensor in the element type of the result, and the axis that is scanned."""
    x, axis = cast_to(onnx, args[0], dtype), attrs["axis"]
    return (reshape_to(onnx, x, [x.size]), 0) if axis is None else (x, int(axis) % x.ndim)


def _cumsum(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    x, axis = _scanned(onnx, args, attrs, dtype)
    return onnx("CumSum", x, np.array(axis, np.int64), exclusive=int(bool(attrs["exclusive"])))


def _cumprod(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    """Written out, since ONNX has no such operator before opset 26."""
    x, axis = _scanned(onnx, args, attrs, dtype)
    size = x.shape[axis]
    if not size:
        return x
    pieces = onnx.outputs("Split", size, x, to_integers([1] * size), axis=axis) if size > 1 else (x,)
    products = [np.ones_like(pieces[0]) if attrs["exclusive"] else pieces[0]]
    for piece in pieces[:-1] if attrs["exclusive"] else pieces[1:]:
        products.append(onnx("Mul", products[-1], piece))
    return onnx("Concat", *products, axis=axis)


def _softmax(operator: str) -> Spelling:
    return lambda onnx, args, attrs, dtype: onnx(operator, args[0], axis=attrs["axis"])


def sort_along(onnx: Onnx, x: Any, axis: int, largest: bool, count: int | None = None) -> tuple[Any, ...]:
    """The first elements along an axis in order, and their places; equal ones in the order of their places."""
    many = to_integers(x.shape[axis] if count is None else count)
    return onnx.outputs("TopK", 2, x, many, axis=axis, largest=int(largest), sorted=1)


def _sort(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return sort_along(onnx, args[0], _axis(attrs), bool(attrs["descending"]))[0]


def _axis(attrs: Attrs) -> int:
    axis = attrs["axis"]
    return int(axis)


def _argsort(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return cast_to(onnx, sort_along(onnx, args[0], _axis(attrs), bool(attrs["descending"]))[1], dtype)


def _topk(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    k = attrs["k"]
    values, places = sort_along(onnx, args[0], _axis(attrs), bool(attrs["largest"]), k)
    both = values, cast_to(onnx, places, str(attrs["dtype"]))
    return {"both": both, "values": both[0], "indices": both[1]}[str(attrs["ret_type"])]


def _median(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    axes = attrs["axis"]
    axis = axes[0] if axes else 0
    middle = (args[0].shape[axis] - 1) // 2
    both = [
        onnx("Gather", part, to_integers(middle), axis=axis)
        for part in sort_along(onnx, args[0], axis, False, middle + 1)
    ]
    return tuple(both if attrs["keepdims"] else (onnx("Squeeze", part, to_integers(axis)) for part in both))


def _full(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    shape = args[0].shape if isinstance(args[0], np.ndarray) else args[0]
    value = cast_to(onnx, to_constant(np.zeros((), dtype), args[1]), dtype)
    return onnx("Expand", value, to_integers(shape))


def _filled(value: int) -> Spelling:
    def spell_call(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
        return np.full(args[0].shape if isinstance(args[0], np.ndarray) else args[0], value, dtype)

    return spell_call


def _arange(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return np.arange(*args).astype(dtype)


def _eye(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    rows, columns, diagonal = map(int, args)
    return np.eye(rows, columns, diagonal).astype(dtype)


def _eye_like(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return _eye(onnx, (*args[0].shape, args[1]), attrs, dtype)


def _hamming(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    size, periodic, alpha, beta = args
    angle = 2 * math.pi * np.arange(size) / (size if periodic else size - 1)
    return (alpha - beta * np.cos(angle)).astype(dtype)


def _normal(onnx: Onnx, x: Any, axes: Sequence[int], attrs: Attrs) -> Any:
    """x, less its mean over some axes, in units of its deviation."""
    away = onnx("Sub", x, onnx("ReduceMean", x, to_integers(axes), keepdims=1))
    return onnx("Div", away, _deviation(onnx, away, axes, attrs))


def _deviation(onnx: Onnx, away: Any, axes: Sequence[int], attrs: Attrs) -> Any:
    square = onnx("ReduceMean", onnx("Mul", away, away), to_integers(axes), keepdims=1)
    return onnx("Sqrt", onnx("Add", square, to_constant(away, attrs["epsilon"])))


def _scaled(onnx: Onnx, normal: Any, gamma: Any, beta: Any) -> Any:
    return onnx("Add", onnx("Mul", normal, gamma), beta)


def _axes(attrs: Attrs, ndim: int) -> list[int]:
    axes = attrs["axes"]
    return [axis % ndim for axis in axes]


def _layer_norm(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    x, gamma, beta = args
    return _scaled(onnx, _normal(onnx, x, _axes(attrs, x.ndim), attrs), gamma, beta)


def _rms_norm(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    x, weight = args
    return onnx("Mul", onnx("Div", x, _deviation(onnx, x, _axes(attrs, x.ndim), attrs)), weight)


def _channels(onnx: Onnx, value: Any, ndim: int) -> Any:
    return reshape_to(onnx, value, (1, value.size, *[1] * (ndim - 2)))


def _group_norm(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    x, gamma, beta = args
    groups = attrs["num_groups"]
    split = reshape_to(onnx, x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    normal = reshape_to(onnx, _normal(onnx, split, range(2, split.ndim), attrs), x.shape)
    return _scaled(onnx, normal, _channels(onnx, gamma, x.ndim), _channels(onnx, beta, x.ndim))


def _instance_norm(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    x, gamma, beta = args
    normal = _normal(onnx, x, range(2, x.ndim), attrs)
    return _scaled(onnx, normal, _channels(onnx, gamma, x.ndim), _channels(onnx, beta, x.ndim))


def _batch_norm(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    """In training the statistics are those of the batch, and the running ones are moved towards them (the
    variance unbiased).
    """
    x, gamma, beta, mean, variance = args
    axes = [axis for axis in range(x.ndim) if axis != 1]
    running: tuple[Any, Any] = mean, variance
    if attrs["training"]:
        count = x.size // x.shape[1]
        away = onnx("Sub", x, onnx("ReduceMean", x, to_integers(axes), keepdims=1))
        batch_mean = onnx("ReduceMean", x, to_integers(axes), keepdims=0)
        batch_variance = onnx("ReduceMean", onnx("Mul", away, away), to_integers(axes), keepdims=0)
        unbiased = onnx("Mul", batch_variance, to_constant(x, count / max(1, count - 1)))
        moves = to_constant(x, attrs["momentum"]), to_constant(x, 1 - attrs["momentum"])
        running = tuple(
            onnx("Add", onnx("Mul", old, moves[1]), onnx("Mul", new, moves[0]))
            for old, new in ((mean, batch_mean), (variance, unbiased))
        )
        mean, variance = batch_mean, batch_variance
    deviation = onnx("Sqrt", onnx("Add", _channels(onnx, variance, x.ndim), to_constant(x, attrs["epsilon"])))
    normal = onnx("Div", onnx("Sub", x, _channels(onnx, mean, x.ndim)), deviation)
    return (
        _scaled(onnx, normal, _channels(onnx, gamma, x.ndim), _channels(onnx, beta, x.ndim)),
        *running,
    )


def _cross_entropy(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    total = onnx("ReduceSum", onnx("Mul", args[0], args[1]), keepdims=0)
    return onnx("Div", onnx("Neg", total), to_constant(args[0], args[0].shape[0]))


def _nll(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    if args[0].ndim != 2 or len(args) < 3 or attrs["reduction"] == "none":
        raise NotImplementedError("no spelling of this negative log likelihood loss")
    predictions, targets, weights = args
    weight = onnx("Gather", weights, targets)
    picked = onnx("GatherElements", predictions, onnx("Unsqueeze", targets, to_integers(1)), axis=1)
    loss = onnx("Mul", onnx("Neg", onnx("Squeeze", picked, to_integers(1))), weight)
    total = onnx("ReduceSum", loss, keepdims=0)
    mean = attrs["reduction"] == "mean"
    return onnx("Div", total, onnx("ReduceSum", weight, keepdims=0)) if mean else total


SPELLINGS: Mapping[str, Spelling] = {
    "sum": _fold("ReduceSum"),
    "max": _fold("ReduceMax"),
    "min": _fold("ReduceMin"),
    "prod": _fold("ReduceProd"),
    "mean": _fold("ReduceMean"),
    "std": _std,
    "variance": _variance,
    "median": _median,
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "nn.softmax": _softmax("Softmax"),
    "nn.log_softmax": _softmax("LogSoftmax"),
    "sort": _sort,
    "argsort": _argsort,
    "topk": _topk,
    "full": _full,
    "full_like": _full,
    "zeros": _filled(0),
    "ones": _filled(1),
    "zeros_like": _filled(0),
    "ones_like": _filled(1),
    "arange": _arange,
    "eye": _eye,
    "eye_like": _eye_like,
    "hamming_window": _hamming,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.batch_norm": _batch_norm,
    "nn.cross_entropy_with_logits": _cross_entropy,
    "nn.nll_loss": _nll,
}
