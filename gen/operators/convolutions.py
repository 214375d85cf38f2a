"""Convolutions (Conv, ConvTranspose, DeformConv), and the windows that they share with pools and samplers.

Sources: the ONNX operator pages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsieve.gen.declarations.declaration import Operator, RankEnds, SizeRule, has_attribute, magnitude
from opsieve.gen.declarations.instance import Attr, Count, Draft, First, Input, between, look_up
from opsieve.gen.declarations.properties import Rounding, long_sum, taps, transposed_taps
from opsieve.gen.declarations.symbolic_arith import Size, Truth, ceil_quotient, divisors, product, window
from opsieve.gen.declarations.tensor import Bounds, Domain, Ins, Typed, optional

# Windows that move over an image: their places, sizes and paddings. What convolutions, pools and samplers
# share.


_AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID")


def spatial(attrs: Mapping[str, Any], name: str, count: int, default: int = 1) -> list[Size]:
    """Return a list attribute with one entry for each spatial axis, or its default."""
    given = attrs.get(name)
    return list(given) if given else [default] * count


def infer_window_sizes(
    shape: Sequence[Size], kernel: Sequence[Size], attrs: Mapping[str, Any], ceil: bool = False
) -> tuple[Size, ...]:
    """Infer the spatial sizes of a windowed operator's output from those of its input."""
    count = len(shape)
    strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
    auto = attrs.get("auto_pad", "NOTSET")
    # The page: output size = ceil(input size / stride) for SAME_UPPER and SAME_LOWER, whatever the dilation.
    if auto.startswith("SAME"):
        return tuple(ceil_quotient(side, stride) for side, stride in zip(shape, strides, strict=True))
    pads = spatial(attrs, "pads", 2 * count, 0) if auto == "NOTSET" else [0] * (2 * count)
    sizes = []
    for axis, side in enumerate(shape):
        size = window(
            side, kernel[axis], strides[axis], dilations[axis], pads[axis] + pads[axis + count], ceil
        )
        sizes.append(size)
    return tuple(sizes)


