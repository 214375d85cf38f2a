"""Convolutions: Conv, ConvTranspose, DeformConv.

Sources: the ONNX operator pages.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.operators.windows import kernel_for, open_window, place_windows, placed, spatial, strides_fit, windowed
from opsieve.gen.spec.builder import Builder, OpenBuilder
from opsieve.gen.spec.declaration import RankEnds, given
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.instance import Instance
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.row_rules import rows_of_first
from opsieve.gen.spec.size_rules import SizeRule
from opsieve.gen.spec.symbolic_arith import Size, Truth, divisors, product
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed
from opsieve.gen.spec.undefined import long_sum, taps, transposed_taps


def _image(builder: Builder, x: Tensor) -> Tensor:
    """The tensor, or one with smaller sides where its sides would make the node dear."""
    if math.prod(x.shape) <= builder.budget.tensor:
        return x
    return builder.leaf(x.dtype, (*x.shape[:2], *(min(side, 6) for side in x.shape[2:])))


def _conv(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    channels, sides = x.shape[1], x.shape[2:]
    group = rng.choice(divisors(channels)) if rng.random() < builder.style.rates.grouped else 1
    kernel = kernel_for(builder, sides)
    features = group * rng.between(1, 4 if group < 4 else 1)
    place_windows(builder, sides, kernel, attrs, True)
    if group > 1:
        attrs["group"] = group
    w = builder.match(x.dtype, (features, channels // group, *kernel), Domain(-1, 1))
    if rng.random() < builder.style.rates.likely_attribute:
        attrs["kernel_shape"] = kernel
    if rng.random() < builder.style.rates.bias:
        return Instance([x, w, builder.match(x.dtype, (features,))], attrs)
    return Instance([x, w], attrs)


def _conv_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    x, w = ins[0].shape, ins[1].shape
    return [(ins[0].dtype, (x[0], w[0], *placed(x[2:], w[2:], attrs)))]


def _conv_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    x, w, group = ins[0].shape, ins[1].shape, attrs.get("group", 1)
    if group < 1 or len(x) != len(w) or not strides_fit(attrs, len(x) - 2):
        return [False]
    found = [x[1] == w[1] * group, w[0] % group == 0]
    found += [p == q for p, q in zip(attrs.get("kernel_shape", ()), w[2:], strict=False)]
    found += [size >= 1 for size in placed(x[2:], w[2:], attrs)]
    return found + _bias_fits(ins, w[0])


def _taps(ins: Ins, attrs: Mapping[str, Any]) -> Size:
    return product(ins[1].shape[1:])


def _conv_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    size = _taps(ins, attrs) * ins[0].size * ins[1].size
    if len(ins) > 2 and ins[2] is not None:
        size += ins[2].size
    return -size, size


def _conv_cost(ins: Ins, attrs: Mapping[str, Any], outs: Sequence[Typed]) -> int:
    return math.prod(outs[0][1]) * math.prod(ins[1].shape[1:])


def _transposed(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    channels, sides = x.shape[1], x.shape[2:]
    count = len(sides)
    group = rng.choice(divisors(channels)) if rng.random() < builder.style.rates.grouped_transposed else 1
    kernel = [rng.binned(1, 4) for _ in sides]
    strides = [rng.choice((1, 1, 2, 3)) for _ in sides]
    if set(strides) != {1}:
        attrs["strides"] = strides
    if rng.random() < builder.style.rates.dilated_transposed:
        attrs["dilations"] = [rng.between(1, 2) for _ in sides]
    dilations = spatial(attrs, "dilations", count)
    full = [(side - 1) * s + (k - 1) * d + 1 for side, s, k, d in zip(sides, strides, kernel, dilations, strict=True)]
    if rng.random() < builder.style.rates.padded:
        most = [min(2, (size - 1) // 2, k - 1) for size, k in zip(full, kernel, strict=True)]
        attrs["pads"] = [rng.between(0, max(0, most[axis % count])) for axis in range(2 * count)]
    if rng.random() < builder.style.rates.rare_attribute:
        attrs["output_padding"] = [rng.between(0, max(s, d) - 1) for s, d in zip(strides, dilations, strict=True)]
    if group > 1:
        attrs["group"] = group
    each = rng.between(1, 3)
    w = builder.match(x.dtype, (channels, each, *kernel), Domain(-1, 1))
    if rng.random() < builder.style.rates.likely_attribute:
        attrs["kernel_shape"] = kernel
    if rng.random() < builder.style.rates.bias:
        return Instance([x, w, builder.match(x.dtype, (each * group,))], attrs)
    return Instance([x, w], attrs)


def _transposed_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    x, w = ins[0].shape, ins[1].shape
    count = len(x) - 2
    strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
    pads, extra = spatial(attrs, "pads", 2 * count, 0), spatial(attrs, "output_padding", count, 0)
    sides = [
        strides[axis] * (x[2 + axis] - 1)
        + extra[axis]
        + (w[2 + axis] - 1) * dilations[axis]
        + 1
        - pads[axis]
        - pads[axis + count]
        for axis in range(count)
    ]
    return [(ins[0].dtype, (x[0], w[1] * attrs.get("group", 1), *sides))]


def _transposed_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    x, w, group = ins[0].shape, ins[1].shape, attrs.get("group", 1)
    if group < 1 or len(x) != len(w):
        return [False]
    found = [x[1] == w[0], x[1] % group == 0, *(side >= 1 for side in _transposed_type(ins, attrs)[0][1])]
    found += [p == q for p, q in zip(attrs.get("kernel_shape", ()), w[2:], strict=False)]
    return found + _bias_fits(ins, w[1] * group)


def _bias_fits(ins: Ins, features: Size) -> list[Truth]:
    """Relations of the third input, when it is there: one number for each feature."""
    if len(ins) < 3 or ins[2] is None:
        return []
    return [len(ins[2].shape) == 1, *(side == features for side in ins[2].shape[:1])]


def _transposed_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    size = product((ins[1].shape[0], *ins[1].shape[2:])) * ins[0].size * ins[1].size
    if len(ins) > 2:
        size += ins[2].size
    return -size, size


def _deform(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    n, channels, *sides = x.shape
    kernel = [rng.between(1, min(3, side)) for side in sides]
    features = rng.between(1, 3)
    if rng.random() < builder.style.rates.attribute:
        attrs["strides"] = [rng.choice((1, 2)) for _ in sides]
    attrs["pads"] = [rng.between(0, k - 1) for k in kernel] * 2
    attrs["kernel_shape"] = kernel
    out = placed(sides, kernel, attrs)
    w = builder.match(x.dtype, (features, channels, *kernel), Domain(-1, 1))
    taps = math.prod(kernel)
    offset = builder.match(x.dtype, (n, 2 * taps, *out), Domain(-1.4, 1.4))
    ins: list[Tensor | None] = [x, w, offset]
    if rng.random() < builder.style.rates.bias:
        ins.append(builder.match(x.dtype, (features,)))
    if rng.random() < builder.style.rates.unlikely_input:
        if len(ins) == 3:
            ins.append(None)
        ins.append(builder.match(x.dtype, (n, taps, *out), Domain(0, 1)))
    return Instance(ins, attrs)


def _deform_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    low, high = _conv_bounds([ins[0], ins[1]], attrs)
    bias = ins[3].size if len(ins) > 3 and ins[3] is not None else 0.0
    mask = max(ins[4].size, 1.0) if len(ins) > 4 else 1.0
    return low * mask - bias, high * mask + bias


def _deform_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    w, offset = ins[1].shape, ins[2].shape
    out = placed(ins[0].shape[2:], w[2:], attrs)
    return [
        *_conv_fits(ins[:2], attrs),
        *(len(offset) == len(w), offset[0] == ins[0].shape[0], offset[1] == 2 * product(w[2:])),
        *(p == q for p, q in zip(offset[2:], out, strict=False)),
        *_bias_fits([*ins[:2], *ins[3:4]], w[0]),
        *_mask_fits(ins, (offset[0], product(w[2:]), *out)),
    ]


def _mask_fits(ins: Ins, wanted: Sequence[Size]) -> list[Truth]:
    """Relations of the mask of a DeformConv, when it is there: a factor for every tap of every place."""
    if len(ins) < 5:
        return []
    return [len(ins[4].shape) == len(wanted), *(p == q for p, q in zip(ins[4].shape, wanted, strict=False))]


def _open_conv(builder: OpenBuilder, x: Tensor) -> Instance:
    rng, channels = builder.rng, x.shape[1]
    kernel, attrs = open_window(builder, x.rank - 2, False, True)
    group = rng.choice((1, 1, 1, 2, 3, 4))
    each, features = builder.number(1, 16), group * builder.number(1, 16)
    if group > 1:
        attrs["group"] = group
        if rng.random() < builder.style.rates.depthwise:  # depthwise has a bin of its own
            builder.relations.append(channels == group)
    builder.relations.append(channels == each * group)
    w = builder.match(x.dtype, (features, each, *kernel), Domain(-1, 1))
    if rng.random() < builder.style.rates.likely_attribute:
        attrs["kernel_shape"] = kernel
    return Instance(
        [x, w, *([builder.match(x.dtype, (features,))] if rng.random() < builder.style.rates.bias else [])], attrs
    )


def _open_conv_transpose(builder: OpenBuilder, x: Tensor) -> Instance:
    rng, count = builder.rng, x.rank - 2
    kernel = [builder.number(1, 5) for _ in range(count)]
    attrs: Attributes = {"strides": [rng.binned(1, 3) for _ in range(count)]}
    if rng.random() < builder.style.rates.padded:
        attrs["pads"] = [builder.number(0, 4, (0,)) for _ in range(2 * count)]
        builder.relations += [pad < kernel[place % count] for place, pad in enumerate(attrs["pads"])]
    group = rng.choice((1, 1, 1, 2, 3))
    if group > 1:
        attrs["group"] = group
    each = builder.number(1, 8)
    w = builder.match(x.dtype, (x.shape[1], each, *kernel), Domain(-1, 1))
    return Instance(
        [x, w, *([builder.match(x.dtype, (each * group,))] if rng.random() < builder.style.rates.bias else [])], attrs
    )


CONVOLUTIONS = (
    windowed(
        "Conv",
        _conv,
        _conv_type,
        requires=_conv_fits,
        bounds=_conv_bounds,
        cost=_conv_cost,
        undefined=(long_sum(taps),),
        symbolic=_open_conv,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.FILTERED,
        rows=rows_of_first,
        rounding=Rounding.SUMS,
    ),
    windowed(
        "ConvTranspose",
        _transposed,
        _transposed_type,
        requires=_transposed_fits,
        bounds=_transposed_bounds,
        cost=_conv_cost,
        undefined=(long_sum(transposed_taps),),
        symbolic=_open_conv_transpose,
        rank_ends=RankEnds.LEAST,
        unmodelled=given("auto_pad", "output_shape"),
        size_rule=SizeRule.FILTERED_BACK,
        sizes_unsaid=True,
        rows=rows_of_first,
        rounding=Rounding.SUMS,
    ),
    windowed(
        "DeformConv",
        _deform,
        _conv_type,
        requires=_deform_fits,
        bounds=_deform_bounds,
        cost=_conv_cost,
        ranks=(4, 4),
        unmodelled=given("offset_group", "group"),
        sizes_unsaid=True,
        rounding=Rounding.COMPUTES,
    ),
)
