"""Products with weights that are quantised in blocks of a few bits, and mixtures of experts, which have such
weights.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: MatMulNBits, MatMulBnb4,
GatherBlockQuantized, MoE, QMoE. The numbers of FP4 and NF4 are those of QLoRA
(https://arxiv.org/pdf/2305.14314.pdf, appendix E) and of bitsandbytes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opsieve.backends.reference.contrib import activations, attention
from opsieve.backends.reference.contrib.evaluation import Array, Function, not_computed

# The tables of bitsandbytes, which onnxruntime's MatMulBnb4 uses (FP4, then NF4).
_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
FP4 = np.array([*_FP4, *(-value for value in _FP4)])
_NF4 = (
    *(
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
    ),
    *(
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
    ),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
NF4 = np.array(_NF4)


def unpack_bits(packed: Array, bits: int, count: int) -> Array:
    """Return the first `count` integers of each row of bytes, the lowest bits first."""
    ones = np.unpackbits(packed.astype(np.uint8)[..., np.newaxis], axis=-1, bitorder="little")
    flat = ones.reshape(*packed.shape[:-1], -1)
    # Bits that do not fill an integer at the end of a row are padding.
    whole = flat.shape[-1] // bits
    values = flat[..., : whole * bits].reshape(*flat.shape[:-1], whole, bits) @ (1 << np.arange(bits))
    return values[..., :count]


def blocks_dequantised(values: Array, scales: Array, zeros: Array, block: int, axis: int = -1) -> Array:
    """Return (values - zeros) * scales, where each scale and zero point serves `block` values
    along `axis`.
    """
    # The last block may be shorter, so that the repeated scales are cut to the axis.
    side = values.shape[axis]
    wide = [np.repeat(part, block, axis).take(np.arange(side), axis) for part in (scales, zeros)]
    made: Array = (values - wide[1]) * wide[0]
    return made


def _zero_points(zeros: Array | None, bits: int, scales: Array) -> Array:
    if zeros is None:
        # The middle of the range is the default of the page.
        return np.full(scales.shape, 1 << (bits - 1))
    # Zero points of another type are not packed: one number for each block.
    if zeros.dtype != np.uint8:
        return zeros.reshape(scales.shape)
    return unpack_bits(zeros.reshape(*scales.shape[:-1], -1), bits, scales.shape[-1])


def _matmul(
    a: Array, b: Array, scales: Array, zeros: Array | None = None, groups: Array | None = None,
    bias: Array | None = None, K: int = 0, N: int = 0, bits: int = 4, block_size: int = 32,
    accuracy_level: int = 0, weight_prepacked: int = 0,
) -> Array:  # fmt: skip
    """Multiply A by the transposed [N, K] matrix of weights; accuracy levels below 4 compute the same numbers
    in other ways.
    """
    if weight_prepacked or groups is not None or accuracy_level == 4:
        raise not_computed(
            "weights packed for a device, groups by index or int8 activations are not computed"
        )
    # Rounded up: K need not be a multiple of the block.
    blocks = -(-K // block_size)
    values = unpack_bits(b.reshape(N, blocks, -1), bits, block_size).reshape(N, -1)[:, :K]
    scales = scales.reshape(N, blocks)
    weights = blocks_dequantised(values, scales, _zero_points(zeros, bits, scales), block_size)
    made = a @ weights.T
    return np.asarray(made if bias is None else made + bias)


def _bnb4(
    a: Array, b: Array, absmax: Array, K: int = 0, N: int = 0, block_size: int = 16, quant_type: int = 0,
    transB: int = 1, training_mode: int = 0
) -> Array:  # fmt: skip
    """Multiply by weights in bytes whose high half comes first."""
    pairs = b.reshape(-1)
    index = np.stack([pairs >> 4, pairs & 15], axis=-1).reshape(-1)[: N * K]
    values = (NF4 if quant_type else FP4).astype(a.dtype)[index]
    weights = (values * np.repeat(absmax.reshape(-1), block_size)[: N * K]).reshape(N, K)
    return np.asarray(a @ (weights.T if transB else weights))


def _gather(
    data: Array, indices: Array, scales: Array, zeros: Array | None = None, bits: int = 4,
    block_size: int = 128, quantize_axis: int = 1, gather_axis: int = 0,
) -> Array:  # fmt: skip
    """Gather dequantised data; an index out of range gives zeros."""
    axis, block = quantize_axis % data.ndim, block_size
    if data.dtype == np.uint8:
        values = unpack_bits(data, bits, data.shape[-1] * 8 // bits)
        zero = (
            np.full(scales.shape, 1 << (bits - 1))
            if zeros is None
            else unpack_bits(zeros, bits, scales.shape[-1])
        )
    else:
        values = data.astype(scales.dtype)
        zero = np.zeros(scales.shape) if zeros is None else zeros.astype(np.int64)
    sides = [scales.shape[at] if at == axis else side for at, side in enumerate(values.shape)]
    scales, zero = np.broadcast_to(scales, sides), np.broadcast_to(zero, sides)
    real = blocks_dequantised(values, scales, zero, block or values.shape[axis], axis)
    side, along = real.shape[gather_axis], gather_axis % real.ndim
    # np.take would raise for an index out of range, where the kernel gives zeros.
    inside = (indices >= -side) & (indices < side)
    made = np.take(real, np.where(inside, indices, 0), gather_axis)
    shape = [1] * along + list(indices.shape) + [1] * (real.ndim - along - 1)
    return np.where(inside.reshape(shape), made, 0)


def _swiglu(
    first: Array, third: Array | None, fusion: int, alpha: float, beta: float, limit: float | None
) -> Array:
    if fusion == 1:
        gate, linear = first[..., ::2], first[..., 1::2]
    elif fusion == 2 or third is None:
        gate, linear = np.split(first, 2, axis=-1)
    else:
        gate, linear = first, third
    if limit is not None:
        gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    made: Array = gate / (1 + np.exp(-alpha * gate)) * (linear + beta)
    return made


_ACTIVATIONS: Mapping[str, Function] = {
    "relu": lambda x: np.maximum(x, 0),
    # The approximation, on every device, though the page does not say so
    "gelu": activations.gelu_tanh,
    "silu": activations.silu,
    "identity": lambda x: x,
}


def _mixture(
    x: Array, logits: Array, weights: Any, biases: Any, k: int = 1, activation_type: str = "relu",
    normalize_routing_weights: int = 0, use_sparse_mixer: int = 0, swiglu_fusion: int = 0,
    activation_alpha: float = 1.0, activation_beta: float = 0.0, swiglu_limit: float | None = None,
    router_weights: Array | None = None,
) -> Array:  # fmt: skip
    """Mix the k experts of the largest probability, weighted by it (by its share of the k when normalised).

    `weights` and `biases` are those of the three layers, each [experts, out, in] and [experts, out], or None.
    """
    if use_sparse_mixer:
        raise not_computed("a sparse mixer is not computed")
    if activation_type != "swiglu" and activation_type not in _ACTIVATIONS:
        raise not_computed(f"experts with the activation {activation_type[:40]!r} are not computed")
    rows = x.reshape(-1, x.shape[-1])
    # Stable: of equal experts the first ones.
    chosen = np.argsort(-logits, axis=-1, kind="stable")[:, :k]
    if router_weights is not None:
        shares = np.take_along_axis(router_weights, chosen, -1)
        shares = shares / shares.sum(axis=-1, keepdims=True) if normalize_routing_weights else shares
    elif normalize_routing_weights:
        shares = attention.softmax(np.take_along_axis(logits, chosen, -1))
    else:
        shares = np.take_along_axis(attention.softmax(logits), chosen, -1)
    made = np.zeros((len(rows), weights[1].shape[1]), rows.dtype)
    for row, value in enumerate(rows):
        for expert, share in zip(chosen[row], shares[row], strict=True):
            first = _layer(value, weights[0], biases[0], expert)
            third = None if weights[2] is None else _layer(value, weights[2], biases[2], expert)
            if activation_type == "swiglu":
                seen = _swiglu(first, third, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
            else:
                seen = _ACTIVATIONS[activation_type](first)
                seen = seen if third is None else seen * third
            made[row] += share * _layer(seen, weights[1], biases[1], expert)
    return made.reshape(x.shape)


def _layer(value: Array, weights: Array, biases: Array | None, expert: int) -> Array:
    made: Array = weights[expert] @ value
    return made if biases is None else made + biases[expert]


def _quantised_moe(
    x: Array, logits: Array, w1: Array, s1: Array | None, b1: Array | None, w2: Array, s2: Array | None,
    b2: Array | None = None, w3: Array | None = None, s3: Array | None = None, b3: Array | None = None,
    z1: Array | None = None, z2: Array | None = None, z3: Array | None = None,
    router_weights: Array | None = None, *scaled: Array | None, expert_weight_bits: int = 4,
    block_size: int = 0, quant_type: str = "int", weights_prepacked: int = -1, accuracy_level: int = 0,
    **attributes: Any,
) -> Array:  # fmt: skip
    if quant_type != "int" or scaled or weights_prepacked == 1:
        raise not_computed("experts with weights of other kinds than plain integers are not computed")
    named = [attributes.pop(f"fc{at}_expert_weight_bits", expert_weight_bits) for at in (1, 2, 3)]
    layers = zip((w1, w2, w3), (s1, s2, s3), (z1, z2, z3), named, strict=True)
    weights = [None if w is None else _expert_weights(w, s, z, bits, block_size) for w, s, z, bits in layers]
    return _mixture(x, logits, weights, (b1, b2, b3), router_weights=router_weights, **attributes)


def _expert_weights(packed: Array, scales: Array | None, zeros: Array | None, bits: int, block: int) -> Array:
    values = unpack_bits(packed, bits, packed.shape[-1] * 8 // bits)
    if scales is None:
        raise not_computed("weights of experts without scales are not computed")
    wide = scales if scales.ndim == 3 else scales[..., np.newaxis]
    if zeros is None:
        zero = np.full(wide.shape, 1 << (bits - 1))
    elif scales.ndim == 3:
        zero = unpack_bits(zeros, bits, wide.shape[-1])
    else:
        zero = unpack_bits(zeros, bits, scales.shape[-1])[..., np.newaxis]
    return blocks_dequantised(values, wide, zero, block if scales.ndim == 3 else values.shape[-1])


FUNCTIONS: Mapping[str, Function] = {
    "MatMulNBits": _matmul,
    "MatMulBnb4": _bnb4,
    "GatherBlockQuantized": _gather,
    "MoE": lambda x, logits, w1, b1, w2, b2=None, w3=None, b3=None, **attributes: _mixture(
        x, logits, (w1, w2, w3), (b1, b2, b3), **attributes
    ),
    "QMoE": _quantised_moe,
}
