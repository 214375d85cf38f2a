"""Operators that give a tensor another shape: Reshape, Flatten, Squeeze, Unsqueeze, Expand; and
what declarations of operators that move elements share.

Sources: the ONNX operator pages.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.declarations.builder import FREE, Builder, OpenBuilder
from opsieve.gen.declarations.declaration import Moves, Operator, SizeRule, axis_inside, hull
from opsieve.gen.declarations.instance import (
    Attr,
    Draft,
    First,
    Instance,
    Numbers,
    sign_axis,
    some,
    with_sizes,
)
from opsieve.gen.declarations.properties import Rounding
from opsieve.gen.declarations.symbolic_arith import (
    Size,
    Truth,
    broadcast,
    broadcasts,
    divisors,
    product,
)
from opsieve.gen.declarations.tensor import Bounds, Domain, Ins, Site, Tensor, Typed, every_axis, exact

# What declarations of operators that move elements share.


def values_of(tensor: Tensor) -> list[Any]:
    """Return the elements of a tensor that a rule must know, as whole numbers where they are floats."""
    assert tensor.values is not None
    return [int(value) if type(value) is float else value for value in tensor.values]


def sides_for(builder: Builder, count: int) -> list[int]:
    """Draw sizes whose product is `count`."""
    rng, left, sides = builder.rng, count, list[int]()
    for _ in range(rng.below(4)):
        side = rng.choice(divisors(left))
        sides.append(side)
        left //= side
    sides.insert(rng.below(len(sides) + 1), left)
    return sides


def all_hull(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """Return the interval of all inputs together."""
    return min(t.low for t in ins), max(t.high for t in ins)


def with_zero(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """Return the interval of the first input and zero."""
    return min(ins[0].low, 0.0), max(ins[0].high, 0.0)


def layout(name: str, **more: Any) -> Operator:
    """Return an operator that moves elements."""
    return Operator(name, family=more.pop("family", "layout"), bounds=more.pop("bounds", hull), **more)


def _same_elements(draft: Draft) -> list[int]:
    """Draw a shape of as many elements; one size may be inferred (-1), and some may be copied (0)."""
    rng, rates, x = draft.rng, draft.builder.style.rates, draft.x
    count = math.prod(x.shape)
    asked: list[int] = (
        [] if count == 1 and rng.random() < rates.to_scalar else sides_for(draft.builder, count)
    )
    if asked and rng.random() < rates.inferred_size:
        asked[rng.below(len(asked))] = -1
    # The page: a 0 copies the input's size of the same axis, unless `allowzero` is set.
    if rng.random() < rates.copied_size:
        asked = [0 if place < x.rank and side == x.shape[place] else side for place, side in enumerate(asked)]
    return asked


def _infer_reshape(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    keeps = not attrs.get("allowzero", 0)
    asked = [shape[place] if side == 0 and keeps else side for place, side in enumerate(values_of(ins[1]))]
    if -1 in asked:
        # The page: the size of -1 is inferred from the others and the number of elements.
        known = product(side for side in asked if not (isinstance(side, int) and side == -1))
        rest = product(shape) // known
        asked = [rest if isinstance(side, int) and side == -1 else side for side in asked]
    return [(ins[0].dtype, tuple(asked))]


def _same_count(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    asked = values_of(ins[1])
    if (
        any(side == 0 and place >= len(ins[0].shape) for place, side in enumerate(asked))
        or asked.count(-1) > 1
    ):
        return [False]
    return [product(_infer_reshape(ins, attrs)[0][1]) == product(ins[0].shape)]


def _flat(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape, axis = ins[0].shape, attrs.get("axis", 1)
    # Not a modulus: an axis equal to the rank is valid, and makes a column.
    axis = axis + len(shape) if axis < 0 else axis
    return [(ins[0].dtype, (product(shape[:axis]), product(shape[axis:])))]


def _new_places(draft: Draft) -> list[int]:
    rank, more = draft.x.rank, draft.rng.between(1, 2) if draft.x.rank < 4 else 1
    return [sign_axis(draft.builder, axis, rank + more) for axis in draft.rng.some(range(rank + more), more)]


def _infer_unsqueeze(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    given = values_of(ins[1])
    rank = len(ins[0].shape) + len(given)
    axes, rest = {axis % rank for axis in given}, iter(ins[0].shape)
    return [(ins[0].dtype, tuple(1 if axis in axes else next(rest) for axis in range(rank)))]


def _new_axes(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    given = values_of(ins[1])
    rank = len(ins[0].shape) + len(given)
    return [
        all(-rank <= axis < rank for axis in given) and len({axis % rank for axis in given}) == len(given)
    ]


def _single_axes(draft: Draft) -> list[int]:
    """Draw some axes of size 1; open sizes are made 1 by a relation."""
    rng, rank = draft.rng, draft.x.rank
    ones = [axis for axis in range(rank) if draft.open is not None or draft.x.shape[axis] == 1]
    most = len(ones) if draft.open is None else min(2, rank)
    return [sign_axis(draft.builder, axis, rank) for axis in rng.some(ones, rng.between(1, most))]


def _infer_squeeze(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
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


def _draw_expanded_shape(draft: Draft) -> list[int]:
    rng = draft.rng
    # An Expand broadcasts both ways: 1 keeps the input's size.
    asked = [rng.draw_binned(1, 4) if side == 1 else rng.choice((1, side)) for side in draft.x.shape]
    return [rng.between(1, 3), *asked] if draft.x.rank < 5 and draft.draws(0.4) else asked


def _target_shape(site: Site) -> Domain:
    """Return the result's shape if it is known and fits, else a shape that the data can take."""
    data, length = site.shape(0), site.length
    out = site.output()
    if data is None:
        return exact((-1, *[1] * (length - 1))[:length])
    if out is not None and len(out) == length and math.prod(out) == math.prod(data):
        return exact(out)
    if length > len(data):
        return exact((*[1] * (length - len(data)), *data))
    return exact((*data[: length - 1], math.prod(data[length - 1 :])) if length else ())


