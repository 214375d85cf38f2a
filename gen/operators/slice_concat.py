"""Operators that cut and join: slicing, padding, splitting, concatenating.

Sources: the ONNX operator pages.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import catalogue, properties
from opsieve.gen.declarations.builder import FREE, Builder, OpenBuilder
from opsieve.gen.declarations.declaration import Moves, RankEnds, SizeRule
from opsieve.gen.declarations.instance import (
    Attr,
    AxisAttr,
    Count,
    Draft,
    Instance,
    Numbers,
    drawn_axis,
    look_up,
    sign_axis,
    some,
)
from opsieve.gen.declarations.symbolic_arith import Size, Truth, ceil_quotient, larger, smaller, where
from opsieve.gen.declarations.tensor import (
    NUMERIC,
    ZERO,
    Bounds,
    Domain,
    Ins,
    Site,
    Tensor,
    Typed,
    every_axis,
    exact,
    like_output,
    optional,
    size_of,
)
from opsieve.gen.operators.reshaping import all_hull, layout, values_of, with_zero


def _slice(builder: Builder, x: Tensor) -> Instance:
    """Starts and ends inside, at and beyond the border, from both sides, steps in both directions; never an
    empty result.
    """
    rng, rates = builder.rng, builder.style.rates
    axes = rng.some(range(x.rank), rng.between(1, x.rank))
    bounds = []
    for axis in axes:
        side = x.shape[axis]
        step = rng.choice((1, 1, 1, 2, 3, -1, -2))
        first, last = rng.below(side), rng.below(side)
        low, high = min(first, last), max(first, last)
        start, end = (low, high + 1) if step > 0 else (high, low - 1)
        if step < 0 and end < 0:
            # An end before the first element: -1 would mean the last one, so the end lies below -side.
            end = -side - 1 - rng.below(2) * 1000
        elif rng.random() < rates.end_beyond:
            end = end - side if 0 < end < side else (2**31 - 1 if step > 0 and high == side - 1 else end)
        if rng.random() < rates.negative_start:
            start -= side
        bounds.append((start, end, step))
    starts, ends, steps = zip(*bounds, strict=True)
    dtype = rng.choice(("int64", "int64", "int32"))
    given = [axis - x.rank if rng.random() < rates.negative_axis else axis for axis in axes]
    ins = [x, builder.ints(starts, dtype), builder.ints(ends, dtype)]
    if (
        axes != list(range(len(axes)))
        or set(steps) != {1}
        or rng.random() < rates.optional_input
        or min(given) < 0
    ):
        ins.append(builder.ints(given, dtype))
    if set(steps) != {1} or (len(ins) == 4 and rng.random() < rates.rare_input):
        ins.append(builder.ints(steps, dtype))
    return Instance(ins)


def count_slice(side: Size, start: Size, end: Size, step: int) -> Size:
    """Count the elements that a slice of one axis has (ONNX operator page of Slice)."""
    start = where(start < 0, start + side, start)
    end = where(end < 0, end + side, end)
    # The page clamps starts and ends to [0, side] for positive steps, and to [0, side-1] and [-1, side-1] for
    # negative ones.
    if step > 0:
        start, end = smaller(larger(start, 0), side), smaller(larger(end, 0), side)
        return larger(0, ceil_quotient(end - start, step))
    start, end = smaller(larger(start, 0), side - 1), smaller(larger(end, -1), side - 1)
    return larger(0, ceil_quotient(start - end, -step))


def _slice_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, (starts, *rest) = len(ins[0].shape), [values_of(tensor) for tensor in ins[1:]]
    axes = rest[1] if len(rest) > 1 else list(range(len(starts)))
    steps = rest[2] if len(rest) > 2 else []
    return [
        all(len(numbers) == len(starts) for numbers in rest),
        all(-rank <= axis < rank for axis in axes),
        len({axis % rank for axis in axes}) == len(axes) if rank else not axes,
        *(step != 0 for step in steps),
    ]


def _slice_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    sides = list(ins[0].shape)
    starts, ends = values_of(ins[1]), values_of(ins[2])
    axes = values_of(ins[3]) if len(ins) > 3 else range(len(starts))
    steps = values_of(ins[4]) if len(ins) > 4 else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        sides[axis] = count_slice(sides[axis], start, end, step)
    return [(ins[0].dtype, tuple(sides))]


def _pad(builder: Builder, x: Tensor) -> Instance:
    rng, had = builder.rng, catalogue.form("Pad", builder.opset)
    assert had is not None
    modes = ["constant", "constant", "edge", "reflect"] + (["wrap"] if builder.opset >= 19 else [])
    mode = rng.choice(modes)
    axes = list(range(x.rank))
    if len(had.inputs) > 3 and rng.random() < builder.style.rates.padded_axes:
        axes = rng.some(axes, rng.between(1, x.rank))
    # A reflection has side - 1 elements to mirror, and a wrap goes round once at most.
    most = [
        min(3, side - 1) if mode == "reflect" else min(3, side) if mode == "wrap" else 3
        for side in (x.shape[axis] for axis in axes)
    ]
    before, after = ([rng.choice((0, 0, rng.between(0, each))) for each in most] for _ in range(2))
    # A negative pad removes elements; one must be left.
    if mode == "constant" and rng.random() < builder.style.rates.negative_pad:
        place = rng.below(len(axes))
        if x.shape[axes[place]] + after[place] > 1:
            before[place] = -1
    ins: list[Tensor | None] = [x, builder.ints([*before, *after])]
    if mode == "constant" and rng.random() < builder.style.rates.likely_input:
        ins.append(builder.ints([rng.choice((0, 1, 1, 2))], x.dtype, ()))
    if len(axes) < x.rank or (len(had.inputs) > 3 and rng.random() < builder.style.rates.all_axes_named):
        while len(ins) < 3:
            ins.append(None)
        ins.append(builder.ints(axes))
    return Instance(
        ins, {"mode": mode} if mode != "constant" or rng.random() < builder.style.rates.rare_attribute else {}
    )


def _padded_axes(ins: Ins) -> list[Any]:
    axes = optional(ins, 3)
    return values_of(axes) if axes is not None else list(range(len(ins[0].shape)))


def _infer_pad(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    sides, pads = list(ins[0].shape), values_of(ins[1])
    axes = _padded_axes(ins)
    for place, axis in enumerate(axes):
        sides[axis] = sides[axis] + pads[place] + pads[place + len(axes)]
    return [(ins[0].dtype, tuple(sides))]


def _pad_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    if attrs.get("mode", "constant") != "constant":
        return ins[0].low, ins[0].high
    value = optional(ins, 2)
    filler = 0.0 if value is None else value.high
    return min(ins[0].low, filler), max(ins[0].high, filler)


def _pads_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """List the relations that pads satisfy: sizes stay at least 0, a reflection has enough elements to
    mirror, and a wrap goes round once at most.
    """
    rank, mode = len(ins[0].shape), attrs.get("mode", "constant")
    chosen, value = optional(ins, 3), optional(ins, 2)
    # Shapes first: they are known also where pads and axes are fed.
    count = (rank,) if chosen is None else chosen.shape
    if (
        len(count) != 1
        or ins[1].shape != (2 * count[0],)
        or not all(-rank <= axis < rank for axis in _padded_axes(ins))
    ):
        return [False]
    axes, pads = _padded_axes(ins), values_of(ins[1])
    found = [side >= 0 for side in _infer_pad(ins, attrs)[0][1]]
    if value is not None:
        found += [len(value.shape) <= 1, *(side == 1 for side in value.shape)]
    if mode in ("reflect", "wrap"):
        least = 1 if mode == "reflect" else 0
        for place, pad in enumerate(pads):
            found.append(pad <= ins[0].shape[axes[place % len(axes)]] - least)
    return found


def _others(draft: Draft) -> None:
    """Draw up to three more tensors that differ along the axis only, in any order with the first."""
    x = draft.x
    wanted = tuple(FREE if place == draft.axis % x.rank else side for place, side in enumerate(x.shape))
    draft.inputs += [
        draft.builder.match(x.dtype, wanted) for _ in range(draft.rng.choice((0, 1, 1, 1, 2, 3)))
    ]
    draft.inputs = draft.rng.shuffle_items(draft.inputs)


def _infer_concat(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    axis = attrs["axis"] % len(shape)
    total = ins[0].shape[axis]
    for other in ins[1:]:
        total = total + other.shape[axis]
    return [(ins[0].dtype, (*shape[:axis], total, *shape[axis + 1 :]))]


def _join_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank = len(ins[0].shape)
    if not -rank <= attrs["axis"] < rank or any(len(other.shape) != rank for other in ins):
        return [False]
    axis = attrs["axis"] % rank
    return [
        a == b
        for other in ins[1:]
        for place, (a, b) in enumerate(zip(ins[0].shape, other.shape, strict=True))
        if place != axis
    ]


def _even(draft: Draft) -> bool:
    """Draw whether only the number of parts is given (since opset 18), if the last part is not empty."""
    if draft.open is not None or draft.opset < 18 or not draft.draws(0.4):
        return False
    each = -(-draft.side // draft["parts"])
    return bool(each * (draft["parts"] - 1) < draft.side)


def _part_sizes(draft: Draft) -> list[Size]:
    if draft.open is not None:
        return [draft.open.number(1) for _ in range(draft["parts"])]
    cuts = draft.rng.some(range(1, draft.side), draft["parts"] - 1)
    return [b - a for a, b in zip([0, *cuts], [*cuts, draft.side], strict=True)]


def _split_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, axis = len(ins[0].shape), attrs.get("axis", 0)
    if not -rank <= axis < rank:
        return [False]
    if len(ins) < 2:
        return [attrs["num_outputs"] >= 1]
    sizes = values_of(ins[1])
    return [*(size >= 0 for size in sizes), sum(sizes) == ins[0].shape[axis]]


def _split_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    axis = attrs.get("axis", 0) % len(shape)
    if len(ins) > 1:
        sizes = values_of(ins[1])
    else:
        parts, side = attrs["num_outputs"], shape[axis]
        # The page: without sizes all parts are equal, and the last one is smaller if the axis is not
        # divisible.
        each = ceil_quotient(side, parts)
        sizes = [each] * (parts - 1) + [side - each * (parts - 1)]
    return [(ins[0].dtype, (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _crop_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, sizes = len(ins[0].shape), values_of(ins[1])
    axes = attrs.get("axes", range(rank))
    return [
        len(axes) == len(sizes),
        all(-rank <= axis < rank for axis in axes),
        *(size >= 0 for size in sizes),
    ]


def _near_sizes(draft: Draft) -> list[Size]:
    if draft.open is not None:
        return [draft.open.number(1, 16) for _ in draft.attrs["axes"]]
    return [max(1, draft.x.shape[axis] + draft.rng.between(-2, 2)) for axis in draft.attrs["axes"]]


def _infer_crop(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    sides = list(ins[0].shape)
    for axis, size in zip(attrs.get("axes", range(len(sides))), values_of(ins[1]), strict=True):
        sides[axis] = size
    return [(ins[0].dtype, tuple(sides))]


def _pad_sizes(site: Site) -> Domain:
    """Paddings at the ends that make up the difference to the result."""
    data, out = site.shape(0), site.output()
    if data is None or out is None or len(data) != len(out) or site.length != 2 * len(data):
        return Domain(0, 1)
    return exact([*[0] * len(data), *[size - have for size, have in zip(out, data, strict=True)]])


def _slice_ends(site: Site) -> Domain:
    """Return the ends of slices that start at 0, from the result's shape if that is known."""
    data, out, length = site.shape(0), site.output(), site.length
    axes = site.constant(3) or list(range(length))
    if (
        data is None
        or out is None
        or len(data) != len(out)
        or any(not -len(out) <= axis < len(out) for axis in axes)
    ):
        return Domain(1, 3)
    return exact([out[axis] for axis in axes])


