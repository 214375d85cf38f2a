"""Operators over images: resizing, sampling at places, regions, unpooling.

Sources: the ONNX operator pages of Resize, GridSample, Col2Im, AffineGrid, RoiAlign, MaxRoiPool, MaxUnpool.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import declaration, properties, shape_patterns, symbolic_arith
from opsieve.gen.declarations.builder import Sizes
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    Draft,
    First,
    Input,
    Numbers,
    between,
    flag,
    left_out,
    look_up,
    never,
    since,
    some,
    whole,
)
from opsieve.gen.declarations.tensor import (
    ANY,
    FLOATS,
    ZERO,
    Bounds,
    Domain,
    Ins,
    Site,
    Typed,
    dim_index,
    exact,
    like_output,
    size_of,
)
from opsieve.gen.operators.convolutions import declare_windowed
from opsieve.gen.operators.reshaping import values_of, with_zero

_MODES = ("nearest", "nearest", "linear", "cubic")
# Without tf_crop_and_resize, the only mode in which the region of interest counts.
_PLACES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def _is_mode(mode: str) -> Callable[[Draft], bool]:
    return lambda draft: draft.attrs["mode"] == mode


def _near_sizes(draft: Draft) -> list[symbolic_arith.Size]:
    """Sizes for the spatial axes; the leading two stay as they are."""
    batch, channels, *sides = draft.x.shape
    if draft.open is not None:
        return [batch, channels, *(draft.open.number(1, 16) for _ in sides)]
    return [batch, channels, *(draft.rng.between(1, min(2 * side, 12)) for side in sides)]


def _scales(draft: Draft) -> list[float]:
    """Draw scales for the spatial axes that leave at least one element of each."""
    drawn = [(side, draft.rng.choice((0.5, 1.0, 2.0, 1.5, 3.0))) for side in draft.x.shape[2:]]
    return [1.0, 1.0, *(scale if side * scale >= 1 else 1.0 for side, scale in drawn)]


def _infer_resize(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    if len(ins) > 3:
        return [(ins[0].dtype, tuple(values_of(ins[3])))]
    # The page: output size = floor(input size * scale).
    scales = ins[2].values
    assert scales is not None
    return [
        (
            ins[0].dtype,
            tuple(math.floor(side * scale) for side, scale in zip(ins[0].shape, scales, strict=True)),
        )
    ]


def _resize_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    low, high = ins[0].low, ins[0].high
    if attrs.get("mode") != "cubic":
        return low, high
    # A cubic interpolation overshoots its neighbours, in two dimensions twice; the slack keeps the interval
    # sound.
    slack = 1.2 * (high - low) + 0.3 * ins[0].size
    return low - slack, high + slack


def _grid_mode(draft: Draft) -> str:
    """Draw the mode: cubic needs two spatial dimensions, and opset 20 renamed the modes."""
    modes = (
        ("linear", "nearest", "cubic") if draft.builder.opset >= 20 else ("bilinear", "nearest", "bicubic")
    )
    return draft.rng.choice(modes if draft.x.rank == 4 else modes[:2])


def _grid(draft: Draft) -> Sizes:
    """Draw the shape of a grid: a place in the image for each place of a small result."""
    count = draft.x.rank - 2
    return (draft.x.shape[0], *(draft.rng.between(1, 4) for _ in range(count)), count)


def _affine_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    n, _, *sides = values_of(ins[1])
    return [(ins[0].dtype, (n, *sides, len(sides)))]


def _regions(draft: Draft) -> list[float]:
    """Draw regions inside the image, with the first corner before the second."""
    rng, (height, width), boxes = draft.rng, draft.x.shape[2:], list[float]()
    for _ in range(draft["regions"]):
        left, top = rng.random() * (width - 1), rng.random() * (height - 1)
        boxes += [left, top, left + rng.random() * (width - left), top + rng.random() * (height - top)]
    return [round(value, 3) for value in boxes]


def _pooled_regions(draft: Draft) -> list[int]:
    """Draw regions as (batch index, x1, y1, x2, y2), in whole elements."""
    rng, (batch, _, height, width), rows = draft.rng, draft.x.shape, list[int]()
    for _ in range(draft["regions"]):
        top, left = rng.below(height), rng.below(width)
        rows += [rng.below(batch), left, top, rng.between(left, width - 1), rng.between(top, height - 1)]
    return rows


def _own_places(draft: Draft) -> list[int]:
    """Draw for every element a place in its own window, so that no two are written to one place."""
    rng, (n, c, h, w), size = draft.rng, draft.x.shape, draft.attrs["strides"][0]
    windows = (
        (image * h + row) * size * w * size + column * size
        for image in range(n * c)
        for row in range(h)
        for column in range(w)
    )
    return [first + rng.below(size) * w * size + rng.below(size) for first in windows]


def _columns_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    image, block = values_of(ins[1]), values_of(ins[2])
    if len(image) != len(block) or min(block) < 1 or any(p < q for p, q in zip(image, block, strict=True)):
        return [False]
    blocks = symbolic_arith.product(p - q + 1 for p, q in zip(image, block, strict=True))
    return [ins[0].shape[1] % symbolic_arith.product(block) == 0, ins[0].shape[2] == blocks]


def _theta_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    # The page: theta is [N, 2, 3] for sizes [N, C, H, W], and [N, 3, 4] for [N, C, D, H, W].
    theta, sizes = ins[0].shape, values_of(ins[1])
    return [theta[0] == sizes[0], theta[1] == len(sizes) - 2, theta[2] == len(sizes) - 1]


def _resize_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    target = ins[3] if len(ins) > 3 else ins[2]
    return [target.shape[0] == len(ins[0].shape), *(number > 0 for number in target.values or ())]


def resize_scales(site: Site) -> Domain:
    """Return the ratio of the sizes, 2 for unknown spatial ones."""
    data, out = site.shape(0), site.output()
    if data and out and len(data) == len(out) == site.length and 0 not in data:
        return exact([size / have for size, have in zip(out, data, strict=True)])
    return exact([1.0 if site.length > 2 and place < 2 else 2.0 for place in range(site.length)])


def _region_or_scales(site: Site) -> Domain:
    """Return a region of interest (since opset 11 the second of three inputs), or scales."""
    if site.position == 1 and len(site.node.input) > 2:
        return exact([*[0.0] * (site.length // 2), *[1.0] * (site.length - site.length // 2)])
    return resize_scales(site)


def _resize_sizes(site: Site) -> Domain:
    """Return the sizes of the result, or of the data."""
    data, out = site.shape(0), site.output()
    if out is not None and len(out) == site.length:
        return exact(out)
    return exact(data) if data is not None and len(data) == site.length else Domain(2, 4)


def _affine_sizes(site: Site) -> Domain:
    """Batch, one channel, and the sizes of the grid."""
    batch, out = size_of(site.shape(0), 0) or 1, site.output()
    spatial = (
        list(out[1:-1]) if out is not None and len(out) == site.length else [2] * max(site.length - 2, 0)
    )
    return exact([batch, 1, *spatial])


def _image_or_block(site: Site) -> Domain:
    """Return an image of one row whose blocks are single elements."""
    blocks = size_of(site.shape(0), 2) or 1
    return exact([*[1] * (site.length - 1), blocks] if site.position == 1 else [1] * site.length)


_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

OPERATORS = (
    declare_windowed(
        "Resize",
        _infer_resize,
        parts=(
            Attr("mode", lambda draft: draft.rng.choice(_MODES if draft.x.rank == 4 else _MODES[:3])),
            Attr("coordinate_transformation_mode", _PLACES, 0.6),
            some(Attr("nearest_mode", _ROUNDINGS, 0.5), where=_is_mode("nearest")),
            some(
                Attr("cubic_coeff_a", (-0.5, -0.75), 0.4),
                Attr("exclude_outside", (1,), 0.3),
                where=_is_mode("cubic"),
            ),
            Count("sized", lambda draft: draft.open is not None or draft.draws(0.5)),
            # The page: exactly one of scales and sizes is given.
            some(left_out, left_out, Numbers(_near_sizes), where=look_up("sized")),
            some(left_out, Numbers(_scales, "float32"), where=lambda draft: not draft["sized"]),
        ),
        requires=_resize_fits,
        bounds=_resize_bounds,
        ranks=(3, 5),
        family="image",
        usual={1: _region_or_scales, 2: resize_scales, 3: _resize_sizes},
        symbolic=True,
        unmodelled=declaration.has_attribute("axes"),
        size_rule=declaration.SizeRule.RESCALED,
        per_axis=(1, 2, 3),
        sizes_unsaid=True,
        rounding=properties.Rounding.COMPUTES,
    ),
    declare_windowed(
        "GridSample",
        lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape[:2], *ins[1].shape[1:-1]))],
        requires=lambda ins, attrs: [
            len(ins[0].shape) == len(ins[1].shape),
            ins[0].shape[0] == ins[1].shape[0],
            ins[1].shape[-1] == len(ins[0].shape) - 2,
        ],
        # The magnitudes of cubic weights add up to at most 1.375 for an axis, so to 1.9 for two.
        bounds=declaration.magnitude(
            lambda ins, attrs: ins[0].size * (2.5 if "cubic" in attrs.get("mode", "") else 1.0)
        ),
        parts=(
            Attr("mode", _grid_mode),
            Attr("padding_mode", ("zeros", "border", "reflection"), 0.5),
            flag("align_corners", 0.5),
            # The image lies in [-1, 1], so some places fall into the padding.
            Input(_grid, Domain(-1.2, 1.2)),
        ),
        ranks=(4, 5),
        family="image",
        dtypes=FLOATS,
        usual={1: Domain(-1, 1)},
        symbolic=True,
        rounding=properties.Rounding.COMPUTES,
    ),
    declare_windowed(
        "Col2Im",
        lambda ins, attrs: [
            (
                ins[0].dtype,
                (
                    ins[0].shape[0],
                    symbolic_arith.quotient(ins[0].shape[1], math.prod(values_of(ins[2]))),
                    *values_of(ins[1]),
                ),
            )
        ],
        parts=(
            Count("block", lambda draft: [draft.rng.between(1, 2), draft.rng.between(1, 3)]),
            Count("blocks", lambda draft: [draft.rng.between(1, 3) for _ in range(2)]),
            First(
                fits=never,
                # Columns of an image of some channels, as many as it has blocks.
                other=lambda draft: (
                    draft.x.shape[0],
                    draft.rng.between(1, 3) * math.prod(draft["block"]),
                    math.prod(draft["blocks"]),
                ),
            ),
            Numbers(lambda draft: [p + q - 1 for p, q in zip(draft["blocks"], draft["block"], strict=True)]),
            Numbers(look_up("block")),
        ),
        requires=_columns_fit,
        bounds=lambda ins, attrs: (-9 * ins[0].size, 9 * ins[0].size),
        ranks=(3, 3),
        family="image",
        dtypes=FLOATS,
        usual={1: _image_or_block, 2: _image_or_block},
        rank_ends=declaration.RankEnds.BOTH,
        unmodelled=declaration.has_attribute("dilations", "pads", "strides"),
        sizes_unsaid=True,
    ),
    declare_windowed(
        "AffineGrid",
        _affine_type,
        parts=(
            Count("axes", (2, 3)),
            First(
                fits=never, other=lambda draft: (draft.rng.between(1, 2), draft["axes"], draft["axes"] + 1)
            ),
            Numbers(
                lambda draft: [
                    draft.x.shape[0],
                    draft.rng.between(1, 3),
                    *(draft.rng.between(2, 4) for _ in range(draft["axes"])),
                ]
            ),
            flag("align_corners", 0.5),
        ),
        requires=_theta_fits,
        bounds=lambda ins, attrs: (-4 * ins[0].size, 4 * ins[0].size),
        ranks=(3, 3),
        family="image",
        usual={1: _affine_sizes},
        symbolic=True,
        rank_ends=declaration.RankEnds.BOTH,
        sizes_unsaid=True,
    ),
    declare_windowed(
        "RoiAlign",
        lambda ins, attrs: [
            (
                ins[0].dtype,
                (
                    ins[1].shape[0],
                    ins[0].shape[1],
                    attrs.get("output_height", 1),
                    attrs.get("output_width", 1),
                ),
            )
        ],
        parts=(
            Count("regions", between(1, 3)),
            Numbers(_regions, "", shape="regions 4"),
            Numbers(lambda draft: [draft.rng.below(draft.x.shape[0]) for _ in range(draft["regions"])]),
            Attr("output_height", between(1, 3)),
            Attr("output_width", between(1, 3)),
            Attr("sampling_ratio", between(1, 3), 0.5),
            Attr("mode", ("avg", "max"), 0.3),
            since(16, Attr("coordinate_transformation_mode", ("half_pixel", "output_half_pixel"), 0.5)),
        ),
        requires=shape_patterns.agree("", "regions 4", "regions"),
        bounds=with_zero,
        ranks=(4, 4),
        family="image",
        usual={1: Domain(0, 4), 2: dim_index(0, 0)},
        undefined=(properties.nan_input,),
        rank_ends=declaration.RankEnds.BOTH,
        rounding=properties.Rounding.COMPUTES,
    ),
    declare_windowed(
        "MaxRoiPool",
        lambda ins, attrs: [(ins[0].dtype, (ins[1].shape[0], ins[0].shape[1], *attrs["pooled_shape"]))],
        parts=(
            Count("regions", between(1, 3)),
            Numbers(_pooled_regions, "", shape="regions 5"),
            Attr("pooled_shape", lambda draft: [draft.rng.between(1, 2), draft.rng.between(1, 2)]),
        ),
        bounds=with_zero,
        ranks=(4, 4),
        family="image",
        dtypes=FLOATS,
        usual={1: ZERO},
        undefined=(properties.nan_input,),
        rank_ends=declaration.RankEnds.BOTH,
        rounding=properties.Rounding.JUMPS,
    ),
    declare_windowed(
        "MaxUnpool",
        lambda ins, attrs: [
            (
                ins[0].dtype,
                (
                    *ins[0].shape[:2],
                    *(side * k for side, k in zip(ins[0].shape[2:], attrs["kernel_shape"], strict=True)),
                ),
            )
        ],
        parts=(
            Attr("kernel_shape", lambda draft: [draft.rng.choice((1, 2, 2))] * 2),
            # Strides equal to the kernel make windows that do not overlap, so that places can be distinct.
            Attr("strides", look_up("kernel_shape")),
            Numbers(_own_places, shape=whole),
        ),
        requires=shape_patterns.agree("all...", "all..."),
        bounds=with_zero,
        ranks=(4, 4),
        family="image",
        dtypes=FLOATS,
        # A place of its own for each element.
        usual={1: lambda site: exact(range(min(site.length, 4096))), 2: like_output(ANY)},
        unmodelled=lambda ins, attrs: len(ins) > 2,
        sizes_unsaid=True,
        rounding=properties.Rounding.JUMPS,
    ),
)
