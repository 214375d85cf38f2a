"""Operators that run along axes: reductions, running sums, softmax and its like, the largest elements.

Sources: the ONNX operator pages. Until opset 18 most reductions take their axes as an attribute, since then
as an input; the schema tells which.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import catalogue, symbolic_arith
from opsieve.gen.declarations.declaration import Operator, RankEnds, axis_inside
from opsieve.gen.declarations.instance import (
    Attr,
    AxisAttr,
    Draft,
    Numbers,
    Part,
    drawn_axis,
    flag,
)
from opsieve.gen.declarations.properties import (
    OpenRule,
    Rounding,
    allow_any_order,
    long_sum,
    nan_input,
    normalised_size,
    overflow_in_sum,
    reduced_size,
    running_size,
    softmax_of_infinity,
)
from opsieve.gen.declarations.tensor import (
    ANY,
    FLOATS,
    INTEGERS,
    ZERO,
    Bounds,
    Domain,
    Ins,
    Number,
    Site,
    Typed,
    every_axis,
    exact,
    optional,
    size_of,
)

_LARGE_FLOATS = ("float32", "float64", "float16", "bfloat16")


def _given_axes(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Number]:
    second = optional(ins, 1)
    return attrs.get("axes") or (second.values if second is not None else None) or ()


def axes_of(ins: Ins, attrs: Mapping[str, Any], rank: int) -> list[int]:
    """Return the axes that a node names, as attribute or second input, counted from the front; all axes if it
    names none.
    """
    given = _given_axes(ins, attrs)
    return sorted({int(axis) % rank for axis in given}) if given and rank else list(range(rank))


def _axes_for(name: str) -> Part:
    """Make the part that draws axes, as an attribute or input by opset; sometimes none, meaning all."""

    def axes(draft: Draft) -> None:
        rng, rank, had = draft.rng, draft.x.rank, catalogue.form(name, draft.builder.opset)
        assert had is not None
        if not rank or rng.random() < draft.builder.style.rates.all_axes:
            return
        drawn = rng.some(range(rank), rng.between(1, rank))
        drawn = [
            axis - rank if rng.random() < draft.builder.style.rates.negative_axis else axis for axis in drawn
        ]
        if "axes" in had.attributes:
            draft.attrs = {"axes": drawn, **draft.attrs}
        else:
            # Without `keepdims` the output's rank depends on the axes. They are constants then, because
            # inference does not follow computed values.
            axes_input = draft.builder.ints if draft.attrs.get("keepdims", 1) else draft.builder.constant
            draft.inputs.append(axes_input(drawn))

    return axes


def _infer_reduced(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    x = ins[0]
    axes = axes_of(ins, attrs, len(x.shape))
    if attrs.get("keepdims", 1):
        return [(x.dtype, tuple(1 if axis in axes else side for axis, side in enumerate(x.shape)))]
    return [(x.dtype, tuple(side for axis, side in enumerate(x.shape) if axis not in axes))]


def reduction(
    name: str, bounds: Callable[[float, float, int], Bounds], safe: Domain = ANY, **more: Any
) -> Operator:
    """Return a reduction; `bounds` maps the operand's interval and the number of terms to that of the
    result.
    """
    return Operator(
        name,
        parts=(flag("keepdims", 0.5), _axes_for(name)),
        infer=_infer_reduced,
        requires=lambda ins, attrs: [
            -len(ins[0].shape) <= int(axis) < len(ins[0].shape) for axis in _given_axes(ins, attrs)
        ],
        bounds=lambda ins, attrs: bounds(
            ins[0].low,
            ins[0].high,
            symbolic_arith.product(ins[0].shape[axis] for axis in axes_of(ins, attrs, len(ins[0].shape))),
        ),
        safe=(safe,) if safe is not ANY else (),
        family="reduction",
        usual={1: every_axis},
        cost=lambda ins, attrs, outs: math.prod(ins[0].shape),
        symbolic=True,
        # An empty list of axes means all axes or none, depending on `noop_with_empty_axes`.
        unmodelled=lambda ins, attrs: len(ins) > 1 and 0 in ins[1].shape,
        **more,
    )


def _size(low: float, high: float) -> float:
    return max(-low, high, 0.0)


def _bound_product(low: float, high: float, terms: int) -> Bounds:
    size = max(_size(low, high), 1e-3)
    # exp(60) is about 1e26; larger products leave float16 and soon float32, so that no bound helps.
    if terms * abs(math.log(size)) > 60:
        return -math.inf, math.inf
    return (-(size**terms) if low < 0 else low**terms, max(size**terms, size))


def _least_size(low: float, high: float) -> float:
    return max(low, -high, 0.0)


REDUCTIONS = (
    reduction(
        "ReduceL1",
        lambda low, high, n: (n * _least_size(low, high), n * _size(low, high)),
        undefined=(long_sum(reduced_size),),
    ),
    reduction(
        "ReduceL2",
        lambda low, high, n: (
            math.sqrt(n) * _least_size(low, high),
            # float16 ends at 65504: a larger sum of squares overflows, so the bound is that of the sum.
            math.sqrt(n) * _size(low, high) if _size(low, high) ** 2 * n < 6e4 else n * _size(low, high) ** 2,
        ),
        undefined=(long_sum(reduced_size),),
    ),
    reduction(
        "ReduceLogSum",
        # Operands near 0 are excluded by the domain; the limit only keeps the logarithm defined.
        lambda low, high, n: (math.log(max(low, 1e-3) * n), math.log(max(high, 1e-3) * n)),
        Domain(0.1, 1e4),
        dtypes=_LARGE_FLOATS,
        undefined=(long_sum(reduced_size),),
    ),
    reduction(
        "ReduceLogSumExp",
        lambda low, high, n: (low, high + math.log(n)),
        # exp(50) is about 5e21, far inside float32.
        Domain(-50, 50),
        dtypes=_LARGE_FLOATS,
        undefined=(long_sum(reduced_size),),
    ),
    reduction(
        "ReduceMax",
        lambda low, high, n: (low, high),
        undefined=(nan_input,),
        rounding=Rounding.EXACT,
    ),
    reduction(
        "ReduceMean",
        # A mean is computed as a sum: where that may leave float16, the bound is that of the sum.
        lambda low, high, n: (low, high) if n * _size(low, high) < 3e4 else (low * n, high * n),
        undefined=(long_sum(reduced_size),),
        rounding=Rounding.SUMS,
    ),
    reduction(
        "ReduceMin",
        lambda low, high, n: (low, high),
        undefined=(nan_input,),
        rounding=Rounding.EXACT,
    ),
    reduction("ReduceProd", _bound_product),
    reduction(
        "ReduceSum",
        lambda low, high, n: (n * low, n * high),
        undefined=(
            overflow_in_sum,
            long_sum(reduced_size),
        ),
        rounding=Rounding.SUMS,
    ),
    reduction(
        "ReduceSumSquare",
        lambda low, high, n: (n * _least_size(low, high) ** 2, n * _size(low, high) ** 2),
        undefined=(long_sum(reduced_size),),
    ),
)


def _best_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    axis = attrs.get("axis", 0) % len(shape)
    kept = (1,) if attrs.get("keepdims", 1) else ()
    return [("int64", (*shape[:axis], *kept, *shape[axis + 1 :]))]


def _running_length(ins: Ins) -> int:
    values = ins[1].values
    assert values is not None
    size: int = ins[0].shape[int(values[0]) % len(ins[0].shape)]
    return size


def _running_sum(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    length = _running_length(ins)
    return (min(ins[0].low * length, ins[0].low, 0.0), max(ins[0].high * length, ins[0].high, 0.0))


def _running_product(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    low, high = _bound_product(ins[0].low, ins[0].high, _running_length(ins))
    return min(low, ins[0].low), max(high, ins[0].high, 1.0)


def _known_axis(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    values, rank = ins[1].values, len(ins[0].shape)
    return [] if values is None else [-rank <= values[0] < rank]


def _softmax_share(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    others = ins[0].shape[attrs.get("axis", -1)] - 1
    # exp(709) is the largest that a Python float holds.
    ratio = math.exp(min(ins[0].high - ins[0].low, 700.0))
    return 1 / (1 + others * ratio), 1 / (1 + others / ratio)


def _top_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape, values = ins[0].shape, ins[1].values
    assert values is not None
    axis = attrs.get("axis", -1) % len(shape)
    found = (*shape[:axis], values[0], *shape[axis + 1 :])
    return [(ins[0].dtype, found), ("int64", found)]


def _top_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    values, axis, inside = ins[1].values, attrs.get("axis", -1), axis_inside(-1)(ins, attrs)
    return (
        inside
        if values is None or not all(inside)
        else [*inside, values[0] >= 0, values[0] <= ins[0].shape[axis]]
    )


_AXIS = (Attr("axis", drawn_axis, 0.8),)
_BEST = (*_AXIS, flag("keepdims", 0.5), flag("select_last_index", 0.3))
_RUNNING = (
    flag("exclusive", 0.4),
    flag("reverse", 0.4),
    Numbers(drawn_axis, ("int64", "int32"), scalar=True),
)


def along(name: str, **more: Any) -> Operator:
    """Return an operator along one axis."""
    return Operator(
        name,
        ranks=more.pop("ranks", (1, 5)),
        family=more.pop("family", "axis"),
        symbolic=more.pop("symbolic", True),
        **more,
    )


def _top_count(site: Site) -> Domain:
    """Return how many elements the result has, or up to three if that is unknown."""
    axis = site.attribute("axis", -1)
    wanted, size = size_of(site.output(), axis), size_of(site.shape(0), axis)
    if wanted is not None:
        return exact([wanted])
    return Domain(1, min(size, 3)) if size else exact([1])


def _soft(name: str, bounds: Any, undefined: OpenRule, rounding: Rounding = Rounding.NONE) -> Operator:
    """Declare an operator of the family of Softmax."""
    return along(
        name,
        parts=_AXIS,
        requires=axis_inside(-1),
        bounds=bounds,
        dtypes=FLOATS,
        undefined=(undefined,),
        rank_ends=RankEnds.LEAST,
        rounding=rounding,
    )


AXIS = (
    *(
        along(
            name,
            parts=_BEST,
            infer=_best_type,
            requires=axis_inside(0),
            bounds=lambda ins, attrs: (0.0, ins[0].shape[attrs.get("axis", 0) % len(ins[0].shape)] - 1),
            undefined=(nan_input,),
            rank_ends=RankEnds.LEAST,
            rounding=Rounding.EXACT | Rounding.JUMPS,
        )
        for name in ("ArgMax", "ArgMin")
    ),
    along(
        "CumSum",
        parts=_RUNNING,
        requires=_known_axis,
        bounds=_running_sum,
        usual={1: ZERO},
        undefined=(long_sum(running_size),),
        # The page demands a 0-D tensor.
        scalars=(1,),
        rounding=Rounding.SUMS,
    ),
    along("CumProd", parts=_RUNNING, requires=_known_axis, bounds=_running_product, usual={1: ZERO}),
    _soft("Softmax", _softmax_share, softmax_of_infinity, rounding=Rounding.BOUNDED),
    _soft(
        "LogSoftmax",
        lambda ins, attrs: (ins[0].low - ins[0].high - math.log(ins[0].shape[attrs.get("axis", -1)]), 0.0),
        softmax_of_infinity,
    ),
    _soft("Hardmax", lambda ins, attrs: (0.0, 1.0), nan_input, rounding=Rounding.EXACT | Rounding.JUMPS),
    along(
        "LpNormalization",
        parts=(*_AXIS, Attr("p", (1, 2), 0.5)),
        requires=axis_inside(-1),
        bounds=lambda ins, attrs: (0.0, 1.0),
        safe=(Domain(0.1, 1e4),),
        dtypes=FLOATS,
        undefined=(long_sum(normalised_size),),
    ),
    along(
        "TopK",
        parts=(
            AxisAttr(-1),
            Numbers(
                lambda draft: [
                    draft.rng.draw_binned(1, draft.side) if draft.open is None else draft.open.number(1)
                ]
            ),
            flag("largest", 0.5),
        ),
        infer=_top_types,
        requires=_top_fits,
        bounds=lambda ins, attrs: [(ins[0].low, ins[0].high), (0.0, ins[0].shape[attrs.get("axis", -1)] - 1)],
        dtypes=(*FLOATS, *INTEGERS),
        usual={1: _top_count},
        undefined=(
            nan_input,
            allow_any_order,
        ),
        rank_ends=RankEnds.LEAST,
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
)

OPERATORS = (*REDUCTIONS, *AXIS)
