"""Operators that move elements about: reshaping, transposing, slicing, padding, joining, repeating.

Sources: the ONNX operator pages.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.declaration import Attributes, Bounds, Ins, Operator, Tensor, Typed, hull
from opsieve.gen.numbers_like import (
    Size,
    Truth,
    broadcast,
    broadcasts,
    ceil_quotient,
    chosen,
    divisors,
    larger,
    product,
    smaller,
)
from opsieve.gen.operators.reductions import axis_of
from opsieve.gen.schema import form
from opsieve.gen.sketch import Sketch
from opsieve.gen.tensor_facts import NUMERIC

Instance = tuple[Sequence[Tensor | None], Attributes]


def values_of(tensor: Tensor) -> list[Any]:
    """The elements of a tensor that a rule has to know: int-like, as sizes are."""
    assert tensor.values is not None
    return [int(value) if type(value) is float else value for value in tensor.values]


def sides_for(sketch: Sketch, count: int) -> list[int]:
    """Sizes whose product is `count`."""
    draw, left, sides = sketch.draw, count, list[int]()
    for _ in range(draw.below(4)):
        side = draw.choice(divisors(left))
        sides.append(side)
        left //= side
    sides.insert(draw.below(len(sides) + 1), left)
    return sides


def _reshape(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    count = math.prod(x.shape)
    asked: list[int] = [] if count == 1 and draw.random() < 0.2 else sides_for(sketch, count)
    if asked and draw.random() < 0.4:
        asked[draw.below(len(asked))] = -1
    if draw.random() < 0.2:  # a zero copies the size of the same axis
        asked = [0 if place < x.rank and side == x.shape[place] else side for place, side in enumerate(asked)]
    return [x, sketch.ints(asked)], {}


def _reshaped(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    keeps = not attrs.get("allowzero", 0)
    asked = [shape[place] if side == 0 and keeps else side for place, side in enumerate(values_of(ins[1]))]
    if -1 in asked:
        known = product(side for side in asked if not (isinstance(side, int) and side == -1))
        rest = product(shape) // known if isinstance(known, int) else product(shape) / known
        asked = [rest if isinstance(side, int) and side == -1 else side for side in asked]
    return [(ins[0].dtype, tuple(asked))]


def _same_count(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    asked = values_of(ins[1])
    if any(side == 0 and place >= len(ins[0].shape) for place, side in enumerate(asked)) or asked.count(-1) > 1:
        return [False]
    return [product(_reshaped(ins, attrs)[0][1]) == product(ins[0].shape)]


def _flatten(sketch: Sketch, x: Tensor) -> Instance:
    return [x], {"axis": sketch.draw.between(-x.rank, x.rank)} if sketch.draw.random() < 0.7 else {}


def _flat(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape, axis = ins[0].shape, attrs.get("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [(ins[0].dtype, (product(shape[:axis]), product(shape[axis:])))]


def _flatten_inside(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank, axis = len(ins[0].shape), attrs.get("axis", 1)
    return [-rank <= axis, axis <= rank]


def _transpose(sketch: Sketch, x: Tensor) -> Instance:
    if sketch.draw.random() < 0.15:
        return [x], {}
    return [x], {"perm": sketch.draw.shuffled(range(x.rank))} if x.rank else {}


def _transposed(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    order = attrs.get("perm", range(len(shape) - 1, -1, -1))
    return [(ins[0].dtype, tuple(shape[axis] for axis in order))]


def _is_order(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank = len(ins[0].shape)
    return [sorted(attrs.get("perm", range(rank))) == list(range(rank))]


def _unsqueeze(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    more = draw.between(1, 2) if x.rank < 4 else 1
    axes = draw.some(range(x.rank + more), more)
    return [x, sketch.ints([axis - x.rank - more if draw.random() < 0.3 else axis for axis in axes])], {}


def _unsqueezed(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    given = values_of(ins[1])
    rank = len(ins[0].shape) + len(given)
    axes, rest = {axis % rank for axis in given}, iter(ins[0].shape)
    return [(ins[0].dtype, tuple(1 if axis in axes else next(rest) for axis in range(rank)))]


def _new_axes(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    given = values_of(ins[1])
    rank = len(ins[0].shape) + len(given)
    return [all(-rank <= axis < rank for axis in given) and len({axis % rank for axis in given}) == len(given)]


def _squeeze(sketch: Sketch, x: Tensor) -> Instance:
    draw, ones = sketch.draw, [axis for axis, side in enumerate(x.shape) if side == 1]
    if draw.random() < 0.2:
        return [x], {}
    if not ones:
        x = sketch.match(x.dtype, tuple(1 if axis == x.rank - 1 else -1 for axis in range(x.rank)))
        ones = [axis for axis, side in enumerate(x.shape) if side == 1]
    axes = draw.some(ones, draw.between(1, len(ones)))
    return [x, sketch.ints([axis - x.rank if draw.random() < 0.3 else axis for axis in axes])], {}


def _squeezed(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    if len(ins) < 2:
        return [(ins[0].dtype, tuple(side for side in shape if side != 1))]
    axes = {axis % len(shape) for axis in values_of(ins[1])}
    return [(ins[0].dtype, tuple(side for axis, side in enumerate(shape) if axis not in axes))]


def _ones(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    shape = ins[0].shape
    if len(ins) < 2:
        return []
    given = values_of(ins[1])
    if not all(-len(shape) <= axis < len(shape) for axis in given):
        return [False]
    return [shape[axis] == 1 for axis in given]


def _expand(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    asked = [draw.binned(1, 4) if side == 1 else draw.choice((1, side)) for side in x.shape]
    if x.rank < 5 and draw.random() < 0.4:
        asked.insert(0, draw.between(1, 3))
    return [x, sketch.ints(asked)], {}


def _expanded(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, broadcast(ins[0].shape, tuple(values_of(ins[1]))))]


def _expand_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    return broadcasts(ins[0].shape, tuple(values_of(ins[1])))


def _repeats_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    times = values_of(ins[1])
    return [len(times) == len(ins[0].shape), *(number >= 0 for number in times)]


def _tile(sketch: Sketch, x: Tensor) -> Instance:
    return [x, sketch.ints([sketch.draw.choice((1, 1, 1, 2, 3)) for _ in x.shape])], {}


def _tiled(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, tuple(side * times for side, times in zip(ins[0].shape, values_of(ins[1]), strict=True)))]


def _slice(sketch: Sketch, x: Tensor) -> Instance:
    """Starts and ends inside, at and beyond the border, from both sides, steps in both directions; never an empty result."""
    draw = sketch.draw
    axes = draw.some(range(x.rank), draw.between(1, x.rank))
    starts, ends, steps = [], [], []
    for axis in axes:
        side = x.shape[axis]
        step = draw.choice((1, 1, 1, 2, 3, -1, -2))
        first, last = draw.below(side), draw.below(side)
        low, high = min(first, last), max(first, last)
        start, end = (low, high + 1) if step > 0 else (high, low - 1)
        if step < 0 and end < 0:
            end = -side - 1 - draw.below(2) * 1000  # before the first: counting from the end has no other way to say so
        elif draw.random() < 0.25:
            end = end - side if 0 < end < side else (2**31 - 1 if step > 0 and high == side - 1 else end)
        if draw.random() < 0.25:
            start -= side
        starts.append(start)
        ends.append(end)
        steps.append(step)
    dtype = draw.choice(("int64", "int64", "int32"))
    given = [axis - x.rank if draw.random() < 0.3 else axis for axis in axes]
    ins = [x, sketch.ints(starts, dtype), sketch.ints(ends, dtype)]
    if axes != list(range(len(axes))) or set(steps) != {1} or draw.random() < 0.5 or min(given) < 0:
        ins.append(sketch.ints(given, dtype))
    if set(steps) != {1} or (len(ins) == 4 and draw.random() < 0.3):
        ins.append(sketch.ints(steps, dtype))
    return ins, {}


def sliced(side: Size, start: Size, end: Size, step: int) -> Size:
    """How many elements a slice of one axis has (ONNX operator page of Slice)."""
    start = chosen(start < 0, start + side, start)
    end = chosen(end < 0, end + side, end)
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
        sides[axis] = sliced(sides[axis], start, end, step)
    return [(ins[0].dtype, tuple(sides))]


def _pad(sketch: Sketch, x: Tensor) -> Instance:
    draw, had = sketch.draw, form("Pad", sketch.opset)
    assert had is not None
    modes = ["constant", "constant", "edge", "reflect"] + (["wrap"] if sketch.opset >= 19 else [])
    mode = draw.choice(modes)
    axes = list(range(x.rank))
    if len(had.inputs) > 3 and draw.random() < 0.3:
        axes = draw.some(axes, draw.between(1, x.rank))
    most = [
        min(3, side - 1) if mode == "reflect" else min(3, side) if mode == "wrap" else 3
        for side in (x.shape[axis] for axis in axes)
    ]
    before, after = ([draw.choice((0, 0, draw.between(0, each))) for each in most] for _ in range(2))
    if mode == "constant" and draw.random() < 0.2:  # a negative pad removes
        place = draw.below(len(axes))
        if x.shape[axes[place]] + after[place] > 1:
            before[place] = -1
    ins: list[Tensor | None] = [x, sketch.ints([*before, *after])]
    if mode == "constant" and draw.random() < 0.6:
        ins.append(sketch.ints([draw.choice((0, 1, 1, 2))], x.dtype, ()))
    if len(axes) < x.rank or (len(had.inputs) > 3 and draw.random() < 0.2):
        while len(ins) < 3:
            ins.append(None)
        ins.append(sketch.ints(axes))
    return ins, {"mode": mode} if mode != "constant" or draw.random() < 0.3 else {}


def _padded(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    sides, pads = list(ins[0].shape), values_of(ins[1])
    axes = values_of(ins[3]) if len(ins) > 3 and ins[3] is not None else list(range(len(sides)))
    for place, axis in enumerate(axes):
        sides[axis] = sides[axis] + pads[place] + pads[place + len(axes)]
    return [(ins[0].dtype, tuple(sides))]


def _pad_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    if attrs.get("mode", "constant") != "constant":
        return ins[0].low, ins[0].high
    filler = ins[2].high if len(ins) > 2 and ins[2] is not None else 0.0
    return min(ins[0].low, filler), max(ins[0].high, filler)


def _pads_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """No side below 0; a reflection has what it mirrors, and one that wraps goes round once at most."""
    rank, pads, mode = len(ins[0].shape), values_of(ins[1]), attrs.get("mode", "constant")
    axes = values_of(ins[3]) if len(ins) > 3 and ins[3] is not None else list(range(rank))
    if len(pads) != 2 * len(axes) or not all(-rank <= axis < rank for axis in axes):
        return [False]
    found = [side >= 0 for side in _padded(ins, attrs)[0][1]]
    if mode in ("reflect", "wrap"):
        least = 1 if mode == "reflect" else 0
        for place, pad in enumerate(pads):
            found.append(pad <= ins[0].shape[axes[place % len(axes)]] - least)
    return found


def _concat(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    axis = axis_of(sketch, x)
    wanted = tuple(-1 if place == axis % x.rank else side for place, side in enumerate(x.shape))
    others = [sketch.match(x.dtype, wanted) for _ in range(draw.choice((0, 1, 1, 1, 2, 3)))]
    return draw.shuffled([x, *others]), {"axis": axis}


def _joined(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
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


def all_hull(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """The interval of all inputs together."""
    return min(t.low for t in ins), max(t.high for t in ins)


def _split(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    axis = axis_of(sketch, x)
    side = x.shape[axis]
    parts = draw.between(1, min(side, 4))
    attrs: Attributes = {"axis": axis} if axis or draw.random() < 0.5 else {}
    if sketch.opset >= 18 and draw.random() < 0.4:
        each = -(-side // parts)
        if each * (parts - 1) < side:  # else the last part would be empty
            return [x], {**attrs, "num_outputs": parts}
    cuts = draw.some(range(1, side), parts - 1)
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, side], strict=True)]
    return [x, sketch.ints(sizes)], attrs


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
        each = ceil_quotient(side, parts)
        sizes = [each] * (parts - 1) + [side - each * (parts - 1)]
    return [(ins[0].dtype, (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _block(sketch: Sketch, x: Tensor, deep: bool) -> Instance:
    """A blocksize that fits `x`, or another tensor where only 1 would."""
    draw = sketch.draw
    size = draw.choice((1, 2, 2, 3))
    n, c, h, w = x.shape
    if deep and c % (size * size):
        x = sketch.match(x.dtype, (n, size * size * draw.between(1, 2), h, w))
    if not deep and (h % size or w % size):
        x = sketch.match(x.dtype, (n, c, size * draw.between(1, 3), size * draw.between(1, 3)))
    attrs: Attributes = {"blocksize": size}
    if deep and draw.random() < 0.5:
        attrs["mode"] = draw.choice(("DCR", "CRD"))
    return [x], attrs


def _deep(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    (n, c, h, w), size = ins[0].shape, attrs["blocksize"]
    return [(ins[0].dtype, (n, c // (size * size) if isinstance(c, int) else c / (size * size), h * size, w * size))]


def _spaced(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    (n, c, h, w), size = ins[0].shape, attrs["blocksize"]
    return [
        (
            ins[0].dtype,
            (n, c * size * size, *(side // size if isinstance(side, int) else side / size for side in (h, w))),
        )
    ]


def _shape_range(ins: Ins, attrs: Mapping[str, Any]) -> list[int]:
    rank = len(ins[0].shape)
    return list(range(rank))[slice(attrs.get("start", 0), attrs.get("end"))]


def _shape(sketch: Sketch, x: Tensor) -> Instance:
    draw, attrs = sketch.draw, Attributes()
    if sketch.opset >= 15 and x.rank and draw.random() < 0.5:
        attrs["start"] = draw.between(-x.rank, x.rank - 1)
        if draw.random() < 0.5:
            attrs["end"] = draw.between(attrs["start"] % x.rank + 1, x.rank)
    return [x], attrs


def _trilu(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    ins = [x] if draw.random() < 0.3 else [x, sketch.ints([draw.between(-3, 3)], "int64", ())]
    return ins, {"upper": draw.below(2)} if draw.random() < 0.6 else {}


def with_zero(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """The interval of the first input and zero."""
    return min(ins[0].low, 0.0), max(ins[0].high, 0.0)


def _eye(sketch: Sketch, x: Tensor) -> Instance:
    draw, attrs = sketch.draw, Attributes()
    if draw.random() < 0.5:
        attrs["k"] = draw.between(-2, 2)
    if draw.random() < 0.4:
        from opsieve.gen.tensor_facts import NUMBER

        attrs["dtype"] = NUMBER[draw.choice(("float32", "float64", "int64", "int32", "float16"))]
    return [x], attrs


def _eye_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    from opsieve.gen.tensors import DTYPES

    return [(DTYPES[attrs["dtype"]] if "dtype" in attrs else ins[0].dtype, ins[0].shape)]


def _crop(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    axes = draw.some(range(x.rank), draw.between(1, x.rank))
    sizes = [max(1, x.shape[axis] + draw.between(-2, 2)) for axis in axes]
    return [x, sketch.ints(sizes)], {"axes": axes}


def _cropped(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    sides = list(ins[0].shape)
    for axis, size in zip(attrs.get("axes", range(len(sides))), values_of(ins[1]), strict=True):
        sides[axis] = size
    return [(ins[0].dtype, tuple(sides))]


def _reverse(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    batch = draw.below(2)
    lengths = [draw.between(1, x.shape[1 - batch]) for _ in range(x.shape[batch])]
    attrs = {"batch_axis": batch, "time_axis": 1 - batch}
    return [x, sketch.ints(lengths)], attrs if batch == 0 or draw.random() < 0.5 else {}


def layout(name: str, sample: Any, infer: Any = None, **more: Any) -> Operator:
    """An operator that moves elements."""
    if infer is not None:
        more["infer"] = infer
    return Operator(name, sample, family=more.pop("family", "layout"), bounds=more.pop("bounds", hull), **more)


OPERATORS = (
    layout("Reshape", _reshape, _reshaped, requires=_same_count),
    layout("Flatten", _flatten, _flat, requires=_flatten_inside, ranks=(1, 5)),
    layout("Transpose", _transpose, _transposed, requires=_is_order),
    layout("Unsqueeze", _unsqueeze, _unsqueezed, requires=_new_axes, ranks=(0, 4)),
    layout("Squeeze", _squeeze, _squeezed, requires=_ones, ranks=(1, 5)),
    layout("Expand", _expand, _expanded, requires=_expand_fits),
    layout("Tile", _tile, _tiled, requires=_repeats_fit, ranks=(1, 5)),
    layout("Slice", _slice, _slice_types, requires=_slice_fits, ranks=(1, 5)),
    layout("Pad", _pad, _padded, requires=_pads_fit, bounds=_pad_bounds, ranks=(1, 5), dtypes=(*NUMERIC, "bool")),
    layout("Concat", _concat, _joined, requires=_join_fits, bounds=all_hull, ranks=(1, 5)),
    layout("Split", _split, _split_types, requires=_split_fits, ranks=(1, 5)),
    layout(
        "DepthToSpace",
        lambda sketch, x: _block(sketch, x, True),
        _deep,
        requires=lambda ins, attrs: [ins[0].shape[1] % attrs["blocksize"] ** 2 == 0],
        ranks=(4, 4),
    ),
    layout(
        "SpaceToDepth",
        lambda sketch, x: _block(sketch, x, False),
        _spaced,
        requires=lambda ins, attrs: [side % attrs["blocksize"] == 0 for side in ins[0].shape[2:]],
        ranks=(4, 4),
    ),
    layout(
        "Shape",
        _shape,
        lambda ins, attrs: [("int64", (len(_shape_range(ins, attrs)),))],
        ranks=(1, 5),  # that of a scalar is empty
        bounds=lambda ins, attrs: (1.0, max((ins[0].shape[axis] for axis in _shape_range(ins, attrs)), default=1)),
    ),
    layout(
        "Size",
        lambda sketch, x: ([x], {}),
        lambda ins, attrs: [("int64", ())],
        bounds=lambda ins, attrs: (1.0, math.prod(ins[0].shape)),
    ),
    layout("Trilu", _trilu, bounds=with_zero, ranks=(2, 5), dtypes=(*NUMERIC, "bool")),
    layout("EyeLike", _eye, _eye_type, bounds=lambda ins, attrs: (0.0, 1.0), ranks=(2, 2), dtypes=(*NUMERIC, "bool")),
    layout("CenterCropPad", _crop, _cropped, bounds=with_zero, ranks=(1, 5), dtypes=NUMERIC),
    layout("ReverseSequence", _reverse, ranks=(2, 5)),
)
