"""Correct versions of operators that onnx's reference evaluator gets wrong. Each docstring names the error.

Found over ONNX's own node tests and Loop's specification; an entry goes when onnx no longer needs it.
"""

import math
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun, RuntimeImplementationError
from onnx.reference.ops.op_conv import _conv_implementation

from opsieve.backends.reference import (
    reference_ops_control,
    reference_ops_indices,
    reference_ops_normalization,
    reference_ops_strings,
    reference_ops_windows,
)
from opsieve.backends.reference.reference_ops_recurrent import GRU, LSTM, RNN
from opsieve.backends.reference.reference_ops_sampling import DeformConv, GridSample, Resize, RoiAlign


class Mean(OpRun):
    """Mean of inputs that broadcast.

    onnx 1.23 adds the others into a copy of the first input, which fails when that one has to grow.
    """

    def _run(self, *values):  # type: ignore[no-untyped-def]  # as above
        total = values[0]
        for value in values[1:]:
            total = total + value
        return ((total / len(values)).astype(values[0].dtype),)


class Softsign(OpRun):
    """Softsign of a tensor without dimensions too.

    onnx 1.23 divides into what numpy makes a number and not an array then, which is an error.
    """

    def _run(self, x):  # type: ignore[no-untyped-def]  # as above
        return (np.asarray(x / (1 + np.abs(x)), x.dtype),)


class MaxPool(OpRun):
    """MaxPool over any number of dimensions, https://onnx.ai/onnx/operators/onnx__MaxPool.html.

    onnx 1.23 centres windows anew when the two pads of a dimension differ or the output is rounded up, so
    that they cover other elements; it pads integers with what a NaN becomes in their type, rounds SAME_LOWER
    down, and gives no indices where it does not dilate or stride. NaN is passed over, as there. The page
    does not say what a window of nothing but padding gives, nor where the windows begin when SAME asks for
    less than no padding: those are not computed.
    """

    def _run(  # type: ignore[no-untyped-def]  # as above
        self,
        x,
        auto_pad=None,
        ceil_mode=0,
        dilations=None,
        kernel_shape=None,
        pads=None,
        storage_order=0,
        strides=None,
    ):
        sides, rank = x.shape[2:], len(kernel_shape)
        spans = list(zip(sides, kernel_shape, strides or [1] * rank, dilations or [1] * rank, strict=True))
        taps = [
            _taps(*span, (pads or [0] * 2 * rank)[axis::rank], auto_pad or "NOTSET", bool(ceil_mode))
            for axis, span in enumerate(spans)
        ]
        inside, by_rows, by_columns = np.array(True), np.array(0), np.array(0)
        for axis, (place, side) in enumerate(zip(taps, sides, strict=True)):
            # The windows of this axis along dimension `axis`, the elements of each along dimension `rank +
            # axis`.
            place = np.expand_dims(place, [other for other in range(2 * rank) if other % rank != axis])
            inside = inside & (place >= 0) & (place < side)
            by_rows = by_rows * side + place
            by_columns = by_columns + place * math.prod(sides[:axis])
        made = inside.shape[:rank]
        inside, by_rows, by_columns = (
            part.reshape(math.prod(made), math.prod(kernel_shape)) for part in (inside, by_rows, by_columns)
        )
        values = x.reshape(-1, math.prod(sides))[:, np.where(inside, by_rows, 0)]
        if not inside.any(axis=1).all():
            raise RuntimeImplementationError(
                "MaxPool has a window of nothing but padding, and ONNX does not say what it gives"
            )
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        ranked = np.where(inside & (values == values), values, np.array(lowest, x.dtype))
        first = (inside & (ranked == ranked.max(axis=2, keepdims=True))).argmax(axis=2)[..., np.newaxis]
        best = np.take_along_axis(values, first, 2)[..., 0]
        shape = x.shape[:2] + made
        if len(self.output) == 1:
            return (best.reshape(shape),)
        offset = by_columns if storage_order else by_rows
        found = np.take_along_axis(np.broadcast_to(offset, values.shape), first, 2)[..., 0]
        found = found + math.prod(sides) * np.arange(len(values))[:, np.newaxis]
        return best.reshape(shape), found.astype(np.int64).reshape(shape)


