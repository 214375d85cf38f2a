"""Attention of com.microsoft, and what goes with it.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: Attention, MultiHeadAttention,
DecoderMaskedMultiHeadAttention, QAttention, GroupQueryAttention, SparseAttention, LinearAttention,
RotaryEmbedding, MRotaryEmbedding. Arrays are [batch, heads, length, size] inside. A masked key has
`mask_filter_value` added to its score, so a row of masked keys alone is not open: all are equal again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opsieve.backends.reference.contrib.evaluation import Array, Function, not_computed
from opsieve.backends.reference.contrib.quantised import dequantise_tensor

# onnxruntime adds this number instead of an infinity, so that a row without keys stays finite. The reference
# must do the same.
_MASKED = -10000.0
# A mask of this many times the batch has the ends of the keys, then their starts
_LEFT_AND_RIGHT = 2


def heads(x: Array, count: int) -> Array:
    """Split heads: [batch, length, count * size] to [batch, count, length, size]."""
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """Merge heads: [batch, count, length, size] to [batch, length, count * size]."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def softmax(scores: Array, sink: Any = None) -> Array:
    """Return the weights of each row; a sink is one more score that takes a share and has no value."""
    # The largest is subtracted so that exp does not overflow.
    top = scores.max(axis=-1, keepdims=True)
    top = top if sink is None else np.maximum(top, sink)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    made: Array = weights / (total if sink is None else total + np.exp(sink - top))
    return made


def _mask(mask: Array | None, batch: int, queries: int, keys: int, filtered: float) -> Array | float:
    """Return the numbers that a mask of any documented shape adds to the scores."""
    if mask is None:
        return 0.0
    at = np.arange(keys)
    if mask.ndim == 1 and len(mask) in (batch, _LEFT_AND_RIGHT * batch):
        there = at < mask[:batch, np.newaxis]
        if len(mask) > batch:
            there = there & (at >= mask[batch:, np.newaxis])
        seen = there[:, np.newaxis, np.newaxis]
    elif mask.ndim == 2:
        seen = (mask > 0)[:, np.newaxis, np.newaxis, :]
    elif mask.ndim == 3:
        seen = (mask > 0)[:, np.newaxis]
    elif mask.ndim == 4:
        seen = (mask > 0)[:, :, keys - queries : keys, :keys]
    else:
        raise not_computed("a mask of this shape is not computed")
    return np.where(seen, 0.0, filtered)


def _attend(
    q: Array, k: Array, v: Array, added: Array | float, scale: float | None, causal: bool = False
) -> tuple[Array, Array]:
    """Return what each query reads, merged, and its scores before the softmax."""
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale) + added
    queries, keys = scores.shape[-2:]
    # The last query stands at the last key. With a past there are more keys than queries, and the diagonal
    # moves right by the difference.
    seen = np.where(np.tri(queries, keys, keys - queries, bool), scores, -np.inf) if causal else scores
    return merge_heads(softmax(seen) @ v), scores


def _behind(past: Array | None, new: Array) -> Array:
    return new if past is None else np.concatenate([past, new], axis=2)


def _self_attention(
    projected: Array, sizes: Any, mask: Array | None, past: Array | None, bias: Array | None, num_heads: int,
    unidirectional: int, scale: float | None, mask_filter_value: float,
) -> Any:  # fmt: skip
    """Compute the attention of Q, K and V that lie beside each other; return also the new keys and values
    behind those of the past.
    """
    q, k, v = (heads(part, num_heads) for part in np.split(projected, np.cumsum(sizes)[:-1], axis=-1))
    # `past` holds keys and values on its first axis.
    k, v = (_behind(None if past is None else past[at], new) for at, new in enumerate((k, v)))
    added = _mask(mask, q.shape[0], q.shape[2], k.shape[2], mask_filter_value) + (0 if bias is None else bias)
    made, _ = _attend(q, k, v, added, scale, bool(unidirectional))
    return made, np.stack([k, v]) if k.shape == v.shape else None


