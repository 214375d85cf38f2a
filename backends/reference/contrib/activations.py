"""Activations of com.microsoft, and products and convolutions that end in one.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: Gelu, FastGelu, BiasGelu,
QuickGelu, FusedConv, FusedGemm, FusedMatMul, TransposeMatMul, ScaledSiLU; the layouts of com.microsoft.nchwc
are described in onnxruntime/core/mlas/lib/snchwc.cpp.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.backends.reference.contrib.evaluation import Array, Function, not_computed, standard
from opsieve.backends.reference.reference_ops_recurrent import ACTIVATIONS

# As ONNX's Selu has them
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    made: Array = 1 / (1 + np.exp(-x))
    return made


def silu(x: Array) -> Array:
    """X times its sigmoid."""
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    """X times the normal distribution function of x."""
    made: Array = 0.5 * x * (1 + standard("Erf", x / math.sqrt(2)))
    return made


def gelu_tanh(x: Array) -> Array:
    """Approximate Gelu by a tanh, with the numbers on the page of FastGelu."""
    # sqrt(2/pi), and 0.044715 times it.
    made: Array = 0.5 * x * (1 + np.tanh(0.7978845608028654 * x + 0.035677408136300125 * x**3))
    return made


def apply_activation(x: Array, name: str, params: Sequence[float] = ()) -> Array:
    """Apply an activation by its name, with its parameters in the order of the operator's attributes; an
    empty name is the identity.
    """
    kind = name.lower()
    if not kind:
        return x
    if kind == "clip":
        return np.clip(x, params[0], params[1])
    if kind == "selu":
        # Given parameters replace the defaults from the left.
        alpha, gamma = [*params, *_SELU[len(params) :]]
        # expm1 keeps the digits of small x, of which exp(x) - 1 cancels half.
        made: Array = gamma * np.where(x < 0, alpha * np.expm1(x), x)
        return made
    if kind == "gelu":
        return gelu(x)
    if kind not in ACTIVATIONS:
        raise not_computed(f"an activation {name[:40]!r} is not computed")
    function, *defaults = ACTIVATIONS[kind]
    return function(x, *params[:2], *defaults[len(params) :])


def _conv(
    x: Array, w: Array, b: Array | None = None, z: Array | None = None, activation: str = "",
    activation_params: Sequence[float] = (), **attributes: Any
) -> Array:  # fmt: skip
    """Compute Conv with `z` added to it before the activation."""
    made = standard("Conv", x, w, b, **attributes)
    return apply_activation(made if z is None else made + z, activation, activation_params)


def _gemm(a: Array, b: Array, c: Array | None = None, activation: str = "", **attributes: Any) -> Array:
    # FusedGemm has an attribute for each, where FusedConv has one list.
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    params = [attributes.pop(name) for name in names if name in attributes]
    return apply_activation(standard("Gemm", a, b, c, **attributes), activation, params)


def _matmul(
    a: Array,
    b: Array,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    """Multiply matrices, each transposed first as its attributes say: `transBatch` moves the first axis
    behind the other batch axes.
    """
    left, right = _turn_matrix(a, transA, transBatchA), _turn_matrix(b, transB, transBatchB)
    return np.asarray(alpha * np.matmul(left, right))


def _turn_matrix(x: Array, last: int, batch: int) -> Array:
    if x.ndim < 2:
        return x
    if batch:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if last else x


FUNCTIONS: Mapping[str, Function] = {
    "Gelu": gelu,
    "FastGelu": lambda x, bias=None: gelu_tanh(x if bias is None else x + bias),
    "BiasGelu": lambda x, bias: gelu(x + bias),
    "QuickGelu": lambda x, alpha=1.702: x * sigmoid(alpha * x),
    "ScaledSiLU": lambda x, scale=None, alpha=1.0: silu(x * (alpha if scale is None else scale.reshape(()))),
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "TransposeMatMul": _matmul,
}
