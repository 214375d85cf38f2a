"""Spellings of reductions, sorting, normalisations, losses, and of tensors made from numbers alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.spellings.spelling import (
    Onnx,
    SpelledCall,
    Spelling,
    cast_to,
    reshape_to,
    to_constant,
    to_integers,
)


def _fold(operator: str) -> Spelling:
    def spell_call(call: SpelledCall) -> Any:
        axes = call["axis"]
        given = () if axes is None else (to_integers(axes),)
        return call(operator, call.args[0], *given, keepdims=int(bool(call["keepdims"])))

    return spell_call


def _variance(call: SpelledCall) -> Any:
    axes = range(call.args[0].ndim) if call["axis"] is None else call["axis"]
    away = call("Sub", call.args[0], call("ReduceMean", call.args[0], to_integers(axes), keepdims=1))
    return _fold("ReduceMean")(replace(call, args=[call("Mul", away, away)]))


def _position(operator: str) -> Spelling:
    def spell_call(call: SpelledCall) -> Any:
        x, axis, kept = call.args[0], call["axis"], int(bool(call["keepdims"]))
        if axis is not None:
            return cast_to(call, call(operator, x, axis=axis, keepdims=kept), call.dtype)
        # ONNX's operator takes one axis, TVM's takes all of them if none is given.
        flat = call(operator, reshape_to(call, x, [x.size]), axis=0, keepdims=0)
        return cast_to(call, reshape_to(call, flat, [1] * x.ndim * kept), call.dtype)

    return spell_call


def _prepare_scan(call: SpelledCall) -> tuple[Any, int]:
    """Return the tensor in the element type of the result, and the axis that is scanned."""
    x, axis = cast_to(call, call.args[0], call.dtype), call["axis"]
    return (reshape_to(call, x, [x.size]), 0) if axis is None else (x, int(axis) % x.ndim)


def _cumsum(call: SpelledCall) -> Any:
    x, axis = _prepare_scan(call)
    return call("CumSum", x, np.array(axis, np.int64), exclusive=int(bool(call["exclusive"])))


def _cumprod(call: SpelledCall) -> Any:
    """Write a running product out, since ONNX has no such operator before opset 26."""
    x, axis = _prepare_scan(call)
    size = x.shape[axis]
    # Split makes at least one output, so an empty axis has no pieces.
    if not size:
        return x
    pieces = call.outputs("Split", size, x, to_integers([1] * size), axis=axis) if size > 1 else (x,)
    products = [np.ones_like(pieces[0]) if call["exclusive"] else pieces[0]]
    for piece in pieces[:-1] if call["exclusive"] else pieces[1:]:
        products.append(call("Mul", products[-1], piece))
    return call("Concat", *products, axis=axis)


def _softmax(operator: str) -> Spelling:
    return lambda call: call(operator, call.args[0], axis=call["axis"])


def sort_along(onnx: Onnx, x: Any, axis: int, largest: bool, count: int | None = None) -> tuple[Any, ...]:
    """Return the first elements along an axis in order, and their places; equal ones in the order of their
    places.
    """
    # The page of TopK: given two equal values, the one with the lower index comes first.
    many = to_integers(x.shape[axis] if count is None else count)
    return onnx.outputs("TopK", 2, x, many, axis=axis, largest=int(largest), sorted=1)


def _axis(call: SpelledCall) -> int:
    return int(call["axis"])


def _topk(call: SpelledCall) -> Any:
    k = call["k"]
    values, places = sort_along(call, call.args[0], _axis(call), bool(call["largest"]), k)
    both = values, cast_to(call, places, str(call["dtype"]))
    return {"both": both, "values": both[0], "indices": both[1]}[str(call["ret_type"])]


def _median(call: SpelledCall) -> Any:
    axes = call["axis"]
    axis = axes[0] if axes else 0
    # TVM's median of an even number of elements is the lower of the two in the middle.
    middle = (call.args[0].shape[axis] - 1) // 2
    both = [
        call("Gather", part, to_integers(middle), axis=axis)
        for part in sort_along(call, call.args[0], axis, False, middle + 1)
    ]
    return tuple(both if call["keepdims"] else (call("Squeeze", part, to_integers(axis)) for part in both))


def _full(call: SpelledCall) -> Any:
    shape = call.args[0].shape if isinstance(call.args[0], np.ndarray) else call.args[0]
    value = cast_to(call, to_constant(np.zeros((), call.dtype), call.args[1]), call.dtype)
    return call("Expand", value, to_integers(shape))


def _spell_filled(value: int) -> Spelling:
    def spell_call(call: SpelledCall) -> Any:
        return np.full(
            call.args[0].shape if isinstance(call.args[0], np.ndarray) else call.args[0], value, call.dtype
        )

    return spell_call


def _eye(call: SpelledCall) -> Any:
    rows, columns, diagonal = map(int, call.args)
    return np.eye(rows, columns, diagonal).astype(call.dtype)


def _hamming(call: SpelledCall) -> Any:
    size, periodic, alpha, beta = call.args
    angle = 2 * math.pi * np.arange(size) / (size if periodic else size - 1)
    return (alpha - beta * np.cos(angle)).astype(call.dtype)


def _normal(call: SpelledCall, x: Any, axes: Sequence[int]) -> Any:
    """x, less its mean over some axes, in units of its deviation."""
    away = call("Sub", x, call("ReduceMean", x, to_integers(axes), keepdims=1))
    return call("Div", away, _deviation(call, away, axes))


def _deviation(call: SpelledCall, away: Any, axes: Sequence[int]) -> Any:
    square = call("ReduceMean", call("Mul", away, away), to_integers(axes), keepdims=1)
    return call("Sqrt", call("Add", square, to_constant(away, call["epsilon"])))


def _scale_and_shift(onnx: Onnx, normal: Any, gamma: Any, beta: Any) -> Any:
    return onnx("Add", onnx("Mul", normal, gamma), beta)


def _axes(call: SpelledCall, ndim: int) -> list[int]:
    return [axis % ndim for axis in call["axes"]]


def _layer_norm(call: SpelledCall) -> Any:
    x, gamma, beta = call.args
    return _scale_and_shift(call, _normal(call, x, _axes(call, x.ndim)), gamma, beta)


def _rms_norm(call: SpelledCall) -> Any:
    x, weight = call.args
    return call("Mul", call("Div", x, _deviation(call, x, _axes(call, x.ndim))), weight)


def _channels(onnx: Onnx, value: Any, ndim: int) -> Any:
    return reshape_to(onnx, value, (1, value.size, *[1] * (ndim - 2)))


def _group_norm(call: SpelledCall) -> Any:
    x, gamma, beta = call.args
    groups = call["num_groups"]
    split = reshape_to(call, x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    normal = reshape_to(call, _normal(call, split, range(2, split.ndim)), x.shape)
    return _scale_and_shift(call, normal, _channels(call, gamma, x.ndim), _channels(call, beta, x.ndim))


def _instance_norm(call: SpelledCall) -> Any:
    x, gamma, beta = call.args
    normal = _normal(call, x, range(2, x.ndim))
    return _scale_and_shift(call, normal, _channels(call, gamma, x.ndim), _channels(call, beta, x.ndim))


def _batch_norm(call: SpelledCall) -> Any:
    """In training the statistics are those of the batch, and the running ones are moved towards them (the
    variance unbiased).
    """
    x, gamma, beta, mean, variance = call.args
    axes = [axis for axis in range(x.ndim) if axis != 1]
    running: tuple[Any, Any] = mean, variance
    if call["training"]:
        count = x.size // x.shape[1]
        away = call("Sub", x, call("ReduceMean", x, to_integers(axes), keepdims=1))
        batch_mean = call("ReduceMean", x, to_integers(axes), keepdims=0)
        batch_variance = call("ReduceMean", call("Mul", away, away), to_integers(axes), keepdims=0)
        unbiased = call("Mul", batch_variance, to_constant(x, count / max(1, count - 1)))
        moves = to_constant(x, call["momentum"]), to_constant(x, 1 - call["momentum"])
        running = tuple(
            call("Add", call("Mul", old, moves[1]), call("Mul", new, moves[0]))
            for old, new in ((mean, batch_mean), (variance, unbiased))
        )
        mean, variance = batch_mean, batch_variance
    deviation = call("Sqrt", call("Add", _channels(call, variance, x.ndim), to_constant(x, call["epsilon"])))
    normal = call("Div", call("Sub", x, _channels(call, mean, x.ndim)), deviation)
    return (
        _scale_and_shift(call, normal, _channels(call, gamma, x.ndim), _channels(call, beta, x.ndim)),
        *running,
    )


def _cross_entropy(call: SpelledCall) -> Any:
    total = call("ReduceSum", call("Mul", call.args[0], call.args[1]), keepdims=0)
    return call("Div", call("Neg", total), to_constant(call.args[0], call.args[0].shape[0]))


def _nll(call: SpelledCall) -> Any:
    if call.args[0].ndim != 2 or len(call.args) < 3 or call["reduction"] == "none":
        raise NotImplementedError("no spelling of this negative log likelihood loss")
    predictions, targets, weights = call.args
    weight = call("Gather", weights, targets)
    picked = call("GatherElements", predictions, call("Unsqueeze", targets, to_integers(1)), axis=1)
    loss = call("Mul", call("Neg", call("Squeeze", picked, to_integers(1))), weight)
    total = call("ReduceSum", loss, keepdims=0)
    mean = call["reduction"] == "mean"
    return call("Div", total, call("ReduceSum", weight, keepdims=0)) if mean else total


SPELLINGS: Mapping[str, Spelling] = {
    "sum": _fold("ReduceSum"),
    "max": _fold("ReduceMax"),
    "min": _fold("ReduceMin"),
    "prod": _fold("ReduceProd"),
    "mean": _fold("ReduceMean"),
    "std": lambda call: call("Sqrt", _variance(call)),
    "variance": _variance,
    "median": _median,
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "nn.softmax": _softmax("Softmax"),
    "nn.log_softmax": _softmax("LogSoftmax"),
    "sort": lambda call: sort_along(call, call.args[0], _axis(call), bool(call["descending"]))[0],
    "argsort": lambda call: cast_to(
        call, sort_along(call, call.args[0], _axis(call), bool(call["descending"]))[1], call.dtype
    ),
    "topk": _topk,
    "full": _full,
    "full_like": _full,
    "zeros": _spell_filled(0),
    "ones": _spell_filled(1),
    "zeros_like": _spell_filled(0),
    "ones_like": _spell_filled(1),
    "arange": lambda call: np.arange(*call.args).astype(call.dtype),
    "eye": _eye,
    "eye_like": lambda call: _eye(replace(call, args=[*call.args[0].shape, call.args[1]])),
    "hamming_window": _hamming,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.batch_norm": _batch_norm,
    "nn.cross_entropy_with_logits": _cross_entropy,
    "nn.nll_loss": _nll,
}
