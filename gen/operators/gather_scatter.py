"""Operators that pick and place elements by index: gathers, scatters, one-hot, compress, unique.

Sources: the ONNX operator pages. An index is a leaf whose numbers lie inside the axis, or an existing tensor whose interval does.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.spec.builder import Builder, OpenBuilder, Sizes
from opsieve.gen.spec.declaration import Moves, Operator, RankEnds, hull
from opsieve.gen.spec.domains import Domain, Site, axis_index, below, exact, size_of
from opsieve.gen.spec.dtype_facts import NUMERIC
from opsieve.gen.spec.instance import Instance, axis_of, signed
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.size_rules import SizeRule
from opsieve.gen.spec.symbolic_arith import Truth
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed
from opsieve.gen.spec.undefined import repeated_elements, repeated_rows

_PLAIN = (*NUMERIC, "bool")


def index(builder: Builder, shape: Sizes, side: int, dtypes: tuple[str, ...] = ("int64", "int64", "int32")) -> Tensor:
    """A tensor of indices into an axis of size `side`; now and then they count from the back too."""
    least = -side if builder.rng.random() < builder.style.rates.negative_index else 0
    return builder.match(builder.rng.choice(dtypes), shape, Domain(least, side - 1))


def _side(builder: Builder) -> int:
    return builder.rng.binned(1, 5)


def _gather(builder: Builder, x: Tensor) -> Instance:
    axis = axis_of(builder, x)
    shape = tuple(_side(builder) for _ in range(builder.rng.choice((0, 1, 1, 2))))
    return Instance(
        [x, index(builder, shape, x.shape[axis])],
        {"axis": axis} if axis or builder.rng.random() < builder.style.rates.default else {},
    )


def _gathered(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    axis = attrs.get("axis", 0) % len(shape)
    return [(ins[0].dtype, (*shape[:axis], *ins[1].shape, *shape[axis + 1 :]))]


def _axis_inside(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, axis = len(ins[0].shape), attrs.get("axis", 0)
    return [-rank <= axis, axis < rank]


def _gather_elements(builder: Builder, x: Tensor) -> Instance:
    axis = axis_of(builder, x)
    sides = [
        _side(builder) if place == axis % x.rank else builder.rng.between(1, side) for place, side in enumerate(x.shape)
    ]
    return Instance([x, index(builder, tuple(sides), x.shape[axis])], {"axis": axis})


def _same_rank(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    return [len(ins[0].shape) == len(ins[1].shape), *_axis_inside(ins, attrs)]


def _coordinates(builder: Builder, x: Tensor, depth: int, batch: int, lead: Sizes) -> Tensor:
    """Indices whose last axis holds `depth` coordinates: all inside the smallest of the sides that they go to."""
    side = min(x.shape[batch : batch + depth], default=1)
    least = -side if builder.rng.random() < builder.style.rates.negative_coordinate else 0
    return builder.match("int64", (*lead, depth), Domain(least, side - 1))


def _elements_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """Beside the axis no index tensor is longer than the data; updates, where there are some, are as many as indices."""
    found = list(_same_rank(ins, attrs))
    if not all(found):
        return found
    axis = attrs.get("axis", 0) % len(ins[0].shape)
    found += [q <= p for n, (p, q) in enumerate(zip(ins[0].shape, ins[1].shape, strict=True)) if n != axis]
    if len(ins) > 2:
        found.append(len(ins[2].shape) == len(ins[1].shape))
        found += [p == q for p, q in zip(ins[1].shape, ins[2].shape, strict=False)]
    return found


def _gather_nd(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    batch = rng.between(0, x.rank - 1) if rng.random() < builder.style.rates.batched_gather else 0
    depth = rng.between(1, x.rank - batch)
    lead = (*x.shape[:batch], *(_side(builder) for _ in range(rng.choice((0, 1, 1, 2)))))
    return Instance([x, _coordinates(builder, x, depth, batch, lead)], {"batch_dims": batch} if batch else {})


def _gathered_nd(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    data, at, batch = ins[0].shape, ins[1].shape, attrs.get("batch_dims", 0)
    return [(ins[0].dtype, (*at[:-1], *data[batch + at[-1] :]))]


def _coordinates_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    data, at, batch = ins[0].shape, ins[1].shape, attrs.get("batch_dims", 0)
    if not at or not 0 <= batch < min(len(data), len(at)):
        return [False]
    return [at[-1] >= 1, at[-1] <= len(data) - batch, *(p == q for p, q in zip(data[:batch], at[:batch], strict=True))]


def _rows_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    data, at, updates = (tensor.shape for tensor in ins)
    if not at or not 1 <= at[-1] <= len(data):
        return [False]
    wanted = (*at[:-1], *data[at[-1] :])
    return [len(updates) == len(wanted), *(p == q for p, q in zip(updates, wanted, strict=False))]


def _distinct(builder: Builder, count: int, side: int) -> list[int]:
    return builder.rng.shuffled(range(side))[:count]


def _scatter_elements(builder: Builder, x: Tensor) -> Instance:
    """Without a reduction indices must not repeat: along the axis they are distinct, and the same for every other place."""
    rng, attrs = builder.rng, Attributes()
    axis = rng.below(x.rank)
    side = x.shape[axis]
    count = rng.between(1, side)
    sides = [count if place == axis else rng.between(1, each) for place, each in enumerate(x.shape)]
    along = _distinct(builder, count, side)
    before, after = math.prod(sides[:axis]), math.prod(sides[axis + 1 :])
    at = builder.ints(
        [value for _ in range(before) for value in along for _ in range(after)],
        rng.choice(("int64", "int32")),
        tuple(sides),
    )
    if builder.opset >= 16 and x.dtype not in ("bool", "string") and rng.random() < builder.style.rates.reduced_scatter:
        kinds = ("add", "mul") if builder.opset < 18 else ("add", "mul", "max", "min")
        attrs["reduction"] = rng.choice(kinds)
    updates = builder.match(x.dtype, tuple(sides))
    if axis or rng.random() < builder.style.rates.default:
        attrs["axis"] = axis - x.rank if rng.random() < builder.style.rates.negative_axis else axis
    return Instance([x, at, updates], attrs)


def _scatter_nd(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    depth = rng.between(1, x.rank)
    places = math.prod(x.shape[:depth])
    count = rng.between(1, min(places, 4))
    rows = []
    for place in _distinct(builder, count, places):
        row = []
        for side in reversed(x.shape[:depth]):
            row.append(place % side)
            place //= side
        rows += row[::-1]
    at = builder.ints(rows, "int64", (count, depth))
    if builder.opset >= 16 and x.dtype not in ("bool", "string") and rng.random() < builder.style.rates.reduced_scatter:
        kinds = ("add", "mul") if builder.opset < 18 else ("add", "mul", "max", "min")
        attrs["reduction"] = rng.choice(kinds)
    return Instance([x, at, builder.match(x.dtype, (count, *x.shape[depth:]))], attrs)


def _scattered(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    x, y = ins[0], ins[2]
    kind = attrs.get("reduction", "none")
    if kind == "add":
        return x.low + min(y.low, 0.0), x.high + max(y.high, 0.0)
    if kind == "mul":
        size = max(x.size * y.size, x.size)
        return (-size if x.low < 0 or y.low < 0 else 0.0), size
    return min(x.low, y.low), max(x.high, y.high)


def _one_hot(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    depth = rng.between(2, 6)
    pairs = [dtype for dtype in ("float32", "int64", "int32", "float64") if dtype in builder.takes("OneHot", "T3")]
    values = builder.ints(
        [0, 1] if rng.random() < builder.style.rates.zero_and_one else [rng.between(-2, 0), rng.between(1, 3)],
        rng.choice(pairs),
    )
    depth_in = builder.ints([depth], rng.choice(("int64", "int32")), rng.choice(((), (1,))))
    attrs = {"axis": rng.between(-x.rank - 1, x.rank)} if rng.random() < builder.style.rates.likely_attribute else {}
    return Instance([x, depth_in, values], attrs)


def _hot(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape, values = ins[0].shape, ins[1].values
    assert values is not None
    axis = attrs.get("axis", -1) % (len(shape) + 1)
    return [(ins[2].dtype, (*shape[:axis], int(values[0]), *shape[axis:]))]


def _hot_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, axis = len(ins[0].shape), attrs.get("axis", -1)
    return [-rank - 1 <= axis, axis <= rank, len(ins[2].shape) == 1, *(side == 2 for side in ins[2].shape[:1])]


def _compress(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    axis = axis_of(builder, x) if rng.random() < builder.style.rates.compressed_axis else None
    side = math.prod(x.shape) if axis is None else x.shape[axis]
    length = rng.between(1, min(side, 12))
    kept = [rng.below(2) for _ in range(length)]
    kept[rng.below(length)] = 1
    return Instance([x, builder.ints(kept, "bool")], {} if axis is None else {"axis": axis})


def _compressed(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    values, shape = ins[1].values, ins[0].shape
    assert values is not None
    count = int(sum(values))
    if "axis" not in attrs:
        return [(ins[0].dtype, (count,))]
    axis = attrs["axis"] % len(shape)
    return [(ins[0].dtype, (*shape[:axis], count, *shape[axis + 1 :]))]


def _compress_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, axis = len(ins[0].shape), attrs.get("axis", 0)
    return [-rank <= axis, axis < rank, len(ins[1].shape) == 1]


def gather(name: str, sample: Any, infer: Any, **more: Any) -> Operator:
    """An operator that works by index."""
    return Operator(
        name,
        sample,
        infer=infer,
        ranks=more.pop("ranks", (1, 5)),
        family="gather",
        bounds=more.pop("bounds", hull),
        **more,
    )


def _updated(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, ins[0].shape)]


def _coordinate(site: Site) -> Domain:
    """Coordinates inside the smallest of the axes that they go to."""
    data, indices, start = site.shape(0), site.shape(1), site.attribute("batch_dims", 0)
    if data is None or not indices:
        return Domain(0, 0)
    return below(min(data[start : start + indices[-1]], default=1))


def _hot_depth(site: Site) -> Domain:
    """The size of the new axis."""
    return exact([size_of(site.output(), site.attribute("axis", -1)) or 3])


def _open_gather_elements(builder: OpenBuilder, x: Tensor) -> Instance:
    axis = builder.rng.below(x.rank)
    sides = [builder.number(1, 16) for _ in x.shape]
    for place, (p, q) in enumerate(zip(sides, x.shape, strict=True)):
        if place != axis:
            builder.relations.append(p <= q)
    index = builder.match("int64", tuple(sides), Domain(0, x.shape[axis] - 1))
    return Instance([x, index], {"axis": signed(builder, axis, x.rank)})


OPERATORS = (
    gather(
        "Gather",
        _gather,
        _gathered,
        requires=_axis_inside,
        usual={1: axis_index(0)},
        moves=Moves.FIRST,
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.INDEXED,
        rounding=Rounding.EXACT,
    ),
    gather(
        "GatherElements",
        _gather_elements,
        lambda ins, attrs: [(ins[0].dtype, ins[1].shape)],
        requires=_elements_fit,
        usual={1: axis_index(0)},
        moves=Moves.FIRST,
        symbolic=_open_gather_elements,
        rank_ends=RankEnds.LEAST,
        sizes_unsaid=True,
        rounding=Rounding.EXACT,
    ),
    gather(
        "GatherND",
        _gather_nd,
        _gathered_nd,
        requires=_coordinates_fit,
        usual={1: _coordinate},
        moves=Moves.FIRST,
        rank_ends=RankEnds.LEAST,
        rounding=Rounding.EXACT,
    ),
    gather(
        "ScatterElements",
        _scatter_elements,
        _updated,
        bounds=_scattered,
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
        _scatter_nd,
        _updated,
        bounds=_scattered,
        requires=_rows_fit,
        dtypes=_PLAIN,
        usual={1: _coordinate},
        undefined=(repeated_rows,),
        rounding=Rounding.EXACT,
    ),
    gather(
        "OneHot",
        _one_hot,
        _hot,
        requires=_hot_fits,
        bounds=lambda ins, attrs: (ins[2].low, ins[2].high),
        ranks=(1, 4),
        dtypes=NUMERIC,
        usual={0: Domain(0, 2), 1: _hot_depth},
        symbolic=True,
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
    gather("Compress", _compress, _compressed, requires=_compress_fits, moves=Moves.FIRST, rounding=Rounding.EXACT),
)