def _taps(
    side: int, kernel: int, stride: int, dilation: int, pads: list[int], auto_pad: str, ceil_mode: bool
) -> np.ndarray[Any, Any]:
    """Return the places that each window of one axis covers, [windows, kernel]; those of the padding lie
    outside 0..side-1.
    """
    reach = (kernel - 1) * dilation + 1
    before, after = pads if auto_pad == "NOTSET" else (0, 0)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        windows = -(-side // stride)
        missing = (windows - 1) * stride + reach - side
        if missing < 0:
            raise RuntimeImplementationError(
                "MaxPool has strides that skip elements, and ONNX does not say which with SAME"
            )
        before = missing // 2 if auto_pad == "SAME_UPPER" else missing - missing // 2
    else:
        room = side + before + after - reach
        if room < 0:
            raise ValueError(f"a window of {reach} does not fit into {side} elements and their padding")
        windows = (-(-room // stride) if ceil_mode else room // stride) + 1
        if ceil_mode and (windows - 1) * stride >= side + before:
            # It would begin in the padding at the end
            windows -= 1
    return np.arange(windows)[:, np.newaxis] * stride - before + np.arange(kernel) * dilation


class LRN(OpRun):
    """LRN over the channels of any number of images, of any rank.

    onnx 1.23 counts the channels by the size of the batch and leaves the sums of the others zero, and takes
    four dimensions only.
    """

    # as above
    def _run(self, x, alpha=None, beta=None, bias=None, size=None):  # type: ignore[no-untyped-def]
        # Floor and ceil of (size - 1) / 2
        before, after = (size - 1) // 2, size // 2
        squares, channels = x * x, x.shape[1]
        sums = np.zeros_like(x)
        for at in range(channels):
            sums[:, at] = squares[:, max(0, at - before) : at + after + 1].sum(axis=1)
        return ((x / (bias + float(alpha) / size * sums) ** beta).astype(x.dtype),)


class GlobalMaxPool(OpRun):
    """GlobalMaxPool over all dimensions behind the channels: onnx 1.23 is right for two of them only."""

    def _run(self, x):  # type: ignore[no-untyped-def]  # as above
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GatherElements(OpRun):
    """GatherElements with indices of any shape that stays inside the data, as its page has it.

    onnx 1.23 wants the sizes of both to be equal off the axis, takes 32 rows at most, and wraps indices that
    are out of range.
    """

    def _run(self, data, indices, axis=0):  # type: ignore[no-untyped-def]  # as above
        size = data.shape[axis]
        if ((indices < -size) | (indices >= size)).any():
            raise ValueError(
                f"an index of GatherElements is out of range for the {size} elements of axis {axis}"
            )
        places = list(np.ogrid[tuple(slice(side) for side in indices.shape)])
        places[axis] = indices
        return (data[tuple(places)],)


class Optional(OpRun):
    """Optional of a tensor or a sequence is that value; onnx 1.23 makes a sequence with one element of it.

    The evaluator lets no node give nothing, so an Optional without an input is not computed.
    """

    def _run(self, x=None, type=None):  # type: ignore[no-untyped-def]  # noqa: A002  as above
        if x is None:
            raise RuntimeImplementationError("the evaluator cannot carry an Optional that holds nothing")
        return (x,)


class Erf(OpRun):
    """Erf to the last digit of its type: onnx 1.23 rounds it to float32, in float64 too."""

    _erf = staticmethod(np.vectorize(math.erf, otypes=["d"]))

    def _run(self, x):  # type: ignore[no-untyped-def]  # as above
        return (np.asarray(self._erf(x)).astype(x.dtype),)


class QLinearConv(OpRun):
    """QLinearConv over any number of dimensions, rounded before the zero point is added, as QuantizeLinear
    has it.

    onnx 1.23 spreads scales of channels over two dimensions whatever there are, and rounds behind the zero
    point, so that ties fall to the other side where it is odd.
    """

    def _run(  # type: ignore[no-untyped-def]  # as above
        self, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None, auto_pad="NOTSET",
        dilations=None, group=1,
        kernel_shape=None, pads=None, strides=None,
    ):  # fmt: skip
        by_channel = [-1] + [1] * (w.ndim - 1)
        left = x.astype(np.int64) - x_zero
        right = w.astype(np.int64) - np.asarray(w_zero).astype(np.int64).reshape(by_channel)
        convolve: Any = _conv_implementation
        sums = convolve(left, right, bias, auto_pad, dilations, group, kernel_shape, pads, strides)
        scale = x_scale * w_scale / y_scale
        scaled = np.rint(sums * (np.reshape(scale, [1, *by_channel[:-1]]) if np.size(scale) > 1 else scale))
        limits = np.iinfo(y_zero.dtype)
        return (np.clip(scaled + y_zero, limits.min, limits.max).astype(y_zero.dtype),)


class QLinearMatMul(OpRun):
    """QLinearMatMul, rounded before the zero point is added, with scales of rows and columns: onnx 1.23
    rounds behind it.
    """

    # as above
    def _run(  # type: ignore[no-untyped-def]
        self, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero
    ):
        def rows(value: Any) -> Any:
            return np.expand_dims(value, -1) if 0 < np.ndim(value) < a.ndim else value

        sums = np.matmul(a.astype(np.int64) - rows(a_zero), b.astype(np.int64) - b_zero)
        scaled = np.rint(sums * (rows(a_scale) * b_scale / rows(y_scale)))
        limits = np.iinfo(y_zero.dtype)
        return (np.clip(scaled + rows(y_zero), limits.min, limits.max).astype(y_zero.dtype),)


class HannWindow(OpRun):
    """HannWindow as its page writes it: onnx 1.23 squares a sine, which leaves 1e-32 where the window is
    0.
    """

    def _run(self, size, output_datatype=1, periodic=1):  # type: ignore[no-untyped-def]  # as above
        length = size if periodic else size - 1
        window = 0.5 - 0.5 * np.cos(np.arange(int(size)) * np.pi * 2 / length)
        return (window.astype(helper.tensor_dtype_to_np_dtype(output_datatype)),)


class Unique(OpRun):
    """Unique along any axis, in either order.

    onnx 1.23 takes the first axis where results are not sorted, and leaves one that is asked for alone sorted
    all the same.
    """

    # as above; `sorted` is the attribute's name
    def _run(self, x, axis=None, sorted=1):  # type: ignore[no-untyped-def]  # noqa: A002
        values = x.reshape(-1) if axis is None else x
        along = 0 if axis is None else axis
        keys = values.astype(str) if values.dtype == object else values
        _, first, inverse, counts = np.unique(keys, True, True, True, axis=None if axis is None else along)
        # numpy 2 gives it the shape of x
        inverse = inverse.reshape(-1)
        if not sorted:
            order = np.argsort(first)
            first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
        found = (np.take(values, first, along), *(each.astype(np.int64) for each in (first, inverse, counts)))
        return found[: len(self.onnx_node.output)]


class Pow(OpRun):
    """Pow of integers with an exponent below 0 too: an open result (gen/declarations/properties.py), of which
    onnx 1.23 makes an error.
    """

    def _run(self, x, exponent):  # type: ignore[no-untyped-def]  # as above
        if x.dtype.kind in "iu" and exponent.dtype.kind == "i" and (exponent < 0).any():
            with np.errstate(all="ignore"):
                return (np.trunc(np.nan_to_num(np.power(x.astype(np.float64), exponent))).astype(x.dtype),)
        return (np.power(x, exponent).astype(x.dtype),)


OPERATORS = (
    reference_ops_control.Loop,
    reference_ops_control.Scan,
    Mean,
    Softsign,
    MaxPool,
    GlobalMaxPool,
    GatherElements,
    Optional,
    Pow,
    Unique,
    LRN,
    reference_ops_normalization.LpNormalization,
    reference_ops_normalization.BatchNormalization,
    reference_ops_normalization.LayerNormalization,
    reference_ops_normalization.RMSNormalization,
    QLinearConv,
    QLinearMatMul,
    HannWindow,
    DeformConv,
    reference_ops_windows.ConvTranspose,
    reference_ops_windows.GlobalLpPool,
    reference_ops_windows.MaxRoiPool,
    reference_ops_windows.Multinomial,
    reference_ops_indices.NonMaxSuppression,
    reference_ops_indices.OneHot,
    reference_ops_indices.Pad,
    GridSample,
    Resize,
    RoiAlign,
    reference_ops_strings.RegexFullMatch,
    reference_ops_strings.StringNormalizer,
    reference_ops_strings.StringSplit,
    reference_ops_strings.TfIdfVectorizer,
    Erf,
    RNN,
    GRU,
    LSTM,
)
