"""Operators that pick and place elements by index: gathers, scatters, one-hot, compress, unique.

Sources: the ONNX operator pages. An index is a leaf whose numbers lie inside the axis, or an existing tensor
whose interval does.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.declarations.builder import Sizes
from opsieve.gen.declarations.declaration import Moves, Operator, RankEnds, SizeRule, axis_inside, hull
from opsieve.gen.declarations.instance import (
    Attr,
    AxisAttr,
    Count,
    Draft,
    Input,
    Numbers,
    drawn_axis,
    since,
    some,
)
from opsieve.gen.declarations.properties import Rounding, repeated_elements, repeated_rows
from opsieve.gen.declarations.symbolic_arith import Truth
from opsieve.gen.declarations.tensor import (
    NUMERIC,
    Bounds,
    Domain,
    Ins,
    Site,
    Typed,
    axis_index,
    below,
    exact,
    size_of,
)

_PLAIN = (*NUMERIC, "bool")


_INDEX_TYPES = ("int64", "int64", "int32")


def _inside(draft: Draft) -> Domain:
    """Return positions in the drawn axis; sometimes negative ones, which count from the end."""
    return Domain(-draft.side if draft.draws(0.3) else 0, draft.side - 1)


def _few_sides(draft: Draft) -> Sizes:
    return tuple(draft.rng.draw_binned(1, 5) for _ in range(draft.rng.choice((0, 1, 1, 2))))


def _infer_gather(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    axis = attrs.get("axis", 0) % len(shape)
    return [(ins[0].dtype, (*shape[:axis], *ins[1].shape, *shape[axis + 1 :]))]


def _coordinates(draft: Draft) -> Domain:
    """Return coordinates inside the smallest of the indexed axes: one interval holds for all columns."""
    side = min(draft.x.shape[draft["batch"] : draft["batch"] + draft["depth"]])
    return Domain(-side if draft.draws(0.2) else 0, side - 1)


def _elements_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """Require index tensors to be no longer than the data beside the axis, and updates to have the shape
    of the indices.
    """
    found = [len(ins[0].shape) == len(ins[1].shape), *axis_inside(0)(ins, attrs)]
    if not all(found):
        return found
    axis = attrs.get("axis", 0) % len(ins[0].shape)
    found += [q <= p for n, (p, q) in enumerate(zip(ins[0].shape, ins[1].shape, strict=True)) if n != axis]
    if len(ins) > 2:
        found.append(len(ins[2].shape) == len(ins[1].shape))
        found += [p == q for p, q in zip(ins[1].shape, ins[2].shape, strict=False)]
    return found


def _coordinates_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    # The page: the first b sizes are equal, and the last size of the indices is in [1, r - b].
    data, at, batch = ins[0].shape, ins[1].shape, attrs.get("batch_dims", 0)
    if not at or not 0 <= batch < min(len(data), len(at)):
        return [False]
    return [
        at[-1] >= 1,
        at[-1] <= len(data) - batch,
        *(p == q for p, q in zip(data[:batch], at[:batch], strict=True)),
    ]


def _rows_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    data, at, updates = (tensor.shape for tensor in ins)
    if not at or not 1 <= at[-1] <= len(data):
        return [False]
    # The page: updates have the shape indices.shape[:-1] + data.shape[indices.shape[-1]:].
    wanted = (*at[:-1], *data[at[-1] :])
    return [len(updates) == len(wanted), *(p == q for p, q in zip(updates, wanted, strict=False))]


def _distinct(draft: Draft, count: int, side: int) -> list[int]:
    return draft.rng.shuffle_items(range(side))[:count]


def _distinct_along(draft: Draft) -> list[int]:
    """Draw indices that are distinct along the axis, and the same at every other place: without a reduction
    a repeated index leaves the result undefined.
    """
    axis, sides = draft.axis % draft.x.rank, draft["places"]
    along = _distinct(draft, sides[axis], draft.side)
    before, after = math.prod(sides[:axis]), math.prod(sides[axis + 1 :])
    return [value for _ in range(before) for value in along for _ in range(after)]


def _distinct_rows(draft: Draft) -> list[int]:
    """Coordinates of distinct places, one row for each."""
    sides, rows = draft["sides"], list[int]()
    for place in _distinct(draft, draft["count"], math.prod(sides)):
        row = []
        for side in reversed(sides):
            row.append(place % side)
            place //= side
        rows += row[::-1]
    return rows


_REDUCTION = since(
    16,
    some(
        Attr(
            "reduction",
            # Opset 16 added `add` and `mul`, opset 18 `max` and `min`.
            lambda draft: draft.rng.choice(("add", "mul", "max", "min")[: 4 if draft.opset >= 18 else 2]),
        ),
        share=0.4,
        where=lambda draft: draft.x.dtype not in ("bool", "string"),
    ),
)


def _bound_scatter(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    # Indices are distinct, so an element takes one update at most.
    x, y = ins[0], ins[2]
    kind = attrs.get("reduction", "none")
    if kind == "add":
        return x.low + min(y.low, 0.0), x.high + max(y.high, 0.0)
    if kind == "mul":
        size = max(x.size * y.size, x.size)
        return (-size if x.low < 0 or y.low < 0 else 0.0), size
    return min(x.low, y.low), max(x.high, y.high)


def _hot_type(draft: Draft) -> str:
    taken = draft.builder.takes("OneHot", "T3")
    return draft.rng.choice([dtype for dtype in ("float32", "int64", "int32", "float64") if dtype in taken])


def _hot(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape, values = ins[0].shape, ins[1].values
    assert values is not None
    # The page: the new axis is in [-r-1, r], the last by default.
    axis = attrs.get("axis", -1) % (len(shape) + 1)
    return [(ins[2].dtype, (*shape[:axis], int(values[0]), *shape[axis:]))]


def _hot_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, axis = len(ins[0].shape), attrs.get("axis", -1)
    return [
        -rank - 1 <= axis,
        axis <= rank,
        # `values` is [off, on].
        len(ins[2].shape) == 1,
        *(side == 2 for side in ins[2].shape[:1]),
    ]


def _some_kept(draft: Draft) -> list[int]:
    """Draw which of the first elements along the axis, or of all, are kept: at least one."""
    # The page allows a condition that is shorter than the axis: the rest is dropped.
    length = draft.rng.between(1, min(draft.side if "axis" in draft.attrs else math.prod(draft.x.shape), 12))
    kept = [draft.rng.below(2) for _ in range(length)]
    kept[draft.rng.below(length)] = 1
    return kept


def _infer_compress(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    values, shape = ins[1].values, ins[0].shape
    assert values is not None
    count = int(sum(values))
    if "axis" not in attrs:
        return [(ins[0].dtype, (count,))]
    axis = attrs["axis"] % len(shape)
    return [(ins[0].dtype, (*shape[:axis], count, *shape[axis + 1 :]))]


def gather(name: str, infer: Any, **more: Any) -> Operator:
    """Return an operator that works by index."""
    return Operator(
        name,
        infer=infer,
        ranks=more.pop("ranks", (1, 5)),
        family="gather",
        bounds=more.pop("bounds", hull),
        **more,
    )


def _infer_scatter(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, ins[0].shape)]


def _coordinate(site: Site) -> Domain:
    """Coordinates inside the smallest of the axes that they go to."""
    data, indices, start = site.shape(0), site.shape(1), site.attribute("batch_dims", 0)
    if data is None or not indices:
        return Domain(0, 0)
    return below(min(data[start : start + indices[-1]], default=1))


OPERATORS = (
    gather(
        "Gather",
        _infer_gather,
        parts=(AxisAttr(0), Input(_few_sides, _inside, _INDEX_TYPES)),
        requires=axis_inside(0),
        usual={1: axis_index(0)},
        moves=Moves.FIRST,
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.INDEXED,
        rounding=Rounding.EXACT,
    ),
    gather(
        "GatherElements",
        lambda ins, attrs: [(ins[0].dtype, ins[1].shape)],
        parts=(
            Attr("axis", drawn_axis),
            Input(
                # Any length along the axis, and beside it no more than the data.
                lambda draft: tuple(
                    draft.number(1, 5 if axis == draft.axis % draft.x.rank else side, 16)
                    for axis, side in enumerate(draft.x.shape)
                ),
                _inside,
                _INDEX_TYPES,
            ),
        ),
        requires=_elements_fit,
        usual={1: axis_index(0)},
        moves=Moves.FIRST,
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        sizes_unsaid=True,
        rounding=Rounding.EXACT,
    ),
    gather(
        "GatherND",
        lambda ins, attrs: [
            (
                ins[0].dtype,
                (*ins[1].shape[:-1], *ins[0].shape[attrs.get("batch_dims", 0) + ins[1].shape[-1] :]),
            )
        ],
        parts=(
            some(
                Attr("batch_dims", lambda draft: draft.rng.between(1, draft.x.rank - 1)),
                share=0.3,
                where=lambda draft: draft.x.rank > 1,
            ),
            Count("batch", lambda draft: draft.attrs.get("batch_dims", 0)),
            Count("depth", lambda draft: draft.rng.between(1, draft.x.rank - draft["batch"])),
            Input(
                lambda draft: (*draft.x.shape[: draft["batch"]], *_few_sides(draft), draft["depth"]),
                _coordinates,
                "int64",
            ),
        ),
        requires=_coordinates_fit,
        usual={1: _coordinate},
        moves=Moves.FIRST,
        rank_ends=RankEnds.LEAST,
        rounding=Rounding.EXACT,
    ),
    gather(
        "ScatterElements",
        _infer_scatter,
        parts=(
            AxisAttr(0),
            Count("places", lambda draft: [draft.rng.between(1, side) for side in draft.x.shape]),
            Numbers(_distinct_along, ("int64", "int32"), shape="places..."),
            _REDUCTION,
            Input("places..."),
        ),
        bounds=_bound_scatter,
        requires=_elements_fit,
        dtypes=_PLAIN,
        usual={1: axis_index(0)},
        undefined=(repeated_elements,),
        rank_ends=RankEnds.LEAST,
        sizes_unsaid=True,
        rounding=Rounding.EXACT,
    ),
    gather(
        "ScatterND",
        _infer_scatter,
        parts=(
            Count("depth", lambda draft: draft.rng.between(1, draft.x.rank)),
            Count("sides", lambda draft: draft.x.shape[: draft["depth"]]),
            Count("count", lambda draft: draft.rng.between(1, min(math.prod(draft["sides"]), 4))),
            Numbers(_distinct_rows, shape="count depth"),
            _REDUCTION,
            Input(lambda draft: (draft["count"], *draft.x.shape[draft["depth"] :])),
        ),
        bounds=_bound_scatter,
        requires=_rows_fit,
        dtypes=_PLAIN,
        usual={1: _coordinate},
        undefined=(repeated_rows,),
        rounding=Rounding.EXACT,
    ),
    gather(
        "OneHot",
        _hot,
        parts=(
            Numbers(
                lambda draft: [draft.rng.between(2, 6)],
                ("int64", "int32"),
                shape=lambda draft: draft.rng.choice(((), (1,))),
            ),
            Numbers(
                lambda draft: (
                    [0, 1] if draft.draws(0.6) else [draft.rng.between(-2, 0), draft.rng.between(1, 3)]
                ),
                _hot_type,
            ),
            Attr("axis", lambda draft: draft.rng.between(-draft.x.rank - 1, draft.x.rank), 0.6),
        ),
        requires=_hot_fits,
        bounds=lambda ins, attrs: (ins[2].low, ins[2].high),
        ranks=(1, 4),
        dtypes=NUMERIC,
        # The size of the new axis.
        usual={
            0: Domain(0, 2),
            1: lambda site: exact([size_of(site.output(), site.attribute("axis", -1)) or 3]),
        },
        symbolic=True,
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
    gather(
        "Compress",
        _infer_compress,
        parts=(Attr("axis", drawn_axis, 0.7), Numbers(_some_kept, "bool")),
        requires=lambda ins, attrs: [*axis_inside(0)(ins, attrs), len(ins[1].shape) == 1],
        moves=Moves.FIRST,
        rounding=Rounding.EXACT,
    ),
)
