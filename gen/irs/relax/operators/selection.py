"""Operators that pick or replace elements by index. Indices are constants, inside their axes."""

from opsieve.gen.irs.relax.declaration import (
    ALL,
    FLOATS,
    LIMIT,
    RATES,
    Declared,
    Draw,
    Given,
    Recogniser,
    Solution,
    Want,
    attributes,
    numbers,
    static_sizes,
    tensor,
    whole,
)
from opsieve.gen.irs.relax.tree import Tuple
from opsieve.gen.irs.relax.types import RelaxTensorType

_INDEX = ("int64", "int32", "int64")
_UPDATED = ("float32", "float64", "int64", "int32")


def _take(draw: Draw, kind: RelaxTensorType) -> Solution:
    shape = list(static_sizes(kind))
    first = draw.rng.randrange(kind.rank)
    last = draw.rng.randint(first, min(kind.rank, first + 2))
    picked = shape[first:last]
    size = draw.size(max(1, LIMIT // max(1, draw.count(shape[:first] + shape[last:]))))
    # "fast" does not check indices, which is legal because these lie inside the axis.
    attrs = attributes("TakeAttrs", axis=first, mode=draw.rng.choice(("fast", "clip", "wrap")))
    source = [*shape[:first], size, *shape[last:]]
    return Solution(
        (Want(tensor(kind.dtype, source)), draw.indices(picked, size, draw.rng.choice(_INDEX))), attrs
    )


def _slice(draw: Draw, kind: RelaxTensorType) -> Solution:
    shape = list(static_sizes(kind))
    axes = sorted(draw.rng.sample(range(kind.rank), draw.rng.randint(1, min(2, kind.rank))))
    bounds = []
    for axis in axes:
        size, step = shape[axis], draw.rng.choice((1, 1, 2, 3))
        begin = draw.rng.randint(0, 2)
        # This many elements of the source are needed to pick `size` of them in steps.
        span = (size - 1) * step + 1
        shape[axis] = begin + span + draw.rng.randint(0, 2)
        end = begin + span
        if draw.chance(RATES.negative_begin):
            begin -= shape[axis]
        bounds.append((axis, begin, end, step))
    # The axes, begins, ends and steps.
    lists: tuple[Given, ...] = tuple(Tuple(tuple(map(whole, items))) for items in zip(*bounds, strict=True))
    attrs = attributes("StridedSliceAttrs", assume_inbound=False)
    return Solution((Want(tensor(kind.dtype, shape)), *lists), attrs)


def _gather_elements(draw: Draw, kind: RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    shape = list(static_sizes(kind))
    shape[axis] = draw.size()
    indices = draw.indices(static_sizes(kind), shape[axis], draw.rng.choice(_INDEX))
    return Solution((Want(tensor(kind.dtype, shape)), indices), attributes("GatherElementsAttrs", axis=axis))


def _gather_nd(draw: Draw, kind: RelaxTensorType) -> Solution:
    lead = draw.rng.randint(1, kind.rank)
    depth = draw.rng.randint(1, max(1, 4 - (kind.rank - lead)))
    source = [draw.size(4) for _ in range(depth)]
    places = [
        draw.rng.randrange(size) for _ in range(draw.count(static_sizes(kind)[:lead])) for size in source
    ]
    indices = numbers("int64", (*static_sizes(kind)[:lead], depth), places)
    attrs = attributes("GatherNDAttrs", batch_dims=0)
    return Solution((Want(tensor(kind.dtype, (*source, *static_sizes(kind)[lead:]))), indices), attrs)


def _scatter_elements(draw: Draw, kind: RelaxTensorType) -> Solution:
    """Write one update along the axis, so that no place is written twice."""
    axis = draw.rng.randrange(kind.rank)
    shape = list(static_sizes(kind))
    size = shape[axis]
    shape[axis] = 1
    indices = draw.indices(shape, size)
    attrs = attributes(
        "ScatterElementsAttrs", axis=axis, reduction=draw.rng.choice(("update", "add", "mul", "max"))
    )
    return Solution((Want(kind), indices, Want(tensor(kind.dtype, shape))), attrs)


def _scatter_nd(draw: Draw, kind: RelaxTensorType) -> Solution:
    depth = draw.rng.randint(1, kind.rank)
    # One row only: ScatterND leaves open which of two updates of one place wins.
    rows = draw.rng.sample(range(draw.count(static_sizes(kind)[:depth])), 1)
    places = []
    for row in rows:
        digits = []
        for size in reversed(static_sizes(kind)[:depth]):
            digits.append(row % size)
            row //= size
        places += digits[::-1]
    indices = numbers("int64", (len(rows), depth), places)
    updates = tensor(kind.dtype, (len(rows), *static_sizes(kind)[depth:]))
    attrs = attributes("ScatterNDAttrs", reduction=draw.rng.choice(("update", "add", "max")))
    return Solution((Want(kind), indices, Want(updates)), attrs)


def _slice_scatter(draw: Draw, kind: RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    shape = list(static_sizes(kind))
    size, step = shape[axis], draw.rng.choice((1, 1, 2))
    start = draw.rng.randrange(size)
    end = draw.rng.randint(start + 1, size)
    shape[axis] = -(-(end - start) // step)
    attrs = attributes("SliceScatterAttrs", axis=axis)
    return Solution((Want(kind), Want(tensor(kind.dtype, shape)), *map(whole, (start, end, step))), attrs)


def _index_tensor(draw: Draw, kind: RelaxTensorType) -> Solution:
    depth = draw.rng.randint(1, max(1, 4 - kind.rank + 1))
    source = [draw.size(4) for _ in range(depth)]
    indices = tuple(draw.indices((static_sizes(kind)[0],), size) for size in source)
    return Solution((Want(tensor(kind.dtype, (*source, *static_sizes(kind)[1:]))), Tuple(indices)))


def _index_put(draw: Draw, kind: RelaxTensorType) -> Solution:
    places = [draw.rng.randrange(size) for size in static_sizes(kind)]
    # One place only, so that no order of updates matters.
    indices = tuple(numbers("int64", (1,), [place]) for place in places)
    attrs = attributes("IndexPutAttrs", accumulate=draw.chance(RATES.flag))
    return Solution((Want(kind), Tuple(indices), Want(tensor(kind.dtype, (1,)))), attrs)


_RANKED = Recogniser(ALL, (1, 4), condition=lambda shape: min(shape) >= 1)
_CHANGED = Recogniser(_UPDATED, (1, 4), condition=lambda shape: min(shape) >= 1)

OPERATORS: tuple[Declared, ...] = (
    Declared("relax.take", _RANKED, _take, "Gather"),
    Declared("relax.strided_slice", _RANKED, _slice, "Slice"),
    Declared("relax.gather_elements", _RANKED, _gather_elements, "GatherElements"),
    Declared("relax.gather_nd", _RANKED, _gather_nd, "GatherND"),
    Declared("relax.scatter_elements", _CHANGED, _scatter_elements, "ScatterElements"),
    Declared("relax.scatter_nd", _CHANGED, _scatter_nd, "ScatterND"),
    Declared("relax.slice_scatter", _CHANGED, _slice_scatter),
    Declared("relax.index_tensor", Recogniser(_UPDATED, (1, 4)), _index_tensor),
    Declared("relax.index_put", Recogniser(FLOATS[:2], (1, 4)), _index_put),
)
