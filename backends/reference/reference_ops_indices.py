"""Operators of places that onnx's evaluator gets wrong: OneHot, NonMaxSuppression, Pad. Each tells what is
wrong there.
"""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_non_max_suppression import NonMaxSuppression as _NonMaxSuppression

Array = np.ndarray[Any, Any]


class OneHot(OpRun):
    """OneHot of any values, with a depth of one element or without dimensions.

    onnx 1.23 takes differences of the values, which strings and booleans do not have, and a depth without
    dimensions only.
    """

    # The evaluator calls it by inputs and attribute names
    def _run(self, indices, depth, values, axis=-1):  # type: ignore[no-untyped-def]
        many = int(np.asarray(depth).item())
        at = (-1 if axis is None else axis) % (indices.ndim + 1)
        places = np.expand_dims(np.where(indices < 0, indices + many, indices), at)
        wide = np.arange(many).reshape([-1 if dim == at else 1 for dim in range(indices.ndim + 1)])
        return (np.where(places == wide, values[1], values[0]).astype(values.dtype),)


class NonMaxSuppression(_NonMaxSuppression):
    """NonMaxSuppression with limits without dimensions or left out: onnx 1.23 wants all but the last, of one
    element, and gives [0] for nothing.
    """

    def _run(  # type: ignore[no-untyped-def]  # as above
        self, boxes, scores, most=None, iou=None, score=None, center_point_box=0
    ):
        if most is None or int(most.item()) <= 0:
            return (np.zeros((0, 3), np.int64),)
        limits = [np.reshape(most, 1), np.zeros(1, boxes.dtype) if iou is None else np.reshape(iou, 1)]
        wanted = None if score is None else np.reshape(score, 1)
        above: Any = super()
        (found,) = above._run(boxes, scores, *limits, wanted, center_point_box=center_point_box)
        return (found.reshape(-1, 3),)


class Pad(OpRun):
    """Pad whose numbers may be negative, which takes elements away: an error in onnx 1.23."""

    # as above
    def _run(self, data, pads, value=None, axes=None, mode="constant"):  # type: ignore[no-untyped-def]
        return (pad_array(data, pads, value, axes, mode or "constant"),)


def pad_array(data: Array, pads: Any, value: Any, axes: Any, mode: str) -> Array:
    """Return `data` with as many more elements before and behind each axis, or fewer for a negative number.

    Elements are taken away first, but for a constant, which is first put before and behind.
    """
    along = [int(axis) % data.ndim for axis in (range(data.ndim) if axes is None else axes)]
    widths = np.zeros((data.ndim, 2), np.int64)
    widths[along] = np.reshape(pads, (2, -1)).T
    more, less = np.maximum(widths, 0), np.maximum(-widths, 0)
    if mode == "constant":
        filler = ("" if data.dtype == object else 0) if value is None else np.asarray(value).reshape(-1)[0]
        return _cut(np.pad(data, more, constant_values=filler), less).astype(data.dtype)
    # The modes have numpy's names
    pad: Any = np.pad
    return np.asarray(pad(_cut(data, less), more, mode=mode)).astype(data.dtype)


def _cut(data: Array, less: Array) -> Array:
    return data[
        tuple(
            slice(before, max(before, side - after))
            for side, (before, after) in zip(data.shape, less, strict=True)
        )
    ]
