"""Operators of com.microsoft over quantised tensors: real = scale * (quantised - zero point).

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: QuantizeLinear, DequantizeLinear,
QLinearAdd, -AveragePool,
-Concat, -Conv, -GlobalAveragePool, -LeakyRelu, -Mul, -Sigmoid, -Softmax, -Where, QGemm,
DynamicQuantizeMatMul, MatMulIntegerToFloat, MatMulInteger16. Each dequantises, computes in the type of its
scales and quantises: rounded half to even before the zero point is added, then saturated.
"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from opsieve.backends.reference.contrib.activations import sigmoid
from opsieve.backends.reference.contrib.evaluation import Array, Function, standard


def _along(parameter: Array | None, x: Array, axis: int | None) -> Array | int:
    """Reshape a scale or zero point to broadcast with `x`: a row of them lies along `axis`, the last one by
    default.
    """
    if parameter is None:
        return 0
    wide = parameter.astype(np.int64) if parameter.dtype.name not in ("float32", "float64") else parameter
    if wide.size == 1:
        return np.asarray(wide.reshape(()))
    return wide if axis is None else wide.reshape([-1 if at == axis % x.ndim else 1 for at in range(x.ndim)])


def dequantise_tensor(x: Array, scale: Array, zero: Array | None = None, axis: int | None = None) -> Array:
    """Return the real values of a quantised tensor, in the type of its scale."""
    # int64, because the difference of two uint8 or int32 values does not fit their own type.
    made: Array = (x.astype(np.int64) - _along(zero, x, axis)) * _along(scale, x, axis)
    return made


def quantise_tensor(
    x: Array, scale: Array, zero: Array | None, axis: int | None = None, dtype: Any = None
) -> Array:
    """Quantise real values to the zero point's type, or to `dtype` without a zero point."""
    kind = np.dtype(dtype) if zero is None else zero.dtype
    # numpy's iinfo does not know int4.
    limits: Any = ml_dtypes.iinfo(kind)
    steps = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis)
    return np.asarray(np.clip(steps, limits.min, limits.max)).astype(np.int64).astype(kind)


def _unary(function: Function) -> Function:
    """Make an operator of one quantised tensor: x, its scale and zero point, and those of the result."""

    def run(
        x: Array,
        scale: Array,
        zero: Array | None,
        new_scale: Array,
        new_zero: Array | None = None,
        **attributes: Any,
    ) -> Array:
        real = function(dequantise_tensor(x, scale, zero), **attributes)
        return quantise_tensor(np.asarray(real), new_scale, new_zero, dtype=x.dtype)

    return run


def _binary(function: Function) -> Function:
    def run(
        a: Array, a_scale: Array, a_zero: Array | None, b: Array, b_scale: Array, b_zero: Array | None,
        scale: Array, zero: Array | None = None
    ) -> Array:  # fmt: skip
        real = function(dequantise_tensor(a, a_scale, a_zero), dequantise_tensor(b, b_scale, b_zero))
        return quantise_tensor(np.asarray(real), scale, zero, dtype=a.dtype)

    return run


def _softmax(x: Array, axis: int = -1, opset: int = 13) -> Array:
    """Compute Softmax along an axis, or before opset 13 over all axes from there on."""
    flat = x.reshape(*x.shape[: axis % x.ndim], -1) if opset < 13 else np.moveaxis(x, axis, -1)
    # Less the largest, so that no weight overflows.
    weights = np.exp(flat - flat.max(axis=-1, keepdims=True))
    made: Array = weights / weights.sum(axis=-1, keepdims=True)
    return made.reshape(x.shape) if opset < 13 else np.moveaxis(made, -1, axis)


def _channels_last(function: Function) -> Function:
    """Make an operator on [N, C, ...] that an attribute lets work on [N, ..., C]."""

    def run(x: Array, channels_last: int = 0, **attributes: Any) -> Array:
        made = function(np.moveaxis(x, -1, 1) if channels_last else x, **attributes)
        return np.moveaxis(made, 1, -1) if channels_last else made

    return run


def _concat(scale: Array, zero: Array, *parts: Array, axis: int = 0) -> Array:
    real = [
        dequantise_tensor(x, by, zero_point)
        for x, by, zero_point in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]
    return quantise_tensor(np.concatenate(real, axis), scale, zero)


