"""Operators with windows: poolings in one to three spatial dimensions, and convolutions.py.

Sources: the ONNX operator pages of MaxPool, AveragePool, LpPool, Global*Pool.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import declaration, instance, symbolic_arith, tensor
from opsieve.gen.declarations.properties import Rounding, long_sum, nan_input, reduced_size
from opsieve.gen.operators.convolutions import (
    CONVOLUTIONS,
    Windows,
    declare_windowed,
    infer_window_sizes,
    spatial,
    strides_fit,
)
from opsieve.gen.operators.reshaping import with_zero


def _ceil(draft: instance.Draft) -> None:
    """Draw `ceil_mode`, if no window begins in the padding at the end: opsets and compilers differ there."""
    if "auto_pad" in draft.attrs or draft.rng.random() >= draft.builder.style.rates.rare_attribute:
        return
    if draft.holds(*_begin_inside(draft.x.shape[2:], draft["kernel"], draft.attrs)):
        draft.attrs["ceil_mode"] = 1


def _begin_inside(
    sides: Sequence[symbolic_arith.Size], kernel: Sequence[symbolic_arith.Size], attrs: Mapping[str, Any]
) -> Sequence[symbolic_arith.Truth]:
    """Require every window to begin before the padding at the end, when their number is rounded up."""
    strides, pads = spatial(attrs, "strides", len(kernel)), spatial(attrs, "pads", 2 * len(kernel), 0)
    ends = infer_window_sizes(sides, kernel, attrs, True)
    return [
        (end - 1) * stride < side + pad
        for end, stride, side, pad in zip(ends, strides, sides, pads, strict=False)
    ]


def _infer_pooled(ins: tensor.Ins, attrs: Mapping[str, Any]) -> list[tensor.Typed]:
    x = ins[0].shape
    return [
        (
            ins[0].dtype,
            (*x[:2], *infer_window_sizes(x[2:], attrs["kernel_shape"], attrs, bool(attrs.get("ceil_mode")))),
        )
    ]


def _pool_fits(ins: tensor.Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    kernel = attrs["kernel_shape"]
    pads = spatial(attrs, "pads", 2 * len(kernel), 0)
    if len(kernel) != len(ins[0].shape) - 2 or not strides_fit(attrs, len(kernel)):
        return [False]
    return [
        *(size >= 1 for size in _infer_pooled(ins, attrs)[0][1]),
        # The page leaves a window of padding alone open: an average would divide by zero.
        *(pad < kernel[place % len(kernel)] for place, pad in enumerate(pads)),
        *(_begin_inside(ins[0].shape[2:], kernel, attrs) if attrs.get("ceil_mode") else ()),
    ]


def _pool_cost(ins: tensor.Ins, attrs: Mapping[str, Any], outs: Sequence[tensor.Typed]) -> int:
    count: int = math.prod(outs[0][1]) * math.prod(attrs["kernel_shape"])
    return count


def _global(ins: tensor.Ins, attrs: Mapping[str, Any]) -> list[tensor.Typed]:
    x = ins[0].shape
    return [(ins[0].dtype, (*x[:2], *(1 for _ in x[2:])))]


_KERNEL = instance.Attr("kernel_shape", instance.look_up("kernel"))

OPERATORS = (
    *CONVOLUTIONS,
    declare_windowed(
        "MaxPool",
        _infer_pooled,
        parts=(Windows(True), _KERNEL, _ceil),
        requires=_pool_fits,
        cost=_pool_cost,
        undefined=(nan_input,),
        symbolic=True,
        rank_ends=declaration.RankEnds.LEAST,
        unmodelled=declaration.has_attribute("ceil_mode"),
        # The largest value of a window moves smoothly, its place does not.
        rounding=lambda attrs, outputs: Rounding.EXACT | Rounding.JUMPS if outputs > 1 else Rounding.EXACT,
    ),
    declare_windowed(
        "AveragePool",
        _infer_pooled,
        # Opset 19 added `dilations`.
        parts=(Windows(True, 19), _KERNEL, _ceil, instance.flag("count_include_pad", 0.5)),
        requires=_pool_fits,
        cost=_pool_cost,
        bounds=with_zero,
        symbolic=True,
        rank_ends=declaration.RankEnds.LEAST,
        unmodelled=declaration.has_attribute("ceil_mode"),
        rounding=Rounding.SUMS,
    ),
    declare_windowed(
        "LpPool",
        _infer_pooled,
        # Opset 18 added `ceil_mode` and `dilations`.
        parts=(Windows(True, 18), _KERNEL, instance.since(18, _ceil), instance.Attr("p", (1, 2, 3), 0.5)),
        requires=_pool_fits,
        cost=_pool_cost,
        bounds=lambda ins, attrs: (
            0.0,
            # The intermediate sum of p-th powers must be finite too, not only its root.
            symbolic_arith.product(attrs["kernel_shape"])
            * max(ins[0].size, ins[0].size ** attrs.get("p", 2)),
        ),
        symbolic=True,
        rank_ends=declaration.RankEnds.LEAST,
        unmodelled=declaration.has_attribute("ceil_mode"),
    ),
    declare_windowed(
        "GlobalAveragePool",
        _global,
        undefined=(long_sum(reduced_size),),
        symbolic=True,
        rounding=Rounding.SUMS,
    ),
    declare_windowed(
        "GlobalMaxPool",
        _global,
        undefined=(nan_input,),
        symbolic=True,
        rank_ends=declaration.RankEnds.LEAST,
        rounding=Rounding.EXACT,
    ),
    declare_windowed(
        "GlobalLpPool",
        _global,
        parts=(instance.Attr("p", (1, 2, 3), 0.5),),
        bounds=lambda ins, attrs: (
            0.0,
            symbolic_arith.product(ins[0].shape[2:]) * max(ins[0].size, ins[0].size ** attrs.get("p", 2)),
        ),
        symbolic=True,
    ),
)
