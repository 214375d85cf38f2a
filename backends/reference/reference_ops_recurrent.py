"""RNN, GRU and LSTM with every feature of their ONNX pages (onnx__RNN, onnx__GRU, onnx__LSTM), in numpy, for
the reference.

onnx 1.23 ignores sequence_lens, clip, input_forget and, except for RNN, the activations; its RNN has only
Tanh and Affine, and one function for both directions. If a clip would alter the input of an LSTM's last
activation, the result is not computed. The activations with a parameter consume the values of
activation_alpha and activation_beta in turn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun, RuntimeImplementationError

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]
# of a row of X, the state and the cell: both anew
Step = Callable[[Array, Array, Array], tuple[Array, Array]]

# What each computes of x, alpha and beta, and their defaults as the operators' pages have them; None: it
# takes none.
ACTIVATIONS: Mapping[str, tuple[Callable[[Array, Any, Any], Array], float | None, float | None]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: np.where(x < 0, a * x, x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, 0), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: np.where(x < 0, a * np.expm1(x), x), 1.0, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, a, b: np.logaddexp(x, 0), None, None),
}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


class _Recurrent(OpRun):
    """The common part of the three. X is [steps, batch, input] ([batch, steps, input] when `layout` is 1), W
    [directions, gates x hidden, input].
    """

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def]
        self, x, w, r, b=None, lengths=None, h=None, c=None, p=None, **attributes
    ):
        """Return (Y, Y_h, Y_c): past the end of a sequence the state stays and the output is zero."""
        kind = self.onnx_node.op_type
        directions, hidden = w.shape[0], r.shape[-1]
        direction = attributes.get("direction") or "forward"
        # Else a direction would be missing, or one too many computed, without an error.
        if directions != (2 if direction == "bidirectional" else 1):
            raise ValueError(f"{kind} has weights of {directions} directions and is {direction}")
        batched = bool(attributes.get("layout"))
        if batched:
            x, h, c = (None if value is None else np.swapaxes(value, 0, 1) for value in (x, h, c))
        nothing = np.zeros((directions, x.shape[1], hidden), x.dtype)
        h, c = nothing if h is None else h, nothing if c is None else c
        b = np.zeros((directions, 2 * GATES[kind] * hidden), x.dtype) if b is None else b
        p = np.zeros((directions, 3 * hidden), x.dtype) if p is None else p
        functions = activations(kind, directions, attributes)
        steps = [
            _STEPS[kind](functions[at], w[at], r[at], np.split(b[at], 2), p[at], attributes)
            for at in range(directions)
        ]
        outputs, *states = unroll_steps(steps, direction, x, lengths, h, c)
        if batched:
            outputs, states = outputs.transpose(2, 0, 1, 3), [np.swapaxes(state, 0, 1) for state in states]
        return (outputs, *states)[: len(self.output)]


def unroll_steps(
    steps: Sequence[Step], direction: str, x: Array, lengths: Array | None, h: Array, c: Array
) -> tuple[Array, Array, Array]:
    """Return (Y, Y_h, Y_c) for one step function per direction; X is [steps, batch, input], h and c
    [directions, batch, width].
    """
    count, batch = x.shape[:2]
    outputs, last_h, last_c = np.zeros((count, *h.shape), x.dtype), [], []
    for at, step in enumerate(steps):
        state, cell = h[at], c[at]
        for time in reversed(range(count)) if direction == "reverse" or at else range(count):
            made, kept = step(x[time], state, cell)
            alive = np.ones((batch, 1), bool) if lengths is None else (lengths > time).reshape(-1, 1)
            # Past its end a sequence keeps its last state, which is what Y_h gives.
            state, cell = np.where(alive, made, state), np.where(alive, kept, cell)
            outputs[time, at] = np.where(alive, made, 0)
        last_h.append(state)
        last_c.append(cell)
    return outputs, np.stack(last_h).astype(x.dtype), np.stack(last_c).astype(x.dtype)


def activations(kind: str, directions: int, attributes: Mapping[str, Any]) -> list[list[Function]]:
    """Return the activations of each direction; each clips its input first."""
    names = attributes.get("activations") or DEFAULTS[kind] * directions
    alphas, betas = (
        list(attributes.get("activation_alpha") or []),
        list(attributes.get("activation_beta") or []),
    )
    clip, made = attributes.get("clip"), []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise RuntimeImplementationError(
                f"{kind} has the activation {name[:40]!r}, which ONNX does not know"
            )
        function, alpha, beta = ACTIVATIONS[name.lower()]
        # Only activations that have the parameter take one of the list.
        alpha = alphas.pop(0) if alpha is not None and alphas else alpha
        beta = betas.pop(0) if beta is not None and betas else beta
        made.append(_bind_activation(function, alpha, beta, clip))
    count = len(names) // directions
    return [made[at * count : (at + 1) * count] for at in range(directions)]


def _bind_activation(
    function: Callable[[Array, Any, Any], Array], alpha: Any, beta: Any, clip: Any
) -> Function:
    return lambda x: function(np.clip(x, -clip, clip) if clip else x, alpha, beta)


def _rnn(
    f: Sequence[Function], w: Array, r: Array, b: Sequence[Array], p: Array, attributes: Mapping[str, Any]
) -> Any:
    return lambda x, h, c: (f[0](x @ w.T + h @ r.T + b[0] + b[1]), c)


def _gru(
    f: Sequence[Function], w: Array, r: Array, b: Sequence[Array], p: Array, attributes: Mapping[str, Any]
) -> Any:
    rz, rr, rh = np.split(r, 3)
    (bz, br, bh), (cz, cr, ch) = np.split(b[0], 3), np.split(b[1], 3)

    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        wz, wr, wh = np.split(x @ w.T, 3, -1)
        update, reset = f[0](wz + h @ rz.T + bz + cz), f[0](wr + h @ rr.T + br + cr)
        # `linear_before_reset` multiplies by the reset gate after the product.
        seen = reset * (h @ rh.T + ch) if attributes.get("linear_before_reset") else (reset * h) @ rh.T + ch
        return (1 - update) * f[1](wh + seen + bh) + update * h, c

    return step


def _lstm(
    f: Sequence[Function], w: Array, r: Array, b: Sequence[Array], p: Array, attributes: Mapping[str, Any]
) -> Step:
    return lstm_step(f, lambda x, h: x @ w.T + h @ r.T + b[0] + b[1], p, attributes)


def lstm_step(
    f: Sequence[Function], gates: Callable[[Array, Array], Array], p: Array, attributes: Mapping[str, Any]
) -> Step:
    """Make a step of an LSTM whose four gates (i, o, f, c: [batch, 4 x hidden]), before peepholes and
    activations, are `gates` of X and H.
    """
    (pi, po, pf), clip = np.split(p, 3), attributes.get("clip")

    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, forget, new = np.split(gates(x, h), 4, -1)
        i = f[0](i + pi * c)
        forget = 1 - i if attributes.get("input_forget") else f[0](forget + pf * c)
        kept = forget * c + i * f[1](new)
        # Runtimes and the page disagree, so that either result is open.
        if clip and (np.abs(kept) > clip).any():
            raise RuntimeImplementationError(
                "LSTM has a cell beyond its clip: by ONNX's words it is clipped before the last activation,"
                " onnxruntime does not"
            )
        return f[0](o + po * kept) * f[2](kept), kept

    return step


_STEPS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


class RNN(_Recurrent):
    """https://onnx.ai/onnx/operators/onnx__RNN.html"""


class GRU(_Recurrent):
    """https://onnx.ai/onnx/operators/onnx__GRU.html"""


class LSTM(_Recurrent):
    """https://onnx.ai/onnx/operators/onnx__LSTM.html"""
