"""Rules of RNN, GRU and LSTM: the equations of their ONNX pages, step by step. See table.py."""

from __future__ import annotations

from typing import Any, Callable

import torch

# torch's own name for it
import torch.nn.functional as F  # noqa: N812

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": lambda x, a, b: torch.relu(x),
    "tanh": lambda x, a, b: torch.tanh(x),
    "sigmoid": lambda x, a, b: torch.sigmoid(x),
    "affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "thresholdedrelu": lambda x, a, b: torch.where(x > (1.0 if a is None else a), x, torch.zeros_like(x)),
    "scaledtanh": lambda x, a, b: (1.0 if a is None else a) * torch.tanh((1.0 if b is None else b) * x),
    "hardsigmoid": lambda x, a, b: torch.clamp(
        (0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1
    ),
    "elu": lambda x, a, b: F.elu(x, 1.0 if a is None else a),
    "softsign": lambda x, a, b: F.softsign(x),
    # torch switches to the identity above its threshold, by default 20, where the two differ by 2e-9.
    "softplus": lambda x, a, b: F.softplus(x, threshold=40),
}
# How many of the values of activation_alpha and activation_beta one takes.
TAKES = {
    "affine": (1, 1),
    "leakyrelu": (1, 0),
    "thresholdedrelu": (1, 0),
    "scaledtanh": (1, 1),
    "hardsigmoid": (1, 1),
}
TAKES["elu"] = (1, 0)
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def activations(n: Any, directions: int) -> list[list[Callable[[Any], Any]]]:
    """Return the activations of each direction, with their parameters bound."""
    names = [name.lower() for name in n("activations", DEFAULTS[n.op] * directions)]
    alphas, betas = list(n("activation_alpha", [])), list(n("activation_beta", []))
    clip, made = n("clip"), []
    for name in names:
        if name not in ACTIVATIONS:
            n.refuse("the activation %s" % name)
        takes = TAKES.get(name, (0, 0))
        a = alphas.pop(0) if takes[0] and alphas else None
        b = betas.pop(0) if takes[1] and betas else None
        made.append(bind_activation(ACTIVATIONS[name], a, b, clip))
    # The attribute lists those of the forward direction first, then those of the reverse one.
    count = len(names) // directions
    return [made[at * count : (at + 1) * count] for at in range(directions)]


def bind_activation(function: Callable[..., Any], a: Any, b: Any, clip: Any) -> Callable[[Any], Any]:
    """Make an activation that clips its input first."""
    if clip:
        return lambda x: function(torch.clamp(x, -clip, clip), a, b)
    return lambda x: function(x, a, b)


def rnn_step(n: Any, f: Any, x: Any, h: Any, c: Any, w: Any, r: Any, bias: Any, p: Any) -> Any:
    """Compute Ht = f(Xt*(Wi^T) + Ht-1*(Ri^T) + Wbi + Rbi)."""
    return f[0](x @ w.t() + h @ r.t() + bias[0] + bias[1]), c


def gru_step(n: Any, f: Any, x: Any, h: Any, c: Any, w: Any, r: Any, bias: Any, p: Any) -> Any:
    """Compute a step with gates z, r, h; `linear_before_reset` multiplies by r after the product."""
    wz, wr, wh = (x @ w.t()).chunk(3, -1)
    # Separately, since `linear_before_reset` decides what the third one is multiplied with.
    rz, rr, rh = r.chunk(3, 0)
    (bz, br, bh), (cz, cr, ch) = bias[0].chunk(3), bias[1].chunk(3)
    update, reset = f[0](wz + h @ rz.t() + bz + cz), f[0](wr + h @ rr.t() + br + cr)
    if n("linear_before_reset", 0):
        new = f[1](wh + reset * (h @ rh.t() + ch) + bh)
    else:
        new = f[1](wh + (reset * h) @ rh.t() + ch + bh)
    return (1 - update) * new + update * h, c


def lstm_step(n: Any, f: Any, x: Any, h: Any, c: Any, w: Any, r: Any, bias: Any, p: Any) -> Any:
    """Compute a step with gates i, o, f, c and peepholes; `input_forget` couples i and f."""
    # ONNX's order of gates is i, o, f, c, not the i, f, c, o of torch.nn.LSTM.
    i, o, forget, new = (x @ w.t() + h @ r.t() + bias[0] + bias[1]).chunk(4, -1)
    pi, po, pf = p.chunk(3)
    i = f[0](i + pi * c)
    forget = 1 - i if n("input_forget", 0) else f[0](forget + pf * c)
    kept = forget * c + i * f[1](new)
    return f[0](o + po * kept) * f[2](kept), kept


STEPS = {"RNN": rnn_step, "GRU": gru_step, "LSTM": lstm_step}


def recurrent(
    n: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> Any:
    """Run all directions; past the end of a sequence the state stays and the output is zero."""
    directions, hidden, gates = w.shape[0], r.shape[-1], GATES[n.op]
    batched = n("layout", 0)
    if batched:
        x, h, c = (None if value is None else value.transpose(0, 1) for value in (x, h, c))
    steps, batch = x.shape[0], x.shape[1]
    # An absent initial state is zero by definition.
    zeros = torch.zeros(directions, batch, hidden, dtype=x.dtype)
    h, c = zeros if h is None else h, zeros if c is None else c
    b = torch.zeros(directions, 2 * gates * hidden, dtype=x.dtype) if b is None else b
    p = torch.zeros(directions, 3 * hidden, dtype=x.dtype) if p is None else p
    functions = activations(n, directions)
    outputs, last_h, last_c = [], [], []
    for at in range(directions):
        back = n("direction", "forward") == "reverse" or at == 1
        bias, state, cell, rows = b[at].chunk(2), h[at], c[at], []
        for time in reversed(range(steps)) if back else range(steps):
            made, kept = STEPS[n.op](n, functions[at], x[time], state, cell, w[at], r[at], bias, p[at])
            if lengths is None:
                state, cell = made, kept
                rows.append(made)
            else:
                # Past its end a sequence keeps its last state, which is what Y_h gives.
                alive = (lengths > time).reshape(-1, 1)
                state, cell = torch.where(alive, made, state), torch.where(alive, kept, cell)
                rows.append(torch.where(alive, made, torch.zeros_like(made)))
        outputs.append(torch.stack(rows[::-1] if back else rows))
        last_h.append(state)
        last_c.append(cell)
    y, y_h, y_c = torch.stack(outputs, 1), torch.stack(last_h), torch.stack(last_c)
    if batched:
        y, y_h, y_c = y.permute(2, 0, 1, 3), y_h.transpose(0, 1), y_c.transpose(0, 1)
    return (y, y_h, y_c) if n.op == "LSTM" else (y, y_h)


TABLE: dict[str, Callable[..., Any]] = {"RNN": recurrent, "GRU": recurrent, "LSTM": recurrent}