def _expanded_shape(site: Site) -> Domain:
    """Return the result's shape if it is known, else that of the data."""
    data, out = site.shape(0), site.output()
    if out is not None and len(out) == site.length:
        return exact(out)
    return (
        exact([1] * site.length) if data is None else exact(([1] * site.length + list(data))[-site.length :])
    )


def _ones_of(site: Site) -> Domain:
    """Axes of size 1."""
    ones = [axis for axis, size in enumerate(site.shape(0) or ()) if size == 1]
    return exact(ones if len(ones) >= site.length else range(site.length))


def _open_reshape(builder: OpenBuilder, x: Tensor) -> Instance:
    """Return an axis split by a factor, two merged, axes in another order, or ones put in; then a size left
    open or copied.
    """
    rng, view = builder.rng, list(x.shape)
    kind = rng.choice(("split", "split", "merge", "merge", "order", "ones"))
    if kind == "split" and x.rank in range(1, 5):
        axis, factor = builder.rng.below(x.rank), rng.between(2, 4)
        part = builder.number(1, spread=False)
        builder.relations.append(view[axis] == factor * part)
        view[axis] = factor * part
        asked = [*view[:axis], *rng.shuffle_items((factor, part)), *view[axis + 1 :]]
    elif kind == "merge" and x.rank > 1:
        axis = rng.below(x.rank - 1)
        view[axis + rng.below(2)] = builder.pin_number(view[axis])
        # The product of two unknown sizes is not linear, so one of the two becomes a number.
        pair = list(x.shape[axis : axis + 2])
        place = 0 if isinstance(view[axis], int) else 1
        pair[place] = builder.pin_number(pair[place])
        view[axis : axis + 2] = pair
        asked = [*view[:axis], view[axis] * view[axis + 1], *view[axis + 2 :]]
    elif kind == "ones" and x.rank < 5:
        asked = list(view)
        asked.insert(rng.below(x.rank + 1), 1)
    else:
        asked = list(rng.shuffle_items(view))
    shape = builder.ints(asked)
    if asked and rng.random() < builder.style.rates.inferred_size:
        builder.inferred.add((shape.name, rng.below(len(asked))))
    elif rng.random() < builder.style.rates.copied_open_size:
        builder.copied |= {
            (shape.name, place) for place, side in enumerate(asked[: x.rank]) if side is x.shape[place]
        }
    return Instance([with_sizes(x, tuple(view)), shape])


