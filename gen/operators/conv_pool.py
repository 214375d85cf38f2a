"""Operators with windows: poolings in one to three spatial dimensions, and convolutions.py.

Sources: the ONNX operator pages of MaxPool, AveragePool, LpPool, Global*Pool.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.operators.convolutions import CONVOLUTIONS
from opsieve.gen.operators.layouts import with_zero
from opsieve.gen.operators.windows import kernel_for, open_window, place_windows, placed, spatial, strides_fit, windowed
from opsieve.gen.spec.builder import Builder, OpenBuilder
from opsieve.gen.spec.declaration import RankEnds, given
from opsieve.gen.spec.instance import Attr, Instance
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.row_rules import rows_of_first
from opsieve.gen.spec.symbolic_arith import Truth, product
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed
from opsieve.gen.spec.undefined import long_sum, nan_input, reduced_size


def _pool(builder: Builder, x: Tensor, dilates: bool, ceils: bool) -> tuple[list[int], Attributes]:
    rng, attrs = builder.rng, Attributes()
    kernel = kernel_for(builder, x.shape[2:])
    place_windows(builder, x.shape[2:], kernel, attrs, dilates, keeps=True)
    if ceils and rng.random() < builder.style.rates.rare_attribute and "auto_pad" not in attrs:
        # Opsets and compilers differ over a window that would begin in the padding at the end: there is none here.
        strides, pads = spatial(attrs, "strides", len(kernel)), spatial(attrs, "pads", 2 * len(kernel), 0)
        ends = placed(x.shape[2:], kernel, attrs, True)
        if all((end - 1) * strides[axis] < x.shape[2 + axis] + pads[axis] for axis, end in enumerate(ends)):
            attrs["ceil_mode"] = 1
    return kernel, {"kernel_shape": kernel, **attrs}


def _max_pool(builder: Builder, x: Tensor) -> Instance:
    _, attrs = _pool(builder, x, True, True)
    return Instance([x], attrs)


def _average_pool(builder: Builder, x: Tensor) -> Instance:
    _, attrs = _pool(builder, x, builder.opset >= 19, True)
    if builder.rng.random() < builder.style.rates.attribute:
        attrs["count_include_pad"] = builder.rng.below(2)
    return Instance([x], attrs)


def _lp_pool(builder: Builder, x: Tensor) -> Instance:
    _, attrs = _pool(builder, x, builder.opset >= 18, builder.opset >= 18)
    if builder.rng.random() < builder.style.rates.attribute:
        attrs["p"] = builder.rng.choice((1, 2, 3))
    return Instance([x], attrs)


def _pooled(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    x = ins[0].shape
    return [(ins[0].dtype, (*x[:2], *placed(x[2:], attrs["kernel_shape"], attrs, bool(attrs.get("ceil_mode")))))]


def _pool_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    kernel = attrs["kernel_shape"]
    pads = spatial(attrs, "pads", 2 * len(kernel), 0)
    if len(kernel) != len(ins[0].shape) - 2 or not strides_fit(attrs, len(kernel)):
        return [False]
    ends, sides = _pooled(ins, attrs)[0][1], ins[0].shape
    # As in `_pool`: no window begins in the padding at the end.
    inside = [
        (end - 1) * stride < side + pad
        for end, stride, side, pad in zip(
            ends[2:], spatial(attrs, "strides", len(kernel)), sides[2:], pads, strict=False
        )
        if attrs.get("ceil_mode")
    ]
    return [
        *(size >= 1 for size in ends),
        *(pad < kernel[place % len(kernel)] for place, pad in enumerate(pads)),
        *inside,
    ]


def _lp_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return 0.0, product(attrs["kernel_shape"]) * max(ins[0].size, ins[0].size ** attrs.get("p", 2))


def _pool_cost(ins: Ins, attrs: Mapping[str, Any], outs: Sequence[Typed]) -> int:
    count: int = math.prod(outs[0][1]) * math.prod(attrs["kernel_shape"])
    return count


def _global(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    x = ins[0].shape
    return [(ins[0].dtype, (*x[:2], *(1 for _ in x[2:])))]


def _global_lp_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return 0.0, product(ins[0].shape[2:]) * max(ins[0].size, ins[0].size ** attrs.get("p", 2))


def _place_jumps(attrs: Mapping[str, Any], outputs: int) -> Rounding:
    """The largest value of a window moves smoothly, its place does not."""
    return Rounding.EXACT | Rounding.JUMPS if outputs > 1 else Rounding.EXACT


def _open_pool(builder: OpenBuilder, x: Tensor, dilates: bool) -> Instance:
    """With ceil_mode no window may begin in the padding at the end: opsets and compilers differ over that."""
    kernel, attrs = open_window(builder, x.rank - 2, True, dilates)
    if dilates and builder.rng.random() < builder.style.rates.rare_attribute and "auto_pad" not in attrs:
        strides, pads = spatial(attrs, "strides", len(kernel)), spatial(attrs, "pads", 2 * len(kernel), 0)
        for axis, end in enumerate(placed(x.shape[2:], kernel, attrs, True)):
            builder.relations.append((end - 1) * strides[axis] < x.shape[2 + axis] + pads[axis])
        attrs["ceil_mode"] = 1
    return Instance([x], {"kernel_shape": kernel, **attrs})


def _open_max_pool(builder: OpenBuilder, x: Tensor) -> Instance:
    return _open_pool(builder, x, True)


def _open_average_pool(builder: OpenBuilder, x: Tensor) -> Instance:
    made = _open_pool(builder, x, builder.opset >= 19)
    if builder.rng.random() < builder.style.rates.attribute:
        made.attributes["count_include_pad"] = builder.rng.below(2)
    return made


def _open_lp_pool(builder: OpenBuilder, x: Tensor) -> Instance:
    made = _open_pool(builder, x, builder.opset >= 18)
    if builder.rng.random() < builder.style.rates.attribute:
        made.attributes["p"] = builder.rng.choice((1, 2, 3))
    return made


OPERATORS = (
    *CONVOLUTIONS,
    windowed(
        "MaxPool",
        _max_pool,
        _pooled,
        requires=_pool_fits,
        cost=_pool_cost,
        undefined=(nan_input,),
        symbolic=_open_max_pool,
        rank_ends=RankEnds.LEAST,
        unmodelled=given("ceil_mode"),
        rounding=_place_jumps,
        rows=rows_of_first,
    ),
    windowed(
        "AveragePool",
        _average_pool,
        _pooled,
        requires=_pool_fits,
        cost=_pool_cost,
        bounds=with_zero,
        symbolic=_open_average_pool,
        rank_ends=RankEnds.LEAST,
        unmodelled=given("ceil_mode"),
        rows=rows_of_first,
        rounding=Rounding.SUMS,
    ),
    windowed(
        "LpPool",
        _lp_pool,
        _pooled,
        requires=_pool_fits,
        cost=_pool_cost,
        bounds=_lp_bounds,
        symbolic=_open_lp_pool,
        rank_ends=RankEnds.LEAST,
        unmodelled=given("ceil_mode"),
        rows=rows_of_first,
    ),
    windowed(
        "GlobalAveragePool",
        None,
        _global,
        undefined=(long_sum(reduced_size),),
        symbolic=True,
        rows=rows_of_first,
        rounding=Rounding.SUMS,
    ),
    windowed(
        "GlobalMaxPool",
        None,
        _global,
        undefined=(nan_input,),
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        rounding=Rounding.EXACT,
        rows=rows_of_first,
    ),
    windowed(
        "GlobalLpPool", None, _global, parts=(Attr("p", (1, 2, 3), 0.5),), bounds=_global_lp_bounds, symbolic=True
    ),
)