def strides_fit(attrs: Mapping[str, Any], count: int) -> bool:
    """Return whether strides and dilations have one entry per axis, each at least 1."""
    lists = [spatial(attrs, name, count) for name in ("strides", "dilations")]
    return all(len(given) == count and min(given, default=1) >= 1 for given in lists)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over all axes of the first input but two: a `kernel`, and the attributes that place it where
    the operator page allows.

    With `keeps` paddings are smaller than the kernel, as poolings ask. `dilates` is the first opset that has
    dilations.
    """

    keeps: bool = False
    dilates: int = 1

    def __call__(self, draft: Draft) -> None:
        """Draw them."""
        rng, rates, attrs, sides = draft.rng, draft.builder.style.rates, draft.attrs, draft.x.shape[2:]
        kernel = [
            rng.draw_binned(1, min(side, 5)) if draft.open is None else draft.open.number(1, 7)
            for side in sides
        ]
        draft.sizes["kernel"] = kernel
        if draft.opset >= self.dilates and rng.random() < rates.dilated:
            attrs["dilations"] = [
                self._dilation(draft, side, k) for side, k in zip(sides, kernel, strict=True)
            ]
        if rng.random() < rates.strided:
            attrs["strides"] = [
                rng.choice((1, 1, 2, 3)) if draft.open is None else rng.draw_binned(1, 4) for _ in sides
            ]
        if rng.random() < rates.auto_pad:
            attrs["auto_pad"] = rng.choice(_AUTO)
            if attrs["auto_pad"] != "VALID":
                self._stay(draft, kernel)
        elif rng.random() < (rates.padded if draft.open is None else rates.open_padded):
            # Symmetric paddings, or different ones at both ends.
            rng, most = draft.rng, [k - 1 if self.keeps else k for k in kernel]
            if draft.open is not None:
                draft.attrs["pads"] = pads = [draft.open.number(0, 6, (0,)) for _ in (*kernel, *kernel)]
                draft.holds(*(pad <= end for pad, end in zip(pads, most * 2, strict=True)))
            elif rng.random() < draft.builder.style.rates.uneven_pads:
                draft.attrs["pads"] = [rng.between(0, min(end, 3)) for end in most * 2]
            else:
                draft.attrs["pads"] = [rng.between(0, min(end, 3)) for end in most] * 2

    def _dilation(self, draft: Draft, side: Size, kernel: Size) -> int:
        if draft.open is not None:
            return draft.rng.draw_binned(1, 3)
        return draft.rng.between(1, max(1, min(3, (side - 1) // (kernel - 1) if kernel > 1 else 3)))

    def _stay(self, draft: Draft, kernel: Sequence[Size]) -> None:
        """Limit strides to the window: a larger one would need a negative padding."""
        attrs, count = draft.attrs, len(kernel)
        most = [(k - 1) * d + 1 for k, d in zip(kernel, spatial(attrs, "dilations", count), strict=True)]
        if draft.open is not None:
            draft.holds(*(s <= end for s, end in zip(spatial(attrs, "strides", count), most, strict=True)))
        elif "strides" in attrs:
            attrs["strides"] = list(map(min, attrs["strides"], most))


def declare_windowed(name: str, infer: Any, **more: Any) -> Operator:
    """Declare an operator over images: batch, channels and one to three spatial axes."""
    return Operator(
        name, infer=infer, ranks=more.pop("ranks", (3, 5)), family=more.pop("family", "window"), **more
    )


def _groups(draft: Draft) -> None:
    """Draw groups of channels, `each` per group; with open sizes, depthwise has a bin of its own."""
    rng, rates, channels = draft.rng, draft.builder.style.rates, draft.x.shape[1]
    group = 1
    if draft.open is not None:
        group = rng.choice((1, 1, 1, 2, 3, 4))
        draft.sizes["each"] = draft.open.number(1, 16)
        draft.holds(channels == draft["each"] * group)
        if group > 1 and rng.random() < rates.depthwise:
            draft.holds(channels == group)
    else:
        group = rng.choice(divisors(channels)) if rng.random() < rates.grouped else 1
        draft.sizes["each"] = channels // group
    draft.sizes["group"] = group
    if group > 1:
        draft.attrs["group"] = group


KERNEL_SHAPE = Attr("kernel_shape", look_up("kernel"), 0.6)
CONV = (
    Windows(),
    _groups,
    Count("maps", lambda draft: draft.number(1, 4 if draft["group"] < 4 else 1, 16)),
    Input("group*maps each kernel...", Domain(-1, 1)),
    KERNEL_SHAPE,
    Input("group*maps", share=0.5),
)


def conv_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    """Infer the output: the places of the windows, with one feature for each filter."""
    x, w = ins[0].shape, ins[1].shape
    return [(ins[0].dtype, (x[0], w[0], *infer_window_sizes(x[2:], w[2:], attrs)))]


def conv_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """Require filters for the channels of a group, windows inside the image, one bias per feature."""
    x, w, group = ins[0].shape, ins[1].shape, attrs.get("group", 1)
    if group < 1 or len(x) != len(w) or not strides_fit(attrs, len(x) - 2):
        return [False]
    # The page: X has W.shape[1] * group channels, and the group divides the number of filters.
    found = [x[1] == w[1] * group, w[0] % group == 0]
    found += [p == q for p, q in zip(attrs.get("kernel_shape", ()), w[2:], strict=False)]
    found += [size >= 1 for size in infer_window_sizes(x[2:], w[2:], attrs)]
    return found + _bias_fits(ins, w[0])


def conv_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """Bound the result: a product for each tap of a filter, and a bias."""
    size = product(ins[1].shape[1:]) * ins[0].size * ins[1].size
    bias = optional(ins, 2)
    if bias is not None:
        size += bias.size
    return -size, size


def conv_cost(ins: Ins, attrs: Mapping[str, Any], outs: Sequence[Typed]) -> int:
    """Count a multiply-add for each tap of each place."""
    return math.prod(outs[0][1]) * math.prod(ins[1].shape[1:])


def _spread(draft: Draft) -> None:
    """Draw kernel, strides, dilations and paddings of a transposed convolution, so that no side is empty."""
    rng, rates, attrs, sides = draft.rng, draft.builder.style.rates, draft.attrs, draft.x.shape[2:]
    kernel = [rng.draw_binned(1, 4) if draft.open is None else draft.open.number(1, 5) for _ in sides]
    strides = [rng.choice((1, 1, 2, 3)) for _ in sides]
    dilations = [1 for _ in sides]
    draft.sizes["kernel"] = kernel
    if set(strides) != {1}:
        attrs["strides"] = strides
    if draft.open is None and rng.random() < rates.dilated_transposed:
        attrs["dilations"] = dilations = [rng.between(1, 2) for _ in sides]
    if rng.random() < rates.padded:
        if draft.open is not None:
            attrs["pads"] = [draft.open.number(0, 4, (0,)) for _ in (*sides, *sides)]
            draft.holds(*(pad < k for pad, k in zip(attrs["pads"], kernel * 2, strict=True)))
        else:
            full = [
                (n - 1) * s + (k - 1) * d
                for n, s, k, d in zip(sides, strides, kernel, dilations, strict=True)
            ]
            most = [min(2, size // 2, k - 1) for size, k in zip(full, kernel, strict=True)]
            attrs["pads"] = [rng.between(0, end) for end in most * 2]
    if draft.open is None and rng.random() < rates.rare_attribute:
        # Below the stride: the page names the dilation too, but onnxruntime 1.31 refuses what only the
        # dilation allows.
        attrs["output_padding"] = [rng.between(0, stride - 1) for stride in strides]


def _transposed_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    x, w = ins[0].shape, ins[1].shape
    count = len(x) - 2
    strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
    pads, extra = spatial(attrs, "pads", 2 * count, 0), spatial(attrs, "output_padding", count, 0)
    sides = [
        # The formula of the page: stride * (input - 1) + output_padding + (kernel - 1) * dilation + 1 -
        # paddings.
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
    # The page: W has the shape (C, M / group, kernel...) here.
    return [
        x[1] == w[0],
        x[1] % group == 0,
        *(side >= 1 for side in _transposed_type(ins, attrs)[0][1]),
        *(p == q for p, q in zip(attrs.get("kernel_shape", ()), w[2:], strict=False)),
        *_bias_fits(ins, w[1] * group),
    ]


def _bias_fits(ins: Ins, features: Size) -> list[Truth]:
    """Return the relations of the third input, if given: one number for each feature."""
    bias = optional(ins, 2)
    return [] if bias is None else [len(bias.shape) == 1, *(side == features for side in bias.shape[:1])]


def _deform_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    low, high = conv_bounds([ins[0], ins[1]], attrs)
    given = optional(ins, 3)
    bias = 0.0 if given is None else given.size
    # Sampling is bilinear between elements and zeros outside, so only the mask can enlarge a product.
    mask = max(ins[4].size, 1.0) if len(ins) > 4 else 1.0
    return low * mask - bias, high * mask + bias


def _deform_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    w, offset = ins[1].shape, ins[2].shape
    out = infer_window_sizes(ins[0].shape[2:], w[2:], attrs)
    return [
        *conv_fits(ins[:2], attrs),
        # The offset has a row and a column for each tap, so twice as many channels as taps.
        *(len(offset) == len(w), offset[0] == ins[0].shape[0], offset[1] == 2 * product(w[2:])),
        *(p == q for p, q in zip(offset[2:], out, strict=False)),
        *_bias_fits([*ins[:2], *ins[3:4]], w[0]),
        *_mask_fits(ins, (offset[0], product(w[2:]), *out)),
    ]


def _mask_fits(ins: Ins, wanted: Sequence[Size]) -> list[Truth]:
    """Return the relations of the mask of a DeformConv, if given: a factor for every tap of every place."""
    if len(ins) < 5:
        return []
    return [len(ins[4].shape) == len(wanted), *(p == q for p, q in zip(ins[4].shape, wanted, strict=False))]


CONVOLUTIONS = (
    declare_windowed(
        "Conv",
        conv_type,
        parts=CONV,
        requires=conv_fits,
        bounds=conv_bounds,
        cost=conv_cost,
        undefined=(long_sum(taps),),
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.FILTERED,
        rounding=Rounding.SUMS,
    ),
    declare_windowed(
        "ConvTranspose",
        _transposed_type,
        parts=(
            _spread,
            _groups,
            Count("maps", lambda draft: draft.number(1, 3, 8)),
            Input(lambda draft: (draft.x.shape[1], draft["maps"], *draft["kernel"]), Domain(-1, 1)),
            KERNEL_SHAPE,
            Input("maps*group", share=0.5),
        ),
        requires=_transposed_fits,
        bounds=magnitude(
            lambda ins, attrs: (
                product((ins[1].shape[0], *ins[1].shape[2:])) * ins[0].size * ins[1].size
                + (ins[2].size if len(ins) > 2 else 0)
            )
        ),
        cost=conv_cost,
        undefined=(long_sum(transposed_taps),),
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        unmodelled=has_attribute("auto_pad", "output_shape"),
        size_rule=SizeRule.FILTERED_BACK,
        sizes_unsaid=True,
        rounding=Rounding.SUMS,
    ),
    declare_windowed(
        "DeformConv",
        conv_type,
        parts=(
            First("batch channels sides..."),
            Count("kernel", lambda draft: [draft.rng.between(1, min(3, side)) for side in draft["sides"]]),
            Attr("strides", lambda draft: [draft.rng.choice((1, 2)) for _ in draft["sides"]], 0.5),
            Attr("pads", lambda draft: [draft.rng.between(0, k - 1) for k in draft["kernel"]] * 2),
            Attr("kernel_shape", look_up("kernel")),
            Count("taps", lambda draft: math.prod(draft["kernel"])),
            Count(
                "places", lambda draft: infer_window_sizes(draft.x.shape[2:], draft["kernel"], draft.attrs)
            ),
            Count("features", between(1, 3)),
            Input("features channels kernel...", Domain(-1, 1)),
            Input("batch 2*taps places...", Domain(-1.4, 1.4)),
            Input("features", share=0.5),
            Input("batch taps places...", Domain(0, 1), share=0.4),
        ),
        requires=_deform_fits,
        bounds=_deform_bounds,
        cost=conv_cost,
        ranks=(4, 4),
        unmodelled=has_attribute("offset_group", "group"),
        sizes_unsaid=True,
        rounding=Rounding.COMPUTES,
    ),
)
