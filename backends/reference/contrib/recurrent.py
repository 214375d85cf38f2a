"""LSTMs of com.microsoft: one with attention to a memory, and one whose products are of integers.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: AttnLSTM, DynamicQuantizeLSTM.
The equations of the cell are those of ONNX's LSTM.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opsieve.backends.reference.contrib.attention import softmax
from opsieve.backends.reference.contrib.evaluation import Array, Function, not_computed
from opsieve.backends.reference.contrib.quantised import dynamically_quantised
from opsieve.backends.reference.reference_ops_recurrent import Step, activations, lstm_step, unroll_steps


def _attentive(
    x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
    h: Array | None = None, c: Array | None = None, p: Array | None = None, query: Array | None = None,
    memory_weights: Array | None = None, v: Array | None = None, memory: Array | None = None,
    memory_lengths: Array | None = None, layer: Array | None = None, direction: str = "forward",
    **attributes: Any,
) -> Any:  # fmt: skip
    """Make an LSTM that gets X beside its attention state: that state stands behind H while the steps run,
    and is zero at first.
    """
    if query is None or memory_weights is None or v is None or memory is None:
        raise not_computed(
            "AttnLSTM without one of QW, MW, V and M: the page calls them optional and gives no meaning to"
            " that"
        )
    directions, hidden = w.shape[0], r.shape[-1]
    h, c, b, p = _defaults(x, directions, hidden, h, c, b, p)
    # what is past the real length of the memory is no candidate of the alignment either, as in every Bahdanau
    # attention: the page says it of VALUES alone
    real = (
        np.full(memory.shape[:2], True)
        if memory_lengths is None
        else np.arange(memory.shape[1]) < memory_lengths.reshape(-1, 1)
    )
    values = np.where(real[..., np.newaxis], memory, 0)
    functions, steps = activations("LSTM", directions, attributes), []
    for at in range(directions):
        cell = lstm_step(functions[at], _products(w[at].T, r[at].T, b[at]), p[at], attributes)
        keys = values @ memory_weights[at]
        steps.append(
            _attending(
                cell, hidden, query[at], keys, v[at], values, real, None if layer is None else layer[at]
            )
        )
    wide = (memory if layer is None else layer).shape[-1]
    # The attention state travels in H, so that the common loop need not know of it.
    start = np.concatenate([h, np.zeros((*h.shape[:2], wide), x.dtype)], axis=-1)
    outputs, last_h, last_c = unroll_steps(steps, direction, x, lengths, start, c)
    return outputs[..., :hidden], last_h[..., :hidden], last_c


def _attending(
    cell: Step,
    hidden: int,
    query: Array,
    keys: Array,
    v: Array,
    values: Array,
    real: Array,
    layer: Array | None,
) -> Step:
    def step(x: Array, state: Array, c: Array) -> tuple[Array, Array]:
        h, kept = cell(np.concatenate([x, state[:, hidden:]], axis=-1), state[:, :hidden], c)
        scores = (np.tanh(keys + (h @ query)[:, np.newaxis]) * v).sum(axis=-1)
        alignment = softmax(np.where(real, scores, -np.inf))
        context = np.einsum("bs,bsd->bd", alignment, values)
        attention = context if layer is None else np.concatenate([h, context], axis=-1) @ layer
        return np.concatenate([h, attention], axis=-1), kept

    return step


def _run_quantised(
    x: Array, w: Array, r: Array, b: Array | None, lengths: Array | None, h: Array | None, c: Array | None,
    p: Array | None, w_scale: Array, w_zero: Array, r_scale: Array, r_zero: Array, direction: str = "forward",
    **attributes: Any,
) -> Any:  # fmt: skip
    """Quantise X as a whole, and H at each step, as DynamicQuantizeLinear does, before the products."""
    if lengths is not None:
        raise not_computed(
            "the page does not say which values the scale of H is taken of where sequences end early"
        )
    directions, hidden = w.shape[0], r.shape[1]
    h, c, b, p = _defaults(x, directions, hidden, h, c, b, p)
    functions, steps = activations("LSTM", directions, attributes), []
    for at in range(directions):
        left = (w[at].astype(np.float64) - w_zero[at]) * w_scale[at]
        right = (r[at].astype(np.float64) - r_zero[at]) * r_scale[at]
        steps.append(lstm_step(functions[at], _products(left, right, b[at], dynamic=True), p[at], attributes))
    return unroll_steps(steps, direction, _round_dynamically(x), None, h, c)


def _defaults(
    x: Array, directions: int, hidden: int, h: Array | None, c: Array | None, b: Array | None, p: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Return the states, biases and peepholes: zero where they are left out."""
    shapes = (
        (directions, x.shape[1], hidden),
        (directions, x.shape[1], hidden),
        (directions, 8 * hidden),
        (directions, 3 * hidden),
    )
    made = [
        np.zeros(shape, x.dtype) if value is None else value
        for value, shape in zip((h, c, b, p), shapes, strict=True)
    ]
    return made[0], made[1], made[2], made[3]


def _products(w: Array, r: Array, b: Array, dynamic: bool = False) -> Any:
    bias = np.add(*np.split(b, 2))
    return lambda x, h: x @ w + (_round_dynamically(h) if dynamic else h) @ r + bias


def _round_dynamically(x: Array) -> Array:
    small, scale, zero = dynamically_quantised(x)
    return np.asarray((small.astype(x.dtype) - zero) * scale)


FUNCTIONS: Mapping[str, Function] = {"AttnLSTM": _attentive, "DynamicQuantizeLSTM": _run_quantised}
