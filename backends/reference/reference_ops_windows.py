"""Operators of windows, and of random draws, that onnx's evaluator gets wrong or lacks. Each docstring names
the error.
"""

import itertools
import math
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun, RuntimeImplementationError

Array = np.ndarray[Any, Any]


class ConvTranspose(OpRun):
    """ConvTranspose, https://onnx.ai/onnx/operators/onnx__ConvTranspose.html.

    onnx 1.23 takes one output channel for each of several groups, adds the first biases to all of them, and
    passes over `output_shape` where `pads` or no `auto_pad` is given.
    """

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def]
        self, x, w, bias=None, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None,
        output_padding=None,
        output_shape=None, pads=None, strides=None,
    ):  # fmt: skip
        rank, kernel, sides = x.ndim - 2, w.shape[2:], x.shape[2:]
        strides, dilations, extra = (
            list(given or [usual] * rank)
            for given, usual in ((strides, 1), (dilations, 1), (output_padding, 0))
        )
        spans = [
            s * (n - 1) + (k - 1) * d + 1
            for s, n, k, d in zip(strides, sides, kernel, dilations, strict=True)
        ]
        whole = [span + more for span, more in zip(spans, extra, strict=True)]
        wanted = list(output_shape)[-rank:] if output_shape else None
        if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = [side * stride for side, stride in zip(sides, strides, strict=True)]
        if wanted is not None:
            total = [have - want for have, want in zip(whole, wanted, strict=True)]
            if min(total, default=0) < 0:
                raise RuntimeImplementationError(
                    "ConvTranspose is to give more elements than its windows reach, and ONNX does not say"
                    " where"
                )
            # The odd element goes to the end for SAME_UPPER, to the beginning otherwise, as the page has it.
            before = [each // 2 if auto_pad == "SAME_UPPER" else each - each // 2 for each in total]
            after = [each - start for each, start in zip(total, before, strict=True)]
        else:
            pads = (auto_pad in ("NOTSET", None) and pads) or [0] * 2 * rank
            before, after = list(pads[:rank]), list(pads[rank:])
        parts = x.reshape(x.shape[0], group, -1, *sides)
        weights = w.reshape(group, -1, *w.shape[1:])
        made = np.zeros((x.shape[0], group, w.shape[1], *whole), x.dtype)
        # Tap by tap: each adds the whole input at its own offset.
        for at in itertools.product(*map(range, kernel)):
            places: tuple[Any, ...] = tuple(
                slice(k * d, k * d + s * (n - 1) + 1, s)
                for k, d, s, n in zip(at, dilations, strides, sides, strict=True)
            )
            made[(..., *places)] += np.einsum("ngc...,gcm->ngm...", parts, weights[(..., *at)])
        kept: tuple[Any, ...] = tuple(
            slice(start, have - end) for start, end, have in zip(before, after, whole, strict=True)
        )
        found = made.reshape(x.shape[0], -1, *whole)[(..., *kept)]
        return (found if bias is None else found + bias.reshape(-1, *[1] * rank),)


class GlobalLpPool(OpRun):
    """GlobalLpPool, which onnx 1.23 lacks: the p-norm of all elements of a channel."""

    def _run(self, x, p=2):  # type: ignore[no-untyped-def]  # as above
        power = 2.0 if p is None else float(p)
        sums = (np.abs(x) ** power).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return ((sums ** (1 / power)).astype(x.dtype),)


class MaxRoiPool(OpRun):
    """MaxRoiPool, which onnx 1.23 lacks. Its page names the layer of Fast R-CNN
    (https://arxiv.org/abs/1504.08083, 2.1), whose rounding it is: corners to the nearest place, both of them
    within the region, bins from the floor to the ceiling, 0 for an empty one.
    """

    def _run(self, x, rois, pooled_shape=None, spatial_scale=1.0):  # type: ignore[no-untyped-def]  # as above
        scale = np.float32(1.0 if spatial_scale is None else spatial_scale)
        made = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
        for number, (image, *corners) in enumerate(rois):
            # In float32, as the layer that the page names computes: a double would round other corners.
            left, top, right, bottom = (math.floor(float(np.float32(each) * scale) + 0.5) for each in corners)
            bins = [
                [
                    range(
                        *(
                            min(max(start + edge, 0), side)
                            for edge in (at * size // many, -(-(at + 1) * size // many))
                        )
                    )
                    for at in range(many)
                ]
                for start, size, many, side in (
                    (top, max(bottom - top + 1, 1), pooled_shape[0], x.shape[2]),
                    (left, max(right - left + 1, 1), pooled_shape[1], x.shape[3]),
                )
            ]
            for (row, rows), (column, columns) in itertools.product(*map(enumerate, bins)):
                # An empty bin keeps its 0.
                if len(rows) and len(columns):
                    held = x[int(image), :, rows.start : rows.stop, columns.start : columns.stop]
                    made[number, :, row, column] = held.max(axis=(1, 2))
        return (made,)


class Multinomial(OpRun):
    """Multinomial, which onnx 1.23 lacks: any draw is right, so only types and shapes can be held against
    it.
    """

    def _run(self, x, dtype=6, sample_size=1, seed=None):  # type: ignore[no-untyped-def]  # as above
        draw = np.random.default_rng(0 if seed is None else int(seed))
        weights = np.exp(x - x.max(axis=1, keepdims=True))
        rows = [
            draw.choice(x.shape[1], sample_size or 1, p=row / row.sum()) for row in weights.astype(np.float64)
        ]
        return (np.asarray(rows, helper.tensor_dtype_to_np_dtype(dtype or 6)).reshape(len(x), -1),)