def _where(
    chosen: Array, x: Array, x_scale: Array, x_zero: Array, y: Array, y_scale: Array, y_zero: Array,
    scale: Array, zero: Array
) -> Array:  # fmt: skip
    return quantise_tensor(
        np.where(chosen, dequantise_tensor(x, x_scale, x_zero), dequantise_tensor(y, y_scale, y_zero)),
        scale,
        zero,
    )


def _conv(
    x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, scale: Array,
    zero: Array, bias: Array | None = None, channels_last: int = 0, **attributes: Any,
) -> Array:  # fmt: skip
    # Only the input: the weights keep their layout.
    x = np.moveaxis(x, -1, 1) if channels_last else x
    sums = standard(
        "Conv", x.astype(np.int64) - x_zero, w.astype(np.int64) - _along(w_zero, w, 0), bias, **attributes
    )
    made = quantise_tensor(sums * _along(x_scale * w_scale, sums, 1), scale, zero)
    return np.moveaxis(made, 1, -1) if channels_last else made


def _gemm(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, c: Array | None = None,
    scale: Array | None = None, zero: Array | None = None, alpha: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Array:  # fmt: skip
    """Compute Gemm; `c` is quantised by alpha * a_scale * b_scale. The result is real without a scale for
    it.
    """
    left = a.astype(np.int64) - a_zero
    # A zero point for each column of the product, which is a row of B where B is transposed.
    right = b.astype(np.int64) - (_along(b_zero, b, 0) if transB else _along(b_zero, b, 1))
    sums = (left.T if transA else left) @ (right.T if transB else right)
    real = (sums if c is None else sums + c.astype(np.int64)) * (np.float64(alpha) * a_scale * b_scale)
    return np.asarray(real) if scale is None else quantise_tensor(real, scale, zero, dtype=a.dtype)


def dynamically_quantised(x: Array) -> tuple[Array, Array, Array]:
    """Quantise X to uint8 by the range of its own values; return also the scale and zero point.

    https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html, in float32, as its scale is one: what is
    off by less falls to other ties.
    """
    narrow = x.astype(np.float32)
    low, high = np.minimum(narrow.min(initial=0), 0), np.maximum(narrow.max(initial=0), 0)
    # A tensor of zeros has no range to divide by.
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.clip(np.rint(np.float32(0) - low / scale), 0, 255).astype(np.uint8)
    return quantise_tensor(narrow, np.asarray(scale), zero), np.asarray(scale).astype(x.dtype), zero


def _to_float(
    a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero: Array | None = None,
    b_zero: Array | None = None, bias: Array | None = None
) -> Array:  # fmt: skip
    left, right = a.astype(np.int64) - _along(a_zero, a, -1), b.astype(np.int64) - _along(b_zero, b, None)
    made = (left @ right) * (np.asarray(_along(a_scale, a, None)) * _along(b_scale, b, None))
    return np.asarray(made if bias is None else made + bias)


def _dynamic_matmul(
    a: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None
) -> Array:
    small, a_scale, a_zero = dynamically_quantised(a)
    return _to_float(small, b, a_scale, b_scale, a_zero, b_zero, bias)


FUNCTIONS: Mapping[str, Function] = {
    "QuantizeLinear": lambda x, scale, zero=None, axis=None: quantise_tensor(
        x, scale, zero, 1 if axis is None else axis, np.uint8
    ),
    "DequantizeLinear": lambda x, scale, zero=None, axis=None: dequantise_tensor(
        x, scale, zero, 1 if axis is None else axis
    ),
    "QLinearAdd": _binary(np.add),
    "QLinearMul": _binary(np.multiply),
    "QLinearSigmoid": _unary(sigmoid),
    "QLinearLeakyRelu": _unary(lambda x, alpha=0.01: np.where(x < 0, alpha * x, x)),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearGlobalAveragePool": _unary(
        _channels_last(lambda x: np.asarray(x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)))
    ),
    "QLinearAveragePool": _unary(
        _channels_last(lambda x, **attributes: standard("AveragePool", x, **attributes))
    ),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QLinearConv": _conv,
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _to_float,
    "MatMulInteger16": lambda a, b: (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32),
    "DynamicQuantizeMatMul": _dynamic_matmul,
}
