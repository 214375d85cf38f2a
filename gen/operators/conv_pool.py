"""Operators with windows: convolutions and poolings in one to three spatial dimensions.

Sources: the ONNX operator pages of Conv, ConvTranspose, DeformConv, MaxPool, AveragePool, LpPool, Global*Pool.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.operators.data_movement import with_zero
from opsieve.gen.spec.builder import Builder, OpenBuilder, Sizes
from opsieve.gen.spec.declaration import Operator, RankEnds, Sampler, given
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.instance import Attr, Instance
from opsieve.gen.spec.size_rules import SizeRule
from opsieve.gen.spec.symbolic_arith import Size, Truth, ceil_quotient, divisors, product, window
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed
from opsieve.gen.spec.undefined import long_sum, nan_input, reduced_size, taps, transposed_taps

_AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID")


def spatial(attrs: Mapping[str, Any], name: str, count: int, default: int = 1) -> list[Size]:
    """A list attribute with one entry for each spatial axis, or its default."""
    given = attrs.get(name)
    return list(given) if given else [default] * count


def placed(
    shape: Sequence[Size], kernel: Sequence[Size], attrs: Mapping[str, Any], ceil: bool = False
) -> tuple[Size, ...]:
    """The spatial sizes of what a window gives over an image of these spatial sizes."""
    count = len(shape)
    strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
    auto = attrs.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        return tuple(ceil_quotient(side, stride) for side, stride in zip(shape, strides, strict=True))
    pads = spatial(attrs, "pads", 2 * count, 0) if auto == "NOTSET" else [0] * (2 * count)
    sizes = []
    for axis, side in enumerate(shape):
        size = window(side, kernel[axis], strides[axis], dilations[axis], pads[axis] + pads[axis + count], ceil)
        sizes.append(size)
    return tuple(sizes)


def strides_fit(attrs: Mapping[str, Any], count: int) -> bool:
    """Whether strides and dilations are as many as axes, and none below 1."""
    lists = [spatial(attrs, name, count) for name in ("strides", "dilations")]
    return all(len(given) == count and min(given, default=1) >= 1 for given in lists)


def place_windows(
    builder: Builder, sides: Sizes, kernel: Sequence[int], attrs: Attributes, dilates: bool, keeps: bool = False
) -> None:
    """Draw strides, dilations and paddings under which every window lies where the operator page allows; into `attrs`.

    With `keeps` paddings are smaller than the kernel, as poolings ask.
    """
    rng, count = builder.rng, len(sides)
    dilations = [1] * count
    if dilates and rng.random() < builder.style.rates.dilated:
        dilations = [
            rng.between(1, max(1, min(3, (side - 1) // (k - 1) if k > 1 else 3)))
            for side, k in zip(sides, kernel, strict=True)
        ]
        attrs["dilations"] = dilations
    if rng.random() < builder.style.rates.strided:
        attrs["strides"] = [rng.choice((1, 1, 2, 3)) for _ in sides]
    if rng.random() < builder.style.rates.auto_pad:
        attrs["auto_pad"] = rng.choice(_AUTO)
        if (
            attrs["auto_pad"] != "VALID" and "strides" in attrs
        ):  # a stride beyond the window would ask for a negative padding
            attrs["strides"] = [
                min(stride, (k - 1) * d + 1) for stride, k, d in zip(attrs["strides"], kernel, dilations, strict=True)
            ]
        return
    if rng.random() < builder.style.rates.padded:
        most = [k - 1 if keeps else k for k in kernel]
        attrs["pads"] = [rng.between(0, min(most[axis], 3)) for axis in range(count)] * 2
        if rng.random() < builder.style.rates.uneven_pads:  # uneven ones
            attrs["pads"] = [rng.between(0, min(most[axis % count], 3)) for axis in range(2 * count)]


def kernel_for(builder: Builder, sides: Sequence[int]) -> list[int]:
    """A kernel that is no larger than the image."""
    return [builder.rng.binned(1, min(side, 5)) for side in sides]


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


def windowed(name: str, sample: Sampler | None, infer: Any, **more: Any) -> Operator:
    """An operator over images: batch, channels and one to three spatial axes."""
    return Operator(
        name, sample, infer=infer, ranks=more.pop("ranks", (3, 5)), family=more.pop("family", "window"), **more
    )


def open_window(builder: OpenBuilder, count: int, keeps: bool, dilates: bool) -> tuple[list[Size], Attributes]:
    """A kernel with strides, dilations and paddings; with `keeps` paddings are smaller than the kernel."""
    rng, attrs = builder.rng, Attributes()
    kernel = [builder.number(1, 7) for _ in range(count)]
    if dilates and rng.random() < builder.style.rates.dilated:
        attrs["dilations"] = [rng.binned(1, 3) for _ in range(count)]
    if rng.random() < builder.style.rates.strided:
        attrs["strides"] = [rng.binned(1, 4) for _ in range(count)]
    if rng.random() < builder.style.rates.auto_pad:
        attrs["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if attrs["auto_pad"] != "VALID":  # a stride beyond the window would ask for a negative padding
            strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
            builder.relations += [s <= (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations, strict=True)]
    elif rng.random() < builder.style.rates.open_padded:
        attrs["pads"] = [builder.number(0, 6, (0,)) for _ in range(2 * count)]
        builder.relations += [
            pad < kernel[place % count] if keeps else pad <= kernel[place % count]
            for place, pad in enumerate(attrs["pads"])
        ]
    return kernel, attrs


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
    ),
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
    ),
    windowed("GlobalAveragePool", None, _global, undefined=(long_sum(reduced_size),), symbolic=True),
    windowed("GlobalMaxPool", None, _global, undefined=(nan_input,), symbolic=True, rank_ends=RankEnds.LEAST),
    windowed(
        "GlobalLpPool", None, _global, parts=(Attr("p", (1, 2, 3), 0.5),), bounds=_global_lp_bounds, symbolic=True
    ),
)
