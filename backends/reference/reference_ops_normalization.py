"""Corrected normalisations; each one states the fault of onnx 1.23's evaluator."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference.op_run import OpRun, RuntimeImplementationError

Array = np.ndarray[Any, Any]


class LpNormalization(OpRun):
    """LpNormalization by sizes, not by signed values: onnx 1.23 adds up x itself when p is 1. A norm of 0
    gives 0.
    """

    def _run(self, x, axis=-1, p=2):  # type: ignore[no-untyped-def]  # as above
        sizes = np.abs(x)
        norm = (
            sizes.sum(axis=axis, keepdims=True)
            if p == 1
            else np.sqrt((sizes * sizes).sum(axis=axis, keepdims=True))
        )
        return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(x.dtype),)


class BatchNormalization(OpRun):
    """BatchNormalization of opset 7 and later, with the statistics of the batch in training only.

    onnx 1.23 uses those of the batch, mixed with the given ones, below opset 14 in test mode too, where one
    output says that it is one.
    """

    def _run(  # type: ignore[no-untyped-def]  # as above
        self, x, scale, bias, mean, var, epsilon=1e-5, momentum=0.9, training_mode=0, spatial=1
    ):
        if not spatial:
            raise RuntimeImplementationError("BatchNormalization by element is not computed")
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        wide = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        batch_mean, batch_var = mean, var
        training = training_mode or len(self.output) > 1
        if training:
            batch_mean, batch_var = x.mean(axis=axes), x.var(axis=axes)
        normal = (x - batch_mean.reshape(wide)) / np.sqrt(batch_var.reshape(wide) + epsilon)
        y = (scale.reshape(wide) * normal + bias.reshape(wide)).astype(x.dtype)
        running = [
            (given * momentum + own * (1 - momentum)).astype(given.dtype)
            for given, own in ((mean, batch_mean), (var, batch_var))
        ]
        return (y, *running, batch_mean, batch_var)[: len(self.output)]


def _cast_to_stash_type(x: Array, stash_type: int | None) -> Array:
    """Convert a value to the type of the first stage: the one that the node names, or its own if that is
    wider.
    """
    named = helper.tensor_dtype_to_np_dtype(stash_type or TensorProto.FLOAT)
    return x.astype(np.result_type(x.dtype, named))


class LayerNormalization(OpRun):
    """LayerNormalization in two stages: onnx 1.23 computes the first one in the type of x, where float16
    overflows, and knows no other `stash_type` than float32.

    https://onnx.ai/onnx/operators/onnx__LayerNormalization.html, `stash_type`.
    """

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def]
        self, x, scale, bias=None, axis=-1, epsilon=1e-5, stash_type=1
    ):
        wide = _cast_to_stash_type(x, stash_type)
        axes = tuple(range(axis % x.ndim, x.ndim))
        mean = wide.mean(axis=axes, keepdims=True)
        away = wide - mean
        inverse = np.reciprocal(
            np.sqrt((away * away).mean(axis=axes, keepdims=True) + wide.dtype.type(epsilon))
        )
        y = (away * inverse).astype(x.dtype) * scale
        y = y if bias is None else y + bias
        return (y.astype(x.dtype), mean, inverse)[: len(self.output)]


class RMSNormalization(OpRun):
    """RMSNormalization in two stages, as LayerNormalization.

    https://onnx.ai/onnx/operators/onnx__RMSNormalization.html, `stash_type`.
    """

    def _run(self, x, scale, axis=-1, epsilon=1e-5, stash_type=1):  # type: ignore[no-untyped-def]  # as above
        wide = _cast_to_stash_type(x, stash_type)
        square = (wide * wide).mean(axis=tuple(range(axis % x.ndim, x.ndim)), keepdims=True)
        normal = wide * np.reciprocal(np.sqrt(square + wide.dtype.type(epsilon)))
        return ((normal.astype(x.dtype) * scale).astype(x.dtype),)
