"""Rules of operators that gather, scatter, sort and search. See table.py."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def wrap_indices(index: Any, size: int) -> Any:
    """Convert indices to int64 and count negative ones from the end."""
    index = index.to(torch.int64)
    return torch.where(index < 0, index + size, index)


def gather(n: Any, x: Any, index: Any) -> Any:
    """Gather slices along an axis, in the shape of the index."""
    axis = n("axis", 0) % x.dim()
    taken = x.index_select(axis, wrap_indices(index, x.shape[axis]).reshape(-1))
    return taken.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def gather_elements(n: Any, x: Any, index: Any) -> Any:
    """Gather one element for each index."""
    axis = n("axis", 0)
    return torch.gather(x, axis, wrap_indices(index, x.shape[axis]))


def linear(index: Any, shape: Any) -> Any:
    """Return the rows of the last axis, which index the leading dimensions of a shape, as indices into their
    product.
    """
    # As one flat index, since torch gathers along one axis only.
    place = torch.zeros(index.shape[:-1], dtype=torch.int64)
    for column, size in zip(index.unbind(-1), shape):
        place = place * size + wrap_indices(column, size)
    return place


def gather_nd(n: Any, x: Any, index: Any) -> Any:
    """Gather slices by index vectors, batch by batch."""
    batch = n("batch_dims", 0)
    deep = index.shape[-1]
    lead = list(index.shape[batch:-1])
    rest = list(x.shape[batch + deep :])
    batches, inner = math.prod(x.shape[:batch]), math.prod(x.shape[batch : batch + deep])
    place = linear(index.reshape([batches, math.prod(lead), deep]), x.shape[batch : batch + deep])
    place = place + torch.arange(batches).reshape(-1, 1) * inner
    rows = x.reshape([batches * inner, math.prod(rest)])
    return rows.index_select(0, place.reshape(-1)).reshape([*x.shape[:batch], *lead, *rest])


def scatter_elements(n: Any, x: Any, index: Any, updates: Any) -> Any:
    """Put elements at indices along an axis, or add them there, as `reduction` says."""
    axis, how = n("axis", 0), n("reduction", "none")
    index = wrap_indices(index, x.shape[axis])
    if how == "none":
        return torch.scatter(x, axis, index, updates)
    return torch.scatter_reduce(x, axis, index, updates, REDUCTIONS[how])


def scatter_nd(n: Any, x: Any, index: Any, updates: Any) -> Any:
    """Put slices at index vectors, or add them there, as `reduction` says."""
    deep, how = index.shape[-1], n("reduction", "none")
    rest = math.prod(x.shape[deep:])
    rows = x.reshape([math.prod(x.shape[:deep]), rest])
    place = linear(index, x.shape[:deep]).reshape(-1, 1).expand(-1, rest)
    values = updates.reshape([-1, rest]) if rest else updates.reshape([place.shape[0], 0])
    if how == "none":
        made = torch.scatter(rows, 0, place, values)
    else:
        made = torch.scatter_reduce(rows, 0, place, values, REDUCTIONS[how])
    return made.reshape(x.shape)


def tensor_scatter(n: Any, x: Any, update: Any, starts: Any = None) -> Any:
    """Write a run of slices into a cache, from an index of each batch on."""
    axis, length = n("axis", -2) % x.dim(), x.shape[n("axis", -2)]
    starts = torch.zeros(x.shape[0], dtype=torch.int64) if starts is None else starts
    place = starts.reshape(-1, 1) + torch.arange(update.shape[axis])
    place = place % length if n("mode", "linear") == "circular" else place
    shape = [1] * x.dim()
    shape[0], shape[axis] = x.shape[0], update.shape[axis]
    return torch.scatter(x, axis, place.reshape(shape).expand(update.shape), update)


def top_k(n: Any, x: Any, k: Any = None) -> Any:
    """Return the first k in a stable order, so that of equal elements the one with the lower index comes
    first.
    """
    k = n.one(k, n("k"))
    axis = n("axis", -1)
    # torch.topk does not say which of equal elements it takes.
    values, places = torch.sort(x, dim=axis, descending=bool(n("largest", 1)), stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)


def extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the place of the first largest or smallest element along an axis, or of the last one."""

    def along(n: Any, x: Any) -> Any:
        axis, keep = n("axis", 0), bool(n("keepdims", 1))
        if not n("select_last_index", 0):
            return function(x, axis, keepdim=keep)
        # torch gives the first place: of the reversed tensor that is the last one.
        return x.shape[axis] - 1 - function(x.flip(axis), axis, keepdim=keep)

    return along


def running(function: Callable[..., Any], neutral: int) -> Callable[..., Any]:
    """Make a rule for running sums or products, from the other end if `reverse`, without the element itself
    if `exclusive`.
    """

    def along(n: Any, x: Any, axis: Any) -> Any:
        axis = n.one(axis)
        x = x.flip(axis) if n("reverse", 0) else x
        if n("exclusive", 0):
            first = torch.full_like(x.narrow(axis, 0, min(1, x.shape[axis])), neutral)
            x = torch.cat([first, x.narrow(axis, 0, max(0, x.shape[axis] - 1))], axis)
        made = function(x, axis, dtype=x.dtype)
        return made.flip(axis) if n("reverse", 0) else made

    return along


def compress(n: Any, x: Any, condition: Any) -> Any:
    """Return the slices for which the condition holds; those of the flat tensor without an axis."""
    axis = n("axis")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    kept = [at for at, keep in enumerate(condition) if keep]
    return x.index_select(axis, torch.tensor(kept, dtype=torch.int64))


def unique(n: Any, x: Any) -> Any:
    """Return the distinct elements or slices, their first places, the place of each input among them, and
    counts.
    """
    axis = n("axis")
    axis = None if axis is None else axis % x.dim()
    values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    # It has the shape of x without an axis.
    inverse = inverse.reshape(-1)
    total = counts.shape[0]
    first = torch.full((total,), inverse.shape[0], dtype=torch.int64)
    # torch.unique does not give the first places.
    first = first.scatter_reduce(0, inverse, torch.arange(inverse.shape[0]), "amin")
    if not n("sorted", 1):
        order = torch.argsort(first)
        rank = torch.empty_like(order).scatter(0, order, torch.arange(total))
        values = values.index_select(0 if axis is None else axis, order)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return values, first, inverse, counts


def reverse_sequence(n: Any, x: Any, lengths: Any) -> Any:
    """Reverse the first elements of each sequence."""
    time, batch = n("time_axis", 0), n("batch_axis", 1)
    steps = torch.arange(x.shape[time]).reshape([-1 if at == time else 1 for at in range(x.dim())])
    until = lengths.reshape([-1 if at == batch else 1 for at in range(x.dim())])
    places = torch.where(steps < until, until - 1 - steps, steps)
    return torch.gather(x, time, places.expand(x.shape))


ASKS = {"TopK": (1,), "CumSum": (1,), "CumProd": (1,), "Compress": (1,)}
TABLE: dict[str, Callable[..., Any]] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "TopK": top_k,
    "ArgMax": extreme(torch.argmax),
    "ArgMin": extreme(torch.argmin),
    "CumSum": running(torch.cumsum, 0),
    "CumProd": running(torch.cumprod, 1),
    "NonZero": lambda n, x: torch.nonzero(x.reshape(-1) if x.dim() == 0 else x).t(),
    "Compress": compress,
    "Unique": unique,
    "ReverseSequence": reverse_sequence,
}
