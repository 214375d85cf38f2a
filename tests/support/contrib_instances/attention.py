"""Attention: random instances, one function an operator where one expression does not do."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from contrib_instances.drawing import Instance, Rng, byte, maybe, positive, scale, side, some, trimmed


def attention(rng: Rng) -> Instance:
    b, s, n, h, d = side(rng), side(rng), side(rng, 1, 4), 2 * side(rng), 2 * side(rng)
    past = side(rng) if rng.random() < 0.4 else 0
    total = past + s
    masks = [
        None,
        rng.integers(1, total + 1, (b,)),
        rng.random((b, total)) < 0.7,
        rng.random((b, s, total)) < 0.7,
    ]
    mask = masks[int(rng.integers(4))]
    attributes = {
        "num_heads": n,
        **({"unidirectional": 1} if rng.random() < 0.3 else {}),
        **({"scale": 0.3} if rng.random() < 0.3 else {}),
    }
    inputs = trimmed(
        some(rng, b, s, d), some(rng, d, 3 * n * h) / 4, maybe(rng, some(rng, 3 * n * h), 0.95),
        None if mask is None else mask.astype(np.int32), some(rng, 2, b, n, past, h) if past else None,
        maybe(rng, some(rng, b, n, s, total), 0.3),
    )  # fmt: skip
    return Instance(inputs, attributes, 2 if past else 1)


def qattention(rng: Rng) -> Instance:
    b, s, n, h, d = side(rng), side(rng), side(rng, 1, 4), 4, 2 * side(rng)
    past = side(rng) if rng.random() < 0.4 else 0
    wide = [3 * n * h] if rng.random() < 0.5 else []
    inputs = trimmed(
        byte(rng, np.uint8, b, s, d), byte(rng, np.int8, d, 3 * n * h), some(rng, 3 * n * h), scale(rng) / 4,
        scale(rng, *wide) / 4, maybe(rng, rng.integers(1, past + s + 1, (b,)).astype(np.int32)),
        byte(rng, np.uint8), byte(rng, np.int8, *wide), some(rng, 2, b, n, past, h) if past else None,
    )  # fmt: skip
    return Instance(
        inputs, {"num_heads": n, "unidirectional": int(rng.random() < 0.3)}, 2 if past else 1, constants=(1,)
    )


def multi_head(rng: Rng) -> Instance:
    b, s, n, h, v = side(rng), side(rng), side(rng, 1, 4), 2 * side(rng), 2 * side(rng)
    attributes = {
        "num_heads": n,
        **({"unidirectional": 1} if rng.random() < 0.2 else {}),
        **({"scale": 0.3} if rng.random() < 0.3 else {}),
    }
    form = int(rng.choice([0, 1, 2, 3, 3, 3, 3, 3, 3, 3]))
    bias_of = lambda value: maybe(rng, some(rng, n * (2 * h + value)))  # noqa: E731
    if form == 0:
        return Instance(trimmed(some(rng, b, s, n, 3, h), None, None, bias_of(h)), attributes)
    keys = s if attributes.get("unidirectional") else side(rng)
    q = some(rng, b, s, n * h)
    if form == 1:
        return Instance([q, some(rng, b, keys, n, 2, h)], attributes)
    if form == 2:
        return Instance([q, some(rng, b, n, keys, h), some(rng, b, n, keys, h)], attributes)
    past = side(rng) if rng.random() < 0.4 else 0
    v = h if past else v
    keys = s if past else keys
    mask = [None, (rng.random((b, past + keys)) < 0.7).astype(np.int32)][int(rng.integers(2))]
    pasts = [some(rng, b, n, past, h), some(rng, b, n, past, v)] if past else [None, None]
    inputs = trimmed(
        q,
        some(rng, b, keys, n * h),
        some(rng, b, keys, n * v),
        bias_of(v),
        mask,
        maybe(rng, some(rng, b, n, s, past + keys), 0.3),
        *pasts,
    )
    return Instance(inputs, attributes, 3 if past else 1)


def decoder_masked(rng: Rng) -> Instance:
    b, n, h, past = side(rng), side(rng, 1, 4), 4 * side(rng, 1, 3), side(rng)
    q = some(rng, b, 1, n * h)
    if rng.random() < 0.5:
        return Instance([q, some(rng, b, n, past, h), some(rng, b, n, past, h)], {"num_heads": n})
    whole = past + side(rng)
    mask = maybe(rng, (rng.random((b, past + 1)) < 0.7).astype(np.int32))
    pasts = [some(rng, b, n, whole, h) for _ in range(2)]
    inputs = [
        q,
        some(rng, b, 1, n * h),
        some(rng, b, 1, n * h),
        mask,
        None,
        *pasts,
        np.array([past], np.int32),
    ]
    return Instance(inputs, {"num_heads": n, "past_present_share_buffer": 1}, 3, compared=(0,))


def grouped(rng: Rng) -> Instance:
    shared, share, h = side(rng, 1, 3), side(rng, 1, 3), 16 * side(rng, 1, 3)
    n = shared * share
    prompt = rng.random() < 0.5
    b, s, past = side(rng, 1, 3), side(rng) if prompt else 1, 0 if prompt else side(rng)
    total = s + past
    packed, rotary = rng.random() < 0.3, rng.random() < 0.5
    attributes: dict[str, Any] = {"num_heads": n, "kv_num_heads": shared}
    if rng.random() < 0.3:
        attributes["softcap"] = 3.0
    if rng.random() < 0.3:
        attributes["local_window_size"] = side(rng)
    if rng.random() < 0.3:
        attributes["scale"] = 0.3
    parts = (
        [some(rng, b, s, (n + 2 * shared) * h), None, None]
        if packed
        else [some(rng, b, s, n * h), *(some(rng, b, s, shared * h) for _ in range(2))]
    )
    angles = rng.uniform(0, 3, (total + 2, h // 2))
    caches = (
        [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)] if rotary else [None, None]
    )
    if rotary:
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(rng.random() < 0.5)}
    pasts = [None, None] if prompt else [some(rng, b, shared, past, h) for _ in range(2)]
    bias = maybe(rng, some(rng, b, n, s, total), 0.2)
    sink = maybe(rng, some(rng, n), 0.2)
    inputs = trimmed(
        *parts, *pasts, np.full(b, total - 1, np.int32), np.array(total, np.int32), *caches, None, bias, sink
    )
    return Instance(inputs, attributes, 3)


def linear_attention(rng: Rng) -> Instance:
    b, t, dk, dv = side(rng, 1, 3), side(rng), side(rng), side(rng)
    kv, share = side(rng, 1, 3), side(rng, 1, 3)
    q = kv * share
    rule = ["linear", "gated", "delta", "gated_delta"][int(rng.integers(4))]
    decay = -positive(rng, b, t, kv * (dk if rng.random() < 0.5 else 1)) if rule.startswith("gated") else None
    beta = (
        rng.random((b, t, kv if rng.random() < 0.5 else 1)).astype(np.float32)
        if rule.endswith("delta")
        else None
    )
    key = some(rng, b, t, kv * dk) / np.float32(2 * np.sqrt(dk))
    inputs = trimmed(
        some(rng, b, t, q * dk),
        key,
        some(rng, b, t, kv * dv),
        maybe(rng, some(rng, b, kv, dk, dv)),
        decay,
        beta,
    )
    return Instance(inputs, {"q_num_heads": q, "kv_num_heads": kv, "update_rule": rule}, 2)


def rotary(rng: Rng) -> Instance:
    b, s, n, h = side(rng), side(rng), side(rng, 1, 4), 2 * side(rng)
    angles = rng.uniform(0, 3, (s + 3, h // 2))
    places = rng.integers(0, s + 3, (b, s)) if rng.random() < 0.5 else rng.integers(0, 3, (1,))
    x = some(rng, b, n, s, h) if rng.random() < 0.5 else some(rng, b, s, n * h)
    return Instance(
        [x, places, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)],
        {"interleaved": int(rng.random() < 0.5)},
    )


def multimodal_rotary(rng: Rng) -> Instance:
    b, s, n = side(rng), side(rng), side(rng, 1, 4)
    section = [side(rng) for _ in range(3)] if rng.random() < 0.5 else [2, 2, 2]
    layout = int(section == [2, 2, 2] and rng.random() < 0.7)
    h = 2 * sum(section)
    angles = rng.uniform(0, 3, (s + 3, h // 2))
    x = some(rng, b, n, s, h) if rng.random() < 0.5 else some(rng, b, s, n * h)
    attributes = {
        "mrope_section": section,
        "mrope_layout": layout,
        "interleaved": int(rng.random() < 0.5),
        "num_heads": n,
    }
    return Instance(
        [
            x,
            rng.integers(0, s + 3, (3, b, s)),
            np.cos(angles).astype(np.float32),
            np.sin(angles).astype(np.float32),
        ],
        attributes,
    )


INSTANCES: Mapping[str, Callable[[Rng], Instance]] = {
    "Attention": attention,
    "QAttention": qattention,
    "MultiHeadAttention": multi_head,
    "DecoderMaskedMultiHeadAttention": decoder_masked,
    "GroupQueryAttention": grouped,
    "LinearAttention": linear_attention,
    "RotaryEmbedding": rotary,
    "MRotaryEmbedding": multimodal_rotary,
}
