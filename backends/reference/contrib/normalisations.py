"""Normalisations of com.microsoft, with the additions before them and the gates after them.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: SkipLayerNormalization,
SkipSimplifiedLayerNormalization, EmbedLayerNormalization, QEmbedLayerNormalization, GatedRMSNorm,
BranchwiseRMSNorm, EngramGate, GatedAdd, HyperConnectionPreMix and -PostMix, LinearAttentionGate; onnxruntime
registers SimplifiedLayerNormalization in ONNX's own domain, although ONNX does not define it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opsieve.backends.reference.contrib.activations import sigmoid, silu
from opsieve.backends.reference.contrib.evaluation import Array, Function, not_computed
from opsieve.backends.reference.contrib.quantised import dequantise_tensor

_GATES: Mapping[str, Function] = {"silu": silu, "swish": silu, "sigmoid": sigmoid}


def rms(x: Array, epsilon: float, axis: int = -1) -> tuple[Array, Array]:
    """Divide X by the root of its mean square along `axis` and all behind it; return also the reciprocal of
    that root.
    """
    axes = tuple(range(axis % x.ndim, x.ndim))
    inverse: Array = 1 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + epsilon)
    return x * inverse, inverse


def _layer(x: Array, scale: Array, bias: Array | None, epsilon: float) -> tuple[Array, Array, Array]:
    mean = x.mean(axis=-1, keepdims=True)
    normal, inverse = rms(x - mean, epsilon)
    return normal * scale + (0 if bias is None else bias), mean, inverse


def _skip(
    x: Array,
    skip: Array,
    scale: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-12,
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    return (*_layer(total, scale, beta, epsilon), total)


def _skip_simplified(
    x: Array, skip: Array, scale: Array, bias: Array | None = None, epsilon: float = 1e-12
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    normal, inverse = rms(total, epsilon)
    return normal * scale, np.zeros_like(inverse), inverse, total


def _run_simplified(
    x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    normal, inverse = rms(x, epsilon, axis)
    return normal * scale, inverse


def _run_embedding(
    ids: Array, segments: Array | None, words: Array, places: Array, kinds: Array | None, scale: Array,
    bias: Array, mask: Array | None = None, position_ids: Array | None = None, epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Any:  # fmt: skip
    """Return the normalised sum of up to three embeddings, the number of words in the mask, and the sum
    itself.
    """
    batch, length = ids.shape
    at = np.arange(length)[np.newaxis] if position_ids is None else position_ids
    for table, index in ((words, ids), (places, at)):
        if ((index < 0) | (index >= len(table))).any():
            # numpy would count a negative index from the end.
            raise IndexError(f"a word or its place is out of bounds for an embedding of {len(table)} rows")
    total = words[ids] + places[np.broadcast_to(at, ids.shape)]
    if segments is not None and kinds is not None:
        total = total + kinds[segments]
    # How many elements that are not 0 each row begins with: "position of first 0 in mask, or number of
    # words".
    there = (
        np.zeros(batch, np.int32)
        if mask is None
        else np.asarray(np.cumprod(mask != 0, axis=1).sum(axis=1), np.int32)
    )
    return _layer(total, scale, bias, epsilon)[0], there, total


def _quantised_embedded(
    ids: Array, segments: Array | None, words: Array, places: Array, kinds: Array | None, scale: Array,
    bias: Array, mask: Array | None, *quantisation: Any, epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    scales, zeros = quantisation[:5], quantisation[5:]
    tables = [
        None if table is None else dequantise_tensor(table, by, zero)
        for table, by, zero in zip((words, places, kinds, scale, bias), scales, zeros, strict=True)
    ]
    # Only the segments' may be left out
    words, places, kinds, scale, bias = tables  # type: ignore[assignment]
    return _run_embedding(ids, segments, words, places, kinds, scale, bias, mask, epsilon=epsilon)[:2]


def _gated_rms(x: Array, scale: Array, gate: Array, activation: str = "silu", epsilon: float = 1e-5) -> Array:
    if activation not in _GATES:
        raise not_computed(f"a gate {activation[:40]!r} is not computed")
    grouped = x.reshape(*x.shape[:-1], -1, len(scale))
    return np.asarray((rms(grouped, epsilon)[0] * scale).reshape(x.shape) * _GATES[activation](gate))


def _branches(x: Array, count: int) -> Array:
    """Reshape a flattened [..., C * H] to [..., C, H]."""
    return x.reshape(*x.shape[:-1], count, -1) if count else x


def _branchwise(x: Array, scale: Array | None = None, num_branches: int = 0, epsilon: float = 1e-5) -> Array:
    normal = rms(_branches(x, num_branches), epsilon)[0]
    if scale is not None:
        normal = normal * (
            scale.reshape(normal.shape[-2:]) if scale.size == np.prod(normal.shape[-2:]) else scale
        )
    return normal.reshape(x.shape)


def _mixing(gates: Array, streams: Array) -> Array:
    """Return gates of branches (..., C), (..., C, 1), or of features, as an array that broadcasts with
    streams (..., C, H).
    """
    if gates.ndim == streams.ndim:
        return gates
    by_feature = (
        gates.shape[-1] == streams.shape[-2] * streams.shape[-1] and gates.shape[-1] != streams.shape[-2]
    )
    return gates.reshape(streams.shape) if by_feature else gates[..., np.newaxis]


def _pre_mix(streams: Array, gates: Array, reduction_scale: float = 1.0, num_branches: int = 0) -> Array:
    grouped = _branches(streams, num_branches)
    return np.asarray(reduction_scale * (grouped * _mixing(gates, grouped)).sum(axis=-2))


def _post_mix(
    streams: Array, block: Array, gates: Array, mix: Array | None = None, num_branches: int = 0
) -> Array:
    grouped = _branches(streams, num_branches)
    kept = grouped if mix is None else np.swapaxes(mix, -1, -2) @ grouped
    return np.asarray(kept + _mixing(gates, grouped) * block[..., np.newaxis, :]).reshape(streams.shape)


def _engram(
    key: Array, query: Array, value: Array, key_scale: Array, query_scale: Array,
    out_scale: Array | None = None, epsilon: float = 1e-5
) -> Any:  # fmt: skip
    dot = (rms(key, epsilon)[0] * key_scale * rms(query, epsilon)[0] * query_scale).sum(
        axis=-1, keepdims=True
    )
    dot = dot / np.sqrt(key.shape[-1])
    gated = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), 1e-6))) * value[..., np.newaxis, :]
    return gated, None if out_scale is None else rms(gated, epsilon)[0] * out_scale


FUNCTIONS: Mapping[str, Function] = {
    "SkipLayerNormalization": _skip,
    "SkipSimplifiedLayerNormalization": _skip_simplified,
    "EmbedLayerNormalization": _run_embedding,
    "QEmbedLayerNormalization": _quantised_embedded,
    "GatedRMSNorm": _gated_rms,
    "GatedAdd": lambda x, y, gate: x + y * gate,
    "BranchwiseRMSNorm": _branchwise,
    "HyperConnectionPreMix": _pre_mix,
    "HyperConnectionPostMix": _post_mix,
    "EngramGate": _engram,
    "LinearAttentionGate": lambda a, bias, scale, b=None: (
        scale * np.logaddexp(a + bias, 0),
        None if b is None else sigmoid(b),
    ),
}
STANDARD_DOMAIN: Mapping[str, Function] = {"SimplifiedLayerNormalization": _run_simplified}
