"""Operators that move elements about: transposing, repeating, blocks and depth, reversing; and those of a
shape, with reshaping.py.

Sources: the ONNX operator pages.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.declarations.declaration import Moves, RankEnds
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    First,
    Numbers,
    between,
    flag,
    look_up,
    since,
    some,
)
from opsieve.gen.declarations.properties import Rounding
from opsieve.gen.declarations.symbolic_arith import (
    Truth,
)
from opsieve.gen.declarations.tensor import NUMBER, NUMERIC, Domain, Ins, Site, Typed, exact, lengths
from opsieve.gen.model.tensors import DTYPES
from opsieve.gen.operators.reshaping import RESHAPES, layout, values_of, with_zero


def _repeats_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    times = values_of(ins[1])
    return [len(times) == len(ins[0].shape), *(number >= 0 for number in times)]


_BLOCK = Attr("blocksize", (1, 2, 2, 3))


def _deep(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    # The page: [N, C / blocksize^2, H * blocksize, W * blocksize].
    (n, c, h, w), size = ins[0].shape, attrs["blocksize"]
    return [(ins[0].dtype, (n, c // (size * size), h * size, w * size))]


def _infer_depth_to_space(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    (n, c, h, w), size = ins[0].shape, attrs["blocksize"]
    return [
        (
            ins[0].dtype,
            (n, c * size * size, *(side // size for side in (h, w))),
        )
    ]


def _shape_range(ins: Ins, attrs: Mapping[str, Any]) -> list[int]:
    # The page counts negative axes from the back and clamps, as slices of Python do.
    return list(range(len(ins[0].shape)))[slice(attrs.get("start", 0), attrs.get("end"))]


_EYES = tuple(NUMBER[dtype] for dtype in ("float32", "float64", "int64", "int32", "float16"))


def _lengths_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    batch, time = attrs.get("batch_axis", 1), attrs.get("time_axis", 0)
    # The page allows only the axes 0 and 1, each for one of the two.
    if {batch, time} != {0, 1}:
        return [False]
    longest = ins[0].shape[time]
    return [ins[1].shape[0] == ins[0].shape[batch], *(length <= longest for length in ins[1].values or ())]


def _tile_counts(site: Site) -> Domain:
    """Return how often each axis is repeated, from the result's shape if that is known."""
    data, out = site.shape(0), site.output()
    if data is None or out is None or len(data) != len(out) or 0 in data:
        return Domain(1, 2)
    return exact([size // have for size, have in zip(out, data, strict=True)])


OPERATORS = (
    *RESHAPES,
    layout(
        "Transpose",
        infer=lambda ins, attrs: [
            (
                ins[0].dtype,
                # By default the page reverses the dimensions.
                tuple(ins[0].shape[axis] for axis in attrs.get("perm", range(len(ins[0].shape) - 1, -1, -1))),
            )
        ],
        parts=(
            some(
                Attr("perm", lambda draft: draft.rng.shuffle_items(range(draft.x.rank))),
                where=lambda draft: (
                    draft.rng.random() >= draft.builder.style.rates.default_order and draft.x.rank
                ),
            ),
        ),
        requires=lambda ins, attrs: [
            sorted(attrs.get("perm", range(len(ins[0].shape)))) == list(range(len(ins[0].shape)))
        ],
        moves=Moves.FIRST,
        symbolic=True,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Tile",
        infer=lambda ins, attrs: [
            (
                ins[0].dtype,
                tuple(side * times for side, times in zip(ins[0].shape, values_of(ins[1]), strict=True)),
            )
        ],
        parts=(
            Numbers(
                # Drawn also where sizes are open, so that products stay linear.
                lambda draft: [
                    draft.rng.choice((1, 1, 1, 2, 3)) if draft.open is None else draft.rng.draw_binned(1, 4)
                    for _ in draft.x.shape
                ]
            ),
        ),
        requires=_repeats_fit,
        ranks=(1, 5),
        usual={1: _tile_counts},
        moves=Moves.FIRST,
        symbolic=True,
        per_axis=(1,),
        rounding=Rounding.EXACT,
    ),
    layout(
        "DepthToSpace",
        infer=_deep,
        parts=(
            _BLOCK,
            First(
                fits=lambda draft: draft.holds(draft.x.shape[1] % draft["blocksize"] ** 2 == 0),
                other=lambda draft: (
                    draft.x.shape[0],
                    draft["blocksize"] ** 2 * draft.rng.between(1, 2),
                    *draft.x.shape[2:],
                ),
            ),
            Attr("mode", ("DCR", "CRD"), 0.5),
        ),
        requires=lambda ins, attrs: [ins[0].shape[1] % attrs["blocksize"] ** 2 == 0],
        ranks=(4, 4),
        moves=Moves.FIRST,
        symbolic=True,
        rank_ends=RankEnds.BOTH,
        rounding=Rounding.EXACT,
    ),
    layout(
        "SpaceToDepth",
        infer=_infer_depth_to_space,
        parts=(
            _BLOCK,
            First(
                fits=lambda draft: draft.holds(
                    *(side % draft["blocksize"] == 0 for side in draft.x.shape[2:])
                ),
                other=lambda draft: (
                    *draft.x.shape[:2],
                    *(draft["blocksize"] * draft.rng.between(1, 3) for _ in range(2)),
                ),
            ),
        ),
        requires=lambda ins, attrs: [side % attrs["blocksize"] == 0 for side in ins[0].shape[2:]],
        ranks=(4, 4),
        moves=Moves.FIRST,
        symbolic=True,
        rank_ends=RankEnds.BOTH,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Shape",
        sizes_only=True,
        infer=lambda ins, attrs: [("int64", (len(_shape_range(ins, attrs)),))],
        parts=(
            # `start` and `end` came with opset 15.
            since(
                15,
                some(
                    Attr("start", lambda draft: draft.rng.between(-draft.x.rank, draft.x.rank - 1)),
                    Attr(
                        "end",
                        lambda draft: draft.rng.between(draft["start"] % draft.x.rank + 1, draft.x.rank),
                        0.5,
                    ),
                    share=0.5,
                ),
            ),
        ),
        # The shape of a scalar is empty, and tensors without elements are not generated.
        ranks=(1, 5),
        bounds=lambda ins, attrs: (
            1.0,
            max((ins[0].shape[axis] for axis in _shape_range(ins, attrs)), default=1),
        ),
        symbolic=True,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Size",
        sizes_only=True,
        infer=lambda ins, attrs: [("int64", ())],
        bounds=lambda ins, attrs: (1.0, math.prod(ins[0].shape)),
        symbolic=True,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Trilu",
        parts=(Numbers(between(-3, 3), scalar=True, share=0.7), flag("upper", 0.6)),
        bounds=with_zero,
        ranks=(2, 5),
        dtypes=(*NUMERIC, "bool"),
        usual={1: Domain(-1, 1)},
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        rounding=Rounding.EXACT,
    ),
    layout(
        "EyeLike",
        infer=lambda ins, attrs: [
            (DTYPES[attrs["dtype"]] if "dtype" in attrs else ins[0].dtype, ins[0].shape)
        ],
        parts=(Attr("k", between(-2, 2), 0.5), Attr("dtype", _EYES, 0.4)),
        bounds=lambda ins, attrs: (0.0, 1.0),
        ranks=(2, 2),
        dtypes=(*NUMERIC, "bool"),
        symbolic=True,
        rank_ends=RankEnds.BOTH,
        rounding=Rounding.EXACT,
    ),
    layout(
        "ReverseSequence",
        parts=(
            Count("batch", (0, 1)),
            some(
                Attr("batch_axis", look_up("batch")),
                Attr("time_axis", lambda draft: 1 - draft["batch"]),
                # batch_axis 1 and time_axis 0 are the defaults.
                where=lambda draft: draft["batch"] == 0 or draft.draws(0.5),
            ),
            Numbers(
                lambda draft: [
                    draft.rng.between(1, draft.x.shape[1 - draft["batch"]])
                    for _ in range(draft.x.shape[draft["batch"]])
                ]
            ),
        ),
        requires=_lengths_fit,
        ranks=(2, 5),
        usual={1: lengths("time_axis", 0)},
        rank_ends=RankEnds.LEAST,
        sizes_unsaid=True,
        rounding=Rounding.EXACT,
    ),
)