def split_sizes(site: Site) -> Domain:
    """Return the sizes of the parts: those of the outputs where they are known, else alike."""
    axis = site.attribute("axis", 0)
    sizes = [size_of(site.output(place), axis) for place in range(len(site.node.output))]
    known = [size for size in sizes if size is not None]
    if len(known) == site.length:
        return exact(known)
    size, parts = size_of(site.shape(0), axis), site.length
    if site.shape(site.position) == () or not parts or size is None:
        return Domain(1, 1)
    return exact([*[size // parts] * (parts - 1), size - size // parts * (parts - 1)])


def _open_slice(builder: OpenBuilder, x: Tensor) -> Instance:
    """Starts and ends anywhere in the axis, counted from either side; ends now and then beyond it."""
    rng = builder.rng
    axes = rng.some(range(x.rank), rng.between(1, min(2, x.rank)))
    starts, ends, steps = list[Size](), list[Size](), list[int]()
    for axis in axes:
        side, step = x.shape[axis], rng.choice((1, 1, 1, 2, 3, -1, -2))
        low, length = builder.number(0, own=(0,)), builder.number(1)
        builder.relations.append(low + length <= side)
        start, end = (low, low + length) if step > 0 else (low + length - 1, low - 1)
        if step < 0:
            # An end before the first element would be -1, which means the last one.
            builder.relations.append(low >= 1)
        elif rng.random() < builder.style.rates.end_beyond:
            builder.relations.append(low + length == side)
            # The page recommends INT_MAX for a slice to the end.
            end = 2**31 - 1
        elif rng.random() < builder.style.rates.negative_end:
            builder.relations.append(low + length < side)
            end = end - side
        starts.append(start - side if rng.random() < builder.style.rates.negative_start else start)
        ends.append(end)
        steps.append(step)
    given = [sign_axis(builder, axis, x.rank) for axis in axes]
    return Instance([x, *(builder.ints(values) for values in (starts, ends, given, steps))])


def _open_pad(builder: OpenBuilder, x: Tensor) -> Instance:
    """Paddings of zero and below have bins of their own (NNSmith, section 4)."""
    rng = builder.rng
    mode = rng.choice(("constant", "constant", "edge", "reflect", *(["wrap"] if builder.opset >= 19 else [])))
    plain = mode == "constant"
    pads = [builder.number(-2 if plain else 0, 16, (0, -1, -2) if plain else (0,)) for _ in range(2 * x.rank)]
    ins: list[Tensor | None] = [x, builder.ints(pads)]
    if plain and rng.random() < builder.style.rates.likely_input:
        ins.append(builder.ints([rng.choice((0, 1, 2))], x.dtype, ()))
    for axis, side in enumerate(x.shape):
        builder.relations.extend(side + pad >= 1 for pad in (pads[axis], pads[axis + x.rank]))
    return Instance(ins, {} if plain else {"mode": mode})


OPERATORS = (
    layout(
        "Slice",
        sample=_slice,
        infer=_slice_types,
        requires=_slice_fits,
        ranks=(1, 5),
        usual={1: ZERO, 2: _slice_ends, 3: every_axis, 4: exact([1])},
        moves=Moves.FIRST,
        symbolic=_open_slice,
        size_rule=SizeRule.CUT,
        rounding=properties.Rounding.EXACT,
    ),
    layout(
        "Pad",
        sample=_pad,
        infer=_infer_pad,
        requires=_pads_fit,
        bounds=_pad_bounds,
        ranks=(1, 5),
        dtypes=(*NUMERIC, "bool"),
        usual={1: _pad_sizes, 3: every_axis},
        moves=Moves.FIRST,
        symbolic=_open_pad,
        per_axis=(1,),
        rounding=properties.Rounding.EXACT,
    ),
    layout(
        "Concat",
        infer=_infer_concat,
        parts=(Attr("axis", drawn_axis), _others),
        requires=_join_fits,
        bounds=all_hull,
        ranks=(1, 5),
        moves=Moves.EVERY,
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.JOINED,
        merges=True,
        rounding=properties.Rounding.EXACT,
    ),
    layout(
        "Split",
        infer=_split_types,
        parts=(
            AxisAttr(0),
            Count(
                "parts",
                lambda draft: draft.rng.between(1, 4 if draft.open is not None else min(draft.side, 4)),
            ),
            Count("even", _even),
            some(Attr("num_outputs", look_up("parts")), where=look_up("even")),
            some(Numbers(_part_sizes), where=lambda draft: not draft["even"]),
        ),
        requires=_split_fits,
        ranks=(1, 5),
        usual={1: split_sizes},
        moves=Moves.FIRST,
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.PARTED,
        sizes_unsaid=True,
        rounding=properties.Rounding.EXACT,
    ),
    layout(
        "CenterCropPad",
        infer=_infer_crop,
        parts=(
            Attr(
                "axes", lambda draft: draft.rng.some(range(draft.x.rank), draft.rng.between(1, draft.x.rank))
            ),
            Numbers(_near_sizes),
        ),
        requires=_crop_fits,
        bounds=with_zero,
        ranks=(1, 5),
        dtypes=NUMERIC,
        usual={1: like_output(Domain(1, 4))},
        symbolic=True,
        per_axis=(1,),
    ),
)
