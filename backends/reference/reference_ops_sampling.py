"""GridSample, DeformConv, Resize and RoiAlign done right.

onnx 1.23 shifts the regions of a RoiAlign by half a pixel before opset 16, too, where they are not shifted
(and are one pixel at least). In GridSample it computes the places in float32 whatever it is given, knows no
`bilinear`, drops an empty result, and clamps the places of a cubic kernel with `border`, where torch (which
the page follows) and onnxruntime clamp its taps. Its DeformConv computes the places in float32 by that
GridSample, of images alone, and fails where a side is 1. Its Resize takes a size before it is rounded down
for `length_resized`, and -0.5 for the place of a result of one element by `pytorch_half_pixel`, which is 0 by
the page.

https://onnx.ai/onnx/operators/onnx__GridSample.html, over any number of dimensions; the cubic kernel is R.
Keys' with -0.75, as there.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_resize, op_roi_align

Array = np.ndarray[Any, Any]

# Their names before opset 20
_MODES = {"bilinear": "linear", "bicubic": "cubic"}
# The coefficient of cubic convolution that the schema of Resize names as its default.
_KEYS = -0.75


# The first opset in which RoiAlign shifts regions, unless an attribute says otherwise
_SHIFTED = 16


class RoiAlign(op_roi_align.RoiAlign):
    """RoiAlign whose regions lie as the model's opset says.

    https://onnx.ai/onnx/operators/onnx__RoiAlign.html: `output_half_pixel` "to omit the pixel shift for the
    input (use this for a backward-compatible behavior)".
    """

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def, override]
        self, x, rois, batch_indices, coordinate_transformation_mode=None, **attributes
    ):
        if self.run_params["opsets"][""] < _SHIFTED:
            coordinate_transformation_mode = "output_half_pixel"
        aligned: Any = super()
        return aligned._run(x, rois, batch_indices, coordinate_transformation_mode, **attributes)


def _resized_places(
    evaluator: Callable[..., tuple[Array, Array | None]], mode: str, made: Array, *sizes: Any
) -> tuple[Array, Array | None]:
    """Return the places in the input of the elements made, by the page: its `length_resized` is the number of
    them.

    https://onnx.ai/onnx/operators/onnx__Resize.html, `coordinate_transformation_mode`. `sizes` are the scale,
    the size of the input, its product with the scale, the number of elements made, and the region of
    interest.
    """
    scale, given, _, count, *region = sizes
    if mode == "pytorch_half_pixel" and count == 1:
        return np.zeros(1), None
    # This mode corrects for the part that rounding cuts off.
    if mode == "half_pixel_symmetric":
        return evaluator(mode, made, *sizes)
    return evaluator(mode, made, scale, given, float(count), count, *region)


# Evaluators before onnx 1.22 work it out elsewhere
if hasattr(op_resize, "_compute_x_ori"):
    op_resize._compute_x_ori = functools.partial(_resized_places, op_resize._compute_x_ori)


class GridSample(OpRun):
    """GridSample over any number of dimensions, in the precision of its inputs."""

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def]
        self, x, grid, mode="linear", padding_mode="zeros", align_corners=0
    ):
        mode = _MODES.get(mode, mode)
        sides = x.shape[2:]
        if 0 in (*x.shape[:2], *grid.shape[1:-1]):
            return (np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype),)
        taps = []
        for axis, side in enumerate(sides):
            low, high = (0.0, side - 1.0) if align_corners else (-0.5, side - 0.5)
            # The grid names its coordinates x first, which is the last axis.
            place = (grid[..., len(sides) - 1 - axis] + 1) / 2 * (high - low) + low
            taps.append(_taps(place, side, low, high, mode, padding_mode))
        return (_read(x, taps).astype(x.dtype),)


class DeformConv(OpRun):
    """DeformConv over any number of dimensions, in the precision of its inputs.

    https://onnx.ai/onnx/operators/onnx__DeformConv.html: a convolution whose taps are read, linearly between
    elements and zero outside, at places moved by `offset` and weighted by `mask`.
    """

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def]
        self,
        x,
        w,
        offset,
        b=None,
        mask=None,
        dilations=None,
        group=1,
        kernel_shape=None,
        offset_group=1,
        pads=None,
        strides=None,
    ):
        group, shares = group or 1, offset_group or 1
        (batch, channels, *sides), (out_channels, _, *kernel), made = x.shape, w.shape, offset.shape[2:]
        rank, taps = len(sides), int(np.prod(kernel))
        if channels != w.shape[1] * group or out_channels % group or channels % shares:
            raise ValueError(
                f"DeformConv of {channels} channels in {group} groups, {shares} offset groups: weights"
                f" {w.shape}"
            )
        if offset.shape[1] != shares * taps * rank:
            raise ValueError(
                f"DeformConv with a kernel {kernel} and {shares} offset groups: offsets {offset.shape}"
            )
        # At least float32: sums of float16 would round at each tap.
        dtype = np.result_type(x.dtype, np.float32)
        starts, steps, apart = pads or [0] * rank, strides or [1] * rank, dilations or [1] * rank
        moved = offset.astype(np.float64).reshape(batch * shares, *kernel, rank, *made)
        read = []
        for axis, side in enumerate(sides):
            place = moved.take(axis, axis=rank + 1)
            place = place + _along(np.arange(kernel[axis]) * apart[axis], 1 + axis, place.ndim)
            place = place + _along(
                np.arange(made[axis]) * steps[axis] - starts[axis], 1 + rank + axis, place.ndim
            )
            read.append(_taps(place, side, 0.0, side - 1.0, "linear", "zeros"))
        values = _read(x.astype(dtype).reshape(batch * shares, channels // shares, *sides), read).astype(
            dtype
        )
        if mask is not None:
            values = values * mask.astype(dtype).reshape(batch * shares, 1, *kernel, *made)
        weights = w.astype(dtype).reshape(group, out_channels // group, -1)
        total = np.matmul(weights, values.reshape(batch, group, weights.shape[2], -1)).reshape(
            batch, out_channels, *made
        )
        total = total if b is None else total + _along(b.astype(dtype), 1, total.ndim)
        return (total.astype(x.dtype),)


def _along(values: Array, axis: int, rank: int) -> Array:
    """Return a row of values that lies along one of `rank` axes."""
    return values.reshape([-1 if at == axis else 1 for at in range(rank)])


def _read(x: Array, taps: list[list[tuple[Array, Array]]]) -> Array:
    """Return the sum of the elements that the taps of all axes name together, for each item of the batch and
    each channel.
    """
    batch = _along(np.arange(x.shape[0]), 0, taps[0][0][0].ndim)
    total: Any = 0.0
    for chosen in itertools.product(*taps):
        index: tuple[Any, ...] = tuple(place for place, _ in chosen)
        weight = np.prod([share for _, share in chosen], axis=0)
        # The channels come last
        values = x[(batch, slice(None), *index)]
        # A weight of 0 means not read: 0 times infinity would be NaN.
        total = total + np.where(weight[..., np.newaxis] == 0, 0, values * weight[..., np.newaxis])
    moved: Array = np.moveaxis(total, -1, 1)
    return moved


def _taps(
    place: Array, side: int, low: float, high: float, mode: str, padding: str
) -> list[tuple[Array, Array]]:
    """Return the indices along one axis that each place reads, with the weight of each."""
    if mode == "nearest":
        place = np.rint(place)
    if padding == "border" and mode != "cubic":
        place = np.where((place < low) | (place > high), np.clip(place, 0, side - 1), place)
    elif padding == "reflection":
        place = _reflect_places(place, low, high)
    if mode == "nearest":
        return [_pixel(place, np.ones_like(place), side, low, high, padding)]
    first = np.floor(place)
    rest = place - first
    shares = (
        {0: 1 - rest, 1: rest}
        if mode == "linear"
        else {step: _keys(np.abs(rest - step)) for step in range(-1, 3)}
    )
    return [_pixel(first + step, share, side, low, high, padding) for step, share in shares.items()]


def _pixel(at: Array, share: Array, side: int, low: float, high: float, padding: str) -> tuple[Array, Array]:
    if padding == "zeros":
        share = np.where((at >= 0) & (at < side), share, 0)
    elif padding == "reflection":
        at = np.trunc(_reflect_places(at, low, high))
    # Clipped so that it can be read; outside elements have the weight 0.
    return np.clip(np.nan_to_num(at), 0, side - 1).astype(np.int64), share


def _reflect_places(place: Array, low: float, high: float) -> Array:
    """Reflect places at the borders until they lie inside."""
    span = high - low
    # One element with `align_corners`: the reflection would divide by 0.
    if span == 0:
        return np.full_like(place, low)
    away = np.where(place < low, low - place, place - high)
    turns = np.trunc(away / span)
    rest = away - turns * span
    begun_low = (place < low) == (turns % 2 == 0)
    return np.where((place < low) | (place > high), np.where(begun_low, low + rest, high - rest), place)


def _keys(away: Array) -> Array:
    near = ((_KEYS + 2) * away - (_KEYS + 3)) * away * away + 1
    far = ((_KEYS * away - 5 * _KEYS) * away + 8 * _KEYS) * away - 4 * _KEYS
    return np.where(away <= 1, near, far)


class Resize(op_resize.Resize):
    """Resize of booleans, which onnx 1.23 cannot cast back."""

    def _run(self, x, *others, **attributes):  # type: ignore[no-untyped-def, override]  # as above
        resized: Any = super()._run
        if x.dtype != bool:
            return resized(x, *others, **attributes)
        return (resized(x.astype(np.uint8), *others, **attributes)[0].astype(bool),)