def _attention(
    x: Array, w: Array, b: Array | None = None, mask: Array | None = None, past: Array | None = None,
    bias: Array | None = None, past_length: Array | None = None, num_heads: int = 1, unidirectional: int = 0,
    scale: float | None = None, mask_filter_value: float = _MASKED, qkv_hidden_sizes: Any = None,
    do_rotary: int = 0, past_present_share_buffer: int = 0, **_: Any,
) -> Any:  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise not_computed("Attention with rotary embedding or a shared buffer is not computed")
    projected = x @ w + (0 if b is None else b)
    sizes = qkv_hidden_sizes or [w.shape[1] // 3] * 3
    return _self_attention(
        projected, sizes, mask, past, bias, num_heads, unidirectional, scale, mask_filter_value
    )


def _quantised_attention(
    x: Array, w: Array, b: Array, x_scale: Array, w_scale: Array, mask: Array | None = None,
    x_zero: Array | None = None, w_zero: Array | None = None, past: Array | None = None, num_heads: int = 1,
    unidirectional: int = 0, scale: float | None = None, mask_filter_value: float = _MASKED,
    do_rotary: int = 0, past_present_share_buffer: int = 0,
) -> Any:  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise not_computed("QAttention with rotary embedding or a shared buffer is not computed")
    projected = dequantise_tensor(x, x_scale, x_zero) @ dequantise_tensor(w, w_scale, w_zero, 1) + b
    sizes = [w.shape[1] // 3] * 3
    return _self_attention(
        projected, sizes, mask, past, None, num_heads, unidirectional, scale, mask_filter_value
    )


def _unpack_heads(
    query: Array, key: Array | None, value: Array | None, num_heads: int
) -> tuple[Array, Array, Array]:
    """Return Q, K and V by head: packed [.., heads, 3, size], K and V packed [.., heads, 2, size], K and V by
    head already, or side by side.
    """
    if query.ndim == 5:
        return tuple(query[:, :, :, part].swapaxes(1, 2) for part in range(3))  # type: ignore[return-value]
    q = heads(query, num_heads)
    if key is not None and key.ndim == 5:
        return q, key[:, :, :, 0].swapaxes(1, 2), key[:, :, :, 1].swapaxes(1, 2)
    if key is None or value is None:
        raise not_computed("attention without keys is not computed")
    return q, *(  # type: ignore[return-value]
        part if part.ndim == 4 else heads(part, num_heads) for part in (key, value)
    )


def _multi_head(
    query: Array, key: Array | None = None, value: Array | None = None, b: Array | None = None,
    mask: Array | None = None, bias: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, past_length: Array | None = None, cache: Array | None = None,
    num_heads: int = 1, unidirectional: int = 0, scale: float | None = None,
    mask_filter_value: float = _MASKED,
) -> Any:  # fmt: skip
    if past_length is not None or cache is not None:
        raise not_computed("MultiHeadAttention with a shared buffer is not computed")
    q, k, v = _unpack_heads(query, key, value, num_heads)
    if b is not None:
        parts = np.split(b, np.cumsum([num_heads * part.shape[-1] for part in (q, k)]))
        by_head = [part.reshape(num_heads, 1, -1) for part in parts]
        q = q + by_head[0]
        # A value given by head is already projected.
        if key is None or key.ndim != 4:
            k, v = k + by_head[1], v + by_head[2]
    k, v = _behind(past_key, k), _behind(past_value, v)
    added = _mask(mask, q.shape[0], q.shape[2], k.shape[2], mask_filter_value) + (0 if bias is None else bias)
    made, scores = _attend(q, k, v, added, scale, bool(unidirectional))
    return made, k, v, scores


def _decoder_masked(
    query: Array, key: Array | None = None, value: Array | None = None, mask: Array | None = None,
    bias: Array | None = None, past_key: Array | None = None, past_value: Array | None = None,
    past_length: Array | None = None, beams: Array | None = None, cache: Array | None = None,
    b: Array | None = None, num_heads: int = 1, scale: float | None = None,
    mask_filter_value: float = _MASKED, past_present_share_buffer: int = 0, output_qk: int = 0,
) -> Any:  # fmt: skip
    """Compute attention for one query. Keys by head are those of cross attention; a buffer shared by past
    and present has free places behind the past.
    """
    if cache is not None or beams is not None:
        raise not_computed("DecoderMaskedMultiHeadAttention of beams is not computed")
    buffers = None
    if (
        past_present_share_buffer
        and past_key is not None
        and past_value is not None
        and past_length is not None
    ):
        # Copied, because a shared buffer is an input as well, and the same inputs run on other compilers.
        buffers, length = (past_key.copy(), past_value.copy()), int(past_length.reshape(-1)[0])
        past_key, past_value = past_key[:, :, :length], past_value[:, :, :length]
    made = _multi_head(
        query, key, value, b, mask, bias, past_key, past_value, num_heads=num_heads, scale=scale,
        mask_filter_value=mask_filter_value
    )  # fmt: skip
    if buffers is None:
        return made
    for buffer, new in zip(buffers, made[1:3], strict=True):
        buffer[:, :, : new.shape[2]] = new
    return made[0], *buffers, made[3]


def rotate_pairs(x: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    """Rotate X [..., size] by angles [..., size'/2], in pairs beside each other or one from each half;
    elements beyond size' stay.
    """
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    real, imaginary = (turned[..., ::2], turned[..., 1::2]) if interleaved else np.split(turned, 2, axis=-1)
    parts = (real * cos - imaginary * sin, real * sin + imaginary * cos)
    made = np.stack(parts, -1).reshape(turned.shape) if interleaved else np.concatenate(parts, -1)
    return np.concatenate([made, rest], axis=-1)


def _by_head(x: Array, num_heads: int, rotary: int, width: int) -> Array:
    if x.ndim == 4:
        return x
    return heads(x, num_heads if num_heads else x.shape[2] // (rotary or 2 * width))


def _rotary(
    x: Array, places: Array, cos: Array, sin: Array, interleaved: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0, is_packed_batching: int = 0, scale: float = 1.0,
) -> Array:  # fmt: skip
    wide = _by_head(x, num_heads, rotary_embedding_dim, cos.shape[1])
    at = (
        places.reshape(-1)[0] + np.arange(wide.shape[2])[np.newaxis]
        if places.size == 1 and places.ndim == 1
        else places
    )
    # Of a cache for the whole head the first columns
    turned = rotary_embedding_dim // 2 or cos.shape[1]
    made = rotate_pairs(wide, cos[at, :turned][:, np.newaxis], sin[at, :turned][:, np.newaxis], interleaved)
    return made if x.ndim == 4 else merge_heads(made)


def _streams(section: Any, layout: int, width: int) -> Array:
    """Return at which of the three places (time, height, width) each angle is taken."""
    if not layout:
        return np.repeat(np.arange(3), section)
    chosen = np.zeros(width, np.int64)
    for stream in (1, 2):
        chosen[stream : section[stream] * 3 : 3] = stream
    return chosen


def _multimodal_rotary(
    x: Array, places: Array, cos: Array, sin: Array, mrope_section: Any = (), mrope_layout: int = 0,
    interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Array:  # fmt: skip
    wide = _by_head(x, num_heads, rotary_embedding_dim, cos.shape[1])
    streams, angles = _streams(mrope_section, mrope_layout, cos.shape[1]), np.arange(cos.shape[1])
    # [batch, length, angles]
    at = np.moveaxis(places, 0, -1)[..., streams]
    made = rotate_pairs(wide, cos[at, angles][:, np.newaxis], sin[at, angles][:, np.newaxis], interleaved)
    return made if x.ndim == 4 else merge_heads(made)


def _append_to_cache(past: Array | None, new: Array, start: Array, total: int) -> Array:
    """Append the new rows of each item of the batch to its own past; unwritten rows are 0."""
    batch, count, _, size = new.shape
    cache = np.zeros((batch, count, max(total, 0 if past is None else past.shape[2]), size), new.dtype)
    for item, begin in enumerate(start):
        if past is not None:
            cache[item, :, :begin] = past[item, :, :begin]
        cache[item, :, begin : begin + new.shape[2]] = new[item][:, : cache.shape[2] - begin]
    return cache


def _run_grouped_query(
    query: Array, key: Array | None, value: Array | None, past_key: Array | None, past_value: Array | None,
    ends: Array, total: Array, cos: Array | None = None, sin: Array | None = None,
    places: Array | None = None, bias: Array | None = None, sink: Array | None = None,
    k_scale: Array | None = None, v_scale: Array | None = None, q_norm: Array | None = None,
    k_norm: Array | None = None, num_heads: int = 1, kv_num_heads: int = 1, softcap: float = 0.0,
    do_rotary: int = 0, causal: int = 1, scale: float | None = None, local_window_size: int = -1,
    rotary_interleaved: int = 0, qk_output: int = 0, smooth_softmax: int = 0, sliding_window_cache: int = 0,
    k_quant_type: str = "NONE", v_quant_type: str = "NONE", seen: Array | None = None, **_: Any,
) -> Any:  # fmt: skip
    """Attend with query heads in groups that share a key; `ends` is the place of each item's last key. `seen`
    limits the keys of each head.
    """
    if sliding_window_cache or k_quant_type != "NONE" or v_quant_type != "NONE" or q_norm is not None:
        raise not_computed("a cache that is quantised or slides, or a norm of queries, is not computed")
    q, k, v = _grouped_parts(query, key, value, num_heads, kv_num_heads)
    length, whole = q.shape[2], int(total.reshape(-1)[0])
    last = ends.reshape(-1).astype(np.int64)
    # As many queries as keys: the first call, which has no past.
    start = np.zeros_like(last) if length == whole else last + 1 - length
    at = start[:, np.newaxis] + np.arange(length)
    if do_rotary and cos is not None and sin is not None:
        turn = at if places is None else places
        turns = cos[turn][:, np.newaxis], sin[turn][:, np.newaxis]
        q, k = rotate_pairs(q, *turns, rotary_interleaved), rotate_pairs(k, *turns, rotary_interleaved)
    k, v = _append_to_cache(past_key, k, start, whole), _append_to_cache(past_value, v, start, whole)
    # Each key serves this many neighbouring query heads.
    share = num_heads // kv_num_heads
    wide_k, wide_v = (np.repeat(part[:, :, :whole], share, axis=1) for part in (k, v))
    scores = q @ wide_k.swapaxes(-1, -2) * (scale or 1 / np.sqrt(q.shape[-1]))
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    scores = scores if bias is None else scores + bias[..., :whole]
    there, here = np.arange(whole), at[:, np.newaxis, :, np.newaxis]
    visible = (there <= here) if causal else (there <= last[:, np.newaxis, np.newaxis, np.newaxis])
    if local_window_size > 0:
        visible = visible & (there > here - local_window_size)
    visible = visible if seen is None else visible & seen
    masked = np.where(visible, scores, -np.inf)
    # A smooth softmax is one whose sink has the score 0.
    extra = sink.reshape(1, -1, 1, 1) if sink is not None else (0.0 if smooth_softmax == 1 else None)
    weights = softmax(masked, extra)
    return merge_heads(weights @ wide_v), k, v, weights if qk_output == 2 else scores


def _grouped_parts(query: Array, key: Array | None, value: Array | None, count: int, shared: int) -> Any:
    if key is not None and value is not None:
        return heads(query, count), heads(key, shared), heads(value, shared)
    both = heads(query, count + 2 * shared)
    return both[:, :count], both[:, count : count + shared], both[:, count + shared :]


def _sparse(
    query: Array, key: Array | None, value: Array | None, past_key: Array, past_value: Array, rows: Array,
    columns: Array, total: Array, lengths: Array, cos: Array | None = None, sin: Array | None = None,
    num_heads: int = 1, sparse_block_size: int = 16, **attributes: Any,
) -> Any:  # fmt: skip
    """Compute GroupQueryAttention of blocks that a mask in CSR names; the heads take the layouts in turn."""
    whole = int(total.reshape(-1)[0])
    blocks = np.zeros((num_heads, rows.shape[1] - 1, rows.shape[1] - 1), bool)
    for head in range(num_heads):
        layout = head % len(rows)
        for row, (begin, end) in enumerate(zip(rows[layout], rows[layout][1:], strict=False)):
            blocks[head, row, columns[layout][begin:end]] = True
    wide = blocks.repeat(sparse_block_size, 1).repeat(sparse_block_size, 2)
    length = query.shape[1]
    # The queries are the last rows of the layout.
    first = 0 if length == whole else whole - length
    seen = wide[np.newaxis, :, first : first + length, :whole]
    return _run_grouped_query(
        query, key, value, past_key, past_value, lengths - 1, total, cos, sin, num_heads=num_heads, seen=seen,
        **attributes
    )[:3]  # fmt: skip


def _linear(
    query: Array, key: Array, value: Array, past: Array | None = None, decay: Array | None = None,
    beta: Array | None = None, q_num_heads: int = 1, kv_num_heads: int = 1, scale: float = 0.0,
    update_rule: str = "gated_delta", state_window: int = 0, chunk_size: int = 64,
) -> Any:  # fmt: skip
    """Compute the recurrence over the steps; a state is [batch, heads, d_k, d_v]."""
    size = query.shape[-1] // q_num_heads
    q, k, v = heads(query, q_num_heads), heads(key, key.shape[-1] // size), heads(value, kv_num_heads)
    count, steps = max(q_num_heads, kv_num_heads), q.shape[2]
    k = np.repeat(k, kv_num_heads // k.shape[1], axis=1)
    state = (
        np.zeros((*k.shape[:2], size, v.shape[-1]), q.dtype)
        if past is None
        else past[-1]
        if state_window
        else past
    )
    outputs, states = [], []
    for step in range(steps):
        # The page's order: decay first, then the delta against what the decayed state returns.
        if update_rule.startswith("gated") and decay is not None:
            state = state * np.exp(decay[:, step].reshape(*k.shape[:2], -1, 1))
        new, at = v[:, :, step], k[:, :, step]
        if update_rule.endswith("delta") and beta is not None:
            new = beta[:, step][..., np.newaxis] * (new - np.einsum("bhkv,bhk->bhv", state, at))
        state = state + at[..., np.newaxis] * new[..., np.newaxis, :]
        read = np.repeat(state, count // kv_num_heads, axis=1)
        asked = np.repeat(q[:, :, step], count // q_num_heads, axis=1)
        outputs.append((scale or 1 / np.sqrt(size)) * np.einsum("bhkv,bhk->bhv", read, asked))
        states.append(state)
    window = [np.zeros_like(state)] * max(0, state_window - steps) + states
    return merge_heads(np.stack(outputs, axis=2)), np.stack(window[-state_window:]) if state_window else state


FUNCTIONS: Mapping[str, Function] = {
    "Attention": _attention,
    "QAttention": _quantised_attention,
    "MultiHeadAttention": _multi_head,
    "DecoderMaskedMultiHeadAttention": _decoder_masked,
    "GroupQueryAttention": _run_grouped_query,
    "SparseAttention": _sparse,
    "LinearAttention": _linear,
    "RotaryEmbedding": _rotary,
    "MRotaryEmbedding": _multimodal_rotary,
}
