"""LSTMs of onnxruntime's own domain: random instances."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from contrib_instances.drawing import Instance, Rng, byte, bytes_of, maybe, scale, side, some, trimmed


def _common(rng: Rng) -> tuple[dict[str, Any], int, int, list[Any]]:
    """Attributes, directions, the side of the hidden state, and the inputs from B to P."""
    direction = ["forward", "reverse", "bidirectional"][int(rng.integers(3))]
    directions, batch, hidden = 2 if direction == "bidirectional" else 1, side(rng), side(rng)
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if rng.random() < 0.3:
        attributes["input_forget"] = 1
    if rng.random() < 0.3:
        attributes["activations"] = ["HardSigmoid", "Softsign", "Tanh"] * directions
    b, p = maybe(rng, some(rng, directions, 8 * hidden)), maybe(rng, some(rng, directions, 3 * hidden), 0.3)
    states = [maybe(rng, some(rng, directions, batch, hidden)) for _ in range(2)]
    return attributes, directions, hidden, [b, None, *states, p, batch]


def attentive(rng: Rng) -> Instance:
    attributes, directions, hidden, (b, _, h, c, p, batch) = _common(rng)
    steps, wide, depth, slots, inner = (side(rng) for _ in range(5))
    layer = maybe(rng, some(rng, directions, depth + hidden, side(rng)))
    attention = depth if layer is None else layer.shape[-1]
    lengths = maybe(rng, rng.integers(1, steps + 1, batch).astype(np.int32), 0.3)
    inputs = [
        some(rng, steps, batch, wide), some(rng, directions, 4 * hidden, wide + attention),
        some(rng, directions, 4 * hidden, hidden), b, lengths, h, c, p, some(rng, directions, hidden, inner),
        some(rng, directions, depth, inner), some(rng, directions, inner), some(rng, batch, slots, depth),
        maybe(rng, rng.integers(1, slots + 1, batch).astype(np.int32)), layer,
    ]  # fmt: skip
    return Instance(trimmed(*inputs), attributes, 3)


def quantised(rng: Rng) -> Instance:
    attributes, directions, hidden, (b, _, h, c, p, batch) = _common(rng)
    steps, wide, kind, each = side(rng), side(rng), bytes_of(rng), rng.random() < 0.5
    size = (directions, 4 * hidden) if each else (directions,)
    zero = np.full(size, 0 if kind == np.int8 else int(rng.integers(0, 128)), kind)
    # Seven bits: without VNNI, onnxruntime's kernel for int8 adds two products in 16 bits, which saturate with eight.
    weights, recurrent = (byte(rng, kind, directions, rows, 4 * hidden) // kind(2) for rows in (wide, hidden))
    inputs = [
        some(rng, steps, batch, wide), weights, recurrent, b, None, h, c, p, scale(rng, *size) / 10, zero,
        scale(rng, *size) / 10, zero,
    ]  # fmt: skip
    return Instance(inputs, attributes, 3, constants=(1, 2, 8, 9, 10, 11))


INSTANCES: Mapping[str, Callable[[Rng], Instance]] = {"AttnLSTM": attentive, "DynamicQuantizeLSTM": quantised}
