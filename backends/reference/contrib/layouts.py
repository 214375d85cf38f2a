"""Operators of com.microsoft that move, cut out or measure values, convolutions of its own, and the blocked
layout of com.microsoft.nchwc.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: ExpandDims, GatherND, Trilu,
Unique, Pad, Range, SampleOp, UnfoldTensor, CropAndResize, GridSample, CDist, Inverse, DynamicTimeWarping,
NhwcMaxPool, ConvTransposeWithDynamicPads, CausalConvWithState. Those that ONNX has by now are ONNX's.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opsieve.backends.reference.contrib.activations import silu
from opsieve.backends.reference.contrib.evaluation import Array, Function, not_computed, standard


def _unique(x: Array) -> Any:
    """Return the values in the order in which they first occur, the place of each element among them, and how
    often each occurs.
    """
    # numpy sorts the values; `first` restores the order of their first places.
    values, first, inverse, counts = np.unique(x, True, True, True)
    order = np.argsort(first)
    return values[order], np.argsort(order)[inverse.reshape(-1)], counts[order]


def _pad(x: Array, pads: Array, value: Array | None = None, mode: str = "constant") -> Array:
    fill = None if value is None else value.reshape(())
    return np.asarray(standard("Pad", x, pads.reshape(-1), fill, mode=mode))


def _range(start: Array, limit: Array, delta: Array | None = None) -> Array:
    step = 1 if delta is None else delta.item()
    return np.arange(start.item(), limit.item(), step).astype(start.dtype)


def _trilu(x: Array, k: Array | None = None, upper: int = 1) -> Array:
    at = 0 if k is None else int(k.reshape(()))
    return np.triu(x, at) if upper else np.tril(x, at)


def _crop(
    x: Array,
    boxes: Array,
    items: Array,
    size: Array,
    mode: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Array:
    """Cut regions out of images [N, C, H, W], given by their corners in parts of H - 1 and W - 1, and resize
    them so that corners meet corners.
    """
    made = np.full((len(boxes), x.shape[1], *size), extrapolation_value, x.dtype)
    places = [_crop_places(boxes[:, at::2], int(size[at]), x.shape[2 + at]) for at in range(2)]
    for box in np.ndindex(len(boxes)):
        rows, columns = places[0][box], places[1][box]
        image = x[items[box]]
        inside = np.logical_and.outer(
            *((at >= 0) & (at <= side - 1) for at, side in ((rows, x.shape[2]), (columns, x.shape[3])))
        )
        value = _nearest(image, rows, columns) if mode == "nearest" else _bilinear(image, rows, columns)
        made[box] = np.where(inside, value, extrapolation_value)
    return made


def _crop_places(ends: Array, count: int, side: int) -> Array:
    """Return where the elements of each box lie along one axis, [boxes, count]: one alone lies in
    the middle.
    """
    begin, end = ends[:, :1] * (side - 1), ends[:, 1:] * (side - 1)
    between = np.arange(count) / (count - 1) if count > 1 else 0.5
    return np.asarray(begin + (end - begin) * between)


def _nearest(image: Array, rows: Array, columns: Array) -> Array:
    # C's round: halves away from zero
    at = [
        np.clip(np.floor(place + 0.5), 0, side - 1).astype(int)
        for place, side in zip((rows, columns), image.shape[1:], strict=True)
    ]
    return np.asarray(image[:, at[0][:, np.newaxis], at[1]])


def _bilinear(image: Array, rows: Array, columns: Array) -> Array:
    made = image
    for axis, places in ((1, rows), (2, columns)):
        side = image.shape[axis]
        low = np.clip(np.floor(places), 0, side - 1).astype(int)
        high = np.clip(np.ceil(places), 0, side - 1).astype(int)
        share = (places - low).reshape([-1 if at == axis else 1 for at in range(3)])
        made = made.take(low, axis) * (1 - share) + made.take(high, axis) * share
    return made


def _distances(a: Array, b: Array, metric: str = "sqeuclidean") -> Array:
    if metric not in ("euclidean", "sqeuclidean"):
        raise not_computed(f"the distance {metric[:40]!r} is not computed")
    # Not |a|² + |b|² - 2ab, which loses the distance of near points.
    squares = ((a[:, np.newaxis] - b) ** 2).sum(axis=-1)
    return np.sqrt(squares) if metric == "euclidean" else np.asarray(squares)


def _warping(cost: Array) -> Array:
    """Find the path with the smallest sum of costs between opposite corners, as rows and columns."""
    costs = cost.reshape(cost.shape[-2:]).astype(np.float64)
    rows, columns = costs.shape
    # A border of infinities, so that no path leaves the matrix.
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for row, column in np.ndindex(rows, columns):
        before = min(total[row, column], total[row, column + 1], total[row + 1, column])
        total[row + 1, column + 1] = costs[row, column] + before
    path, at = [], (rows, columns)
    while at != (0, 0):
        path.append((at[0] - 1, at[1] - 1))
        row, column = at
        at = min(
            [(row - 1, column - 1), (row - 1, column), (row, column - 1)], key=lambda place: total[place]
        )
    return np.array(path[::-1], np.int32).T


def _conv_transpose(
    x: Array, w: Array, pads: Array | None = None, b: Array | None = None, **attributes: Any
) -> Array:
    # ONNX's operator, which computes it, has the pads as an attribute.
    given = None if pads is None else [int(value) for value in pads]
    return np.asarray(standard("ConvTranspose", x, w, b, pads=given, **attributes))


def _causal_conv(
    x: Array, w: Array, b: Array | None = None, past: Array | None = None, activation: str = "none",
    ndim: int = 1, dilation: int = 1, channels_last: int = 0, state_window: int = 0,
) -> Any:  # fmt: skip
    """Convolve each channel by itself [batch, channels, length], seeing the past only; return also the
    elements that the next call needs.
    """
    if ndim != 1 or channels_last or state_window:
        raise not_computed(
            "CausalConvWithState of more dimensions, with channels last or a window of states is not computed"
        )
    # The elements before the first that its window sees; these are also the next call's state.
    reach = (w.shape[-1] - 1) * dilation
    before = np.zeros((*x.shape[:2], reach), x.dtype) if past is None else past
    seen = np.concatenate([before, x], axis=2)
    made = sum(
        w[:, 0, tap, np.newaxis] * seen[:, :, tap * dilation :][:, :, : x.shape[2]]
        for tap in range(w.shape[-1])
    )
    made = np.asarray(made if b is None else made + b[:, np.newaxis])
    return made if activation == "none" else silu(made), seen[:, :, seen.shape[2] - reach :]


FUNCTIONS: Mapping[str, Function] = {
    "ExpandDims": lambda x, axis: np.expand_dims(x, int(axis.reshape(()))),
    "SampleOp": lambda x: x,
    "GatherND": lambda data, indices: standard("GatherND", data, indices.astype(np.int64)),
    "Trilu": _trilu,
    "Unique": _unique,
    "Pad": _pad,
    "Range": _range,
    "UnfoldTensor": lambda x, size=1, dim=-1, step=1: np.lib.stride_tricks.sliding_window_view(
        x, size, axis=dim
    )[(slice(None),) * (dim % x.ndim) + (slice(None, None, step),)].copy(),
    "CropAndResize": _crop,
    "GridSample": lambda x, grid, **attributes: standard("GridSample", x, grid, **attributes),
    "CDist": _distances,
    "Inverse": lambda x: np.linalg.inv(x),
    "DynamicTimeWarping": _warping,
    "NhwcMaxPool": lambda x, **attributes: np.moveaxis(
        standard("MaxPool", np.moveaxis(x, -1, 1), **attributes), 1, -1
    ),
    "ConvTransposeWithDynamicPads": _conv_transpose,
    "CausalConvWithState": _causal_conv,
}
