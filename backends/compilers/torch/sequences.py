"""Rules of sequences, which are Python lists here, and of optionals, which hold a value or None. See
table.py.
"""

from __future__ import annotations

from typing import Any, Callable

import torch


def insert_tensor(n: Any, items: Any, value: Any, at: Any = None) -> Any:
    """Insert a value into a sequence before a position, at the end by default."""
    at = n.one(at, len(items))
    at = at + len(items) if at < 0 else at
    return [*items[:at], value, *items[at:]]


def erase_tensor(n: Any, items: Any, at: Any = None) -> Any:
    """Remove one element of a sequence, the last by default."""
    at = n.one(at, -1) % len(items)
    return [*items[:at], *items[at + 1 :]]


def split(n: Any, x: Any, sizes: Any = None) -> Any:
    """A tensor as a sequence of its slices along an axis."""
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
