"""Control flow: If, Loop and Scan run their bodies in Python, which reads the values that decide.

Sequences are Python lists; optionals hold a value or None. See table.py.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

import torch


def _if(step: Any, values: list[Any], env: Mapping[str, Any], tape: Any) -> Any:
    taken = tape.read(step.key, values[0].reshape(()))
    return tuple(step.blocks["then_branch" if taken else "else_branch"](env, tape))


def _loop(step: Any, values: list[Any], env: Mapping[str, Any], tape: Any) -> Any:
    body = step.blocks["body"]
    # `tape.read` makes a value a number of Python's, which tracing cannot follow.
    trips = None if values[0] is None else tape.read(step.key, values[0].reshape(()))
    going = values[1] is None or tape.read(step.key, values[1].reshape(()))
    state, turn = values[2:], 0
    scanned: list[list[Any]] = [[] for _ in body.outputs[1 + len(state) :]]
    while going and (trips is None or turn < trips):
        inner = dict(env)
        inner.update(zip(body.inputs, [torch.tensor(turn), torch.tensor(True), *state]))
        made = body(inner, tape)
        going = tape.read(step.key, made[0].reshape(()))
        state = made[1 : 1 + len(state)]
        for rows, row in zip(scanned, made[1 + len(state) :]):
            rows.append(row)
        turn += 1
    # torch.stack needs at least one tensor.
    if scanned and not turn:
        step.node.refuse("scan outputs of no iteration, whose type torch does not know")
    return tuple(state) + tuple(torch.stack(rows) for rows in scanned)


def _scan(step: Any, values: list[Any], env: Mapping[str, Any], tape: Any) -> Any:
    node, body = step.node, step.blocks["body"]
    if node.opset < 9:
        step.node.refuse("the batched form of opset 8")
    count = node("num_scan_inputs")
    state, sequences = values[: len(values) - count], values[len(values) - count :]
    axes = node("scan_input_axes", [0] * count)
    backward = node("scan_input_directions", [0] * count)
    # As lists, since the body sees one slice at a time and torch has no negative step.
    rows = [list(x.unbind(axis))[:: -1 if back else 1] for x, axis, back in zip(sequences, axes, backward)]
    outputs = len(body.outputs) - len(state)
    scanned: list[list[Any]] = [[] for _ in range(outputs)]
    # ONNX requires equal lengths, which its checker and shape inference have seen to.
    for taken in zip(*rows):
        inner = dict(env)
        inner.update(zip(body.inputs, [*state, *taken]))
        made = body(inner, tape)
        state = made[: len(state)]
        for kept, row in zip(scanned, made[len(state) :]):
            kept.append(row)
    if scanned and not rows[0]:
        step.node.refuse("no iteration, so that the type of its outputs is not known")
    places = node("scan_output_axes", [0] * outputs)
    back = node("scan_output_directions", [0] * outputs)
    made_of = [torch.stack(kept[:: -1 if b else 1], axis) for kept, axis, b in zip(scanned, places, back)]
    return tuple(state) + tuple(made_of)


FLOWS: dict[str, Callable[..., Any]] = {"If": _if, "Loop": _loop, "Scan": _scan}


def insert_tensor(n: Any, items: Any, value: Any, at: Any = None) -> Any:
    """Insert a value into a sequence before a position, at the end by default."""
    # The position may be absent, which means the end.
    at = n.one(at, len(items))
    at = at + len(items) if at < 0 else at
    return [*items[:at], value, *items[at:]]


def erase_tensor(n: Any, items: Any, at: Any = None) -> Any:
    """Remove one element of a sequence, the last by default."""
    # Modulo turns a negative position into the one from the start.
    at = n.one(at, -1) % len(items)
    return [*items[:at], *items[at + 1 :]]


def split(n: Any, x: Any, sizes: Any = None) -> Any:
    """Split a tensor into a sequence of slices along an axis."""
    axis = n("axis", 0)
    if sizes is None:
        return list(x.split(1, axis)) if n("keepdims", 1) else list(x.unbind(axis))
    return list(x.split(sizes, axis))


def join_tensors(n: Any, items: Any) -> Any:
    """Join the tensors of a sequence along an axis, or stack them along a new one."""
    return torch.stack(items, n("axis")) if n("new_axis", 0) else torch.cat(items, n("axis"))


ASKS = {"SequenceAt": (1,), "SequenceErase": (1,), "SequenceInsert": (2,), "SplitToSequence": (1,)}
TABLE: dict[str, Callable[..., Any]] = {
    "SequenceConstruct": lambda n, *values: list(values),
    "SequenceEmpty": lambda n: [],
    "SequenceLength": lambda n, items: torch.tensor(len(items)),
    "SequenceAt": lambda n, items, at: items[n.one(at)],
    "SequenceInsert": insert_tensor,
    "SequenceErase": erase_tensor,
    "ConcatFromSequence": join_tensors,
    "SplitToSequence": split,
    "Optional": lambda n, value=None: value,
    "OptionalHasElement": lambda n, value=None: torch.tensor(value is not None),
    "OptionalGetElement": lambda n, value: value,
}