def _open_flatten(builder: OpenBuilder, x: Tensor) -> Instance:
    axis = builder.rng.between(0, x.rank)
    view = list(x.shape)
    # A product of two open sizes is not linear, so all sizes of a group but one become numbers.
    for group in (range(axis), range(axis, x.rank)):
        kept = builder.rng.choice(group) if group else 0
        for place in group:
            if place != kept:
                view[place] = builder.pin_number(view[place])
    return Instance(
        [with_sizes(x, tuple(view))], {"axis": sign_axis(builder, axis, x.rank) if axis < x.rank else axis}
    )


def _open_expand(builder: OpenBuilder, x: Tensor) -> Instance:
    rng, asked = builder.rng, list[Size]()
    for side in x.shape:
        kind = rng.choice(("one", "same", "grow"))
        if kind == "grow":
            builder.relations.append(side == 1)
        asked.append(1 if kind == "one" else side if kind == "same" else builder.number(1, 16))
    if x.rank < 5 and rng.random() < builder.style.rates.new_axis:
        asked.insert(0, builder.number(1, 8))
    view = tuple(
        1 if q is not p and not isinstance(q, int) else p
        for p, q in zip(x.shape, asked[len(asked) - x.rank :], strict=True)
    )
    return Instance([with_sizes(x, view), builder.ints(asked)])


RESHAPES = (
    layout(
        "Reshape",
        infer=_infer_reshape,
        parts=(Numbers(_same_elements),),
        requires=_same_count,
        usual={1: _target_shape},
        moves=Moves.IN_ORDER,
        symbolic=_open_reshape,
        size_rule=SizeRule.REGROUPED,
        shape_input=1,
        per_axis=(1,),
        rounding=Rounding.EXACT,
    ),
    layout(
        "Flatten",
        infer=_flat,
        parts=(Attr("axis", lambda draft: draft.rng.between(-draft.x.rank, draft.x.rank), 0.7),),
        requires=axis_inside(1, beyond=1),
        ranks=(1, 5),
        moves=Moves.IN_ORDER,
        symbolic=_open_flatten,
        size_rule=SizeRule.REGROUPED,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Unsqueeze",
        infer=_infer_unsqueeze,
        parts=(Numbers(_new_places, fixed=True),),
        requires=_new_axes,
        ranks=(0, 4),
        usual={1: every_axis},
        moves=Moves.IN_ORDER,
        symbolic=True,
        size_rule=SizeRule.REGROUPED,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Squeeze",
        infer=_infer_squeeze,
        parts=(
            some(
                First(
                    fits=lambda draft: draft.open is not None or 1 in draft.x.shape,
                    other=lambda draft: (*(FREE for _ in draft.x.shape[1:]), 1),
                ),
                Numbers(_single_axes, fixed=True),
                # Without axes every axis of size 1 is removed.
                where=lambda draft: (
                    draft.open is not None or not draft.draws(draft.builder.style.rates.all_ones)
                ),
            ),
        ),
        requires=_ones,
        ranks=(1, 5),
        usual={1: _ones_of},
        moves=Moves.IN_ORDER,
        symbolic=True,
        size_rule=SizeRule.REGROUPED,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Expand",
        infer=lambda ins, attrs: [(ins[0].dtype, broadcast(ins[0].shape, tuple(values_of(ins[1]))))],
        parts=(Numbers(_draw_expanded_shape),),
        requires=lambda ins, attrs: broadcasts(ins[0].shape, tuple(values_of(ins[1]))),
        usual={1: _expanded_shape},
        moves=Moves.FIRST,
        symbolic=_open_expand,
        size_rule=SizeRule.GROWN,
        shape_input=1,
        per_axis=(1,),
        rounding=Rounding.EXACT,
    ),
)
