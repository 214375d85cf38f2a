"""Operators that move elements about: transposing, repeating, blocks and depth, reversing; and those of a shape, with reshaping.py.

Sources: the ONNX operator pages.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.model.tensors import DTYPES
from opsieve.gen.operators.layouts import layout, values_of, with_zero
from opsieve.gen.operators.reshaping import RESHAPES
from opsieve.gen.spec.builder import Builder, OpenBuilder
from opsieve.gen.spec.declaration import Moves, RankEnds
from opsieve.gen.spec.domains import Domain, Site, exact, lengths
from opsieve.gen.spec.dtype_facts import NUMBER, NUMERIC
from opsieve.gen.spec.instance import Attr, Draft, Instance, Numbers, between, flag
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.row_rules import rows_of_first, transposed_rows
from opsieve.gen.spec.symbolic_arith import (
    Truth,
)
from opsieve.gen.spec.tensor import Attributes, Ins, Tensor, Typed


def _order(draft: Draft) -> None:
    if draft.rng.random() >= draft.builder.style.rates.default_order and draft.x.rank:
        draft.attrs["perm"] = draft.rng.shuffled(range(draft.x.rank))


def _transposed(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    order = attrs.get("perm", range(len(shape) - 1, -1, -1))
    return [(ins[0].dtype, tuple(shape[axis] for axis in order))]


def _is_order(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    rank = len(ins[0].shape)
    return [sorted(attrs.get("perm", range(rank))) == list(range(rank))]


def _repeats_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    times = values_of(ins[1])
    return [len(times) == len(ins[0].shape), *(number >= 0 for number in times)]


def _repeats(draft: Draft) -> list[int]:
    return [draft.rng.choice((1, 1, 1, 2, 3)) for _ in draft.x.shape]


def _tiled(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, tuple(side * times for side, times in zip(ins[0].shape, values_of(ins[1]), strict=True)))]


def _block(builder: Builder, x: Tensor, deep: bool) -> Instance:
    """A blocksize that fits `x`, or another tensor where only 1 would."""
    rng = builder.rng
    size = rng.choice((1, 2, 2, 3))
    n, c, h, w = x.shape
    if deep and c % (size * size):
        x = builder.match(x.dtype, (n, size * size * rng.between(1, 2), h, w))
    if not deep and (h % size or w % size):
        x = builder.match(x.dtype, (n, c, size * rng.between(1, 3), size * rng.between(1, 3)))
    attrs: Attributes = {"blocksize": size}
    if deep and rng.random() < builder.style.rates.attribute:
        attrs["mode"] = rng.choice(("DCR", "CRD"))
    return Instance([x], attrs)


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


def _shape(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    if builder.opset >= 15 and x.rank and rng.random() < builder.style.rates.attribute:
        attrs["start"] = rng.between(-x.rank, x.rank - 1)
        if rng.random() < builder.style.rates.attribute:
            attrs["end"] = rng.between(attrs["start"] % x.rank + 1, x.rank)
    return Instance([x], attrs)


_EYES = tuple(NUMBER[dtype] for dtype in ("float32", "float64", "int64", "int32", "float16"))


def _eye_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(DTYPES[attrs["dtype"]] if "dtype" in attrs else ins[0].dtype, ins[0].shape)]


def _reverse(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    batch = rng.below(2)
    lengths = [rng.between(1, x.shape[1 - batch]) for _ in range(x.shape[batch])]
    attrs = {"batch_axis": batch, "time_axis": 1 - batch}
    return Instance(
        [x, builder.ints(lengths)], attrs if batch == 0 or rng.random() < builder.style.rates.default else {}
    )


def _lengths_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    batch, time = attrs.get("batch_axis", 1), attrs.get("time_axis", 0)
    if {batch, time} != {0, 1}:
        return [False]
    longest = ins[0].shape[time]
    return [ins[1].shape[0] == ins[0].shape[batch], *(length <= longest for length in ins[1].values or ())]


def _tile_counts(site: Site) -> Domain:
    """How often each axis is repeated, where the result tells it."""
    data, out = site.shape(0), site.output()
    if data is None or out is None or len(data) != len(out) or 0 in data:
        return Domain(1, 2)
    return exact([size // have for size, have in zip(out, data, strict=True)])


def _open_tile(builder: OpenBuilder, x: Tensor) -> Instance:
    return Instance([x, builder.ints([builder.rng.binned(1, 4) for _ in x.shape])])


def _open_depth(builder: OpenBuilder, x: Tensor) -> Instance:
    attrs: Attributes = {"blocksize": builder.rng.choice((1, 2, 2, 3))}
    if builder.rng.random() < builder.style.rates.attribute:
        attrs["mode"] = builder.rng.choice(("DCR", "CRD"))
    return Instance([x], attrs)


def _open_space(builder: OpenBuilder, x: Tensor) -> Instance:
    return Instance([x], {"blocksize": builder.rng.choice((1, 2, 2, 3))})


OPERATORS = (
    *RESHAPES,
    layout(
        "Transpose",
        None,
        _transposed,
        parts=(_order,),
        requires=_is_order,
        moves=Moves.FIRST,
        symbolic=True,
        rounding=Rounding.EXACT,
        rows=transposed_rows,
    ),
    layout(
        "Tile",
        None,
        _tiled,
        parts=(Numbers(_repeats),),
        requires=_repeats_fit,
        ranks=(1, 5),
        usual={1: _tile_counts},
        moves=Moves.FIRST,
        symbolic=_open_tile,
        per_axis=(1,),
        rounding=Rounding.EXACT,
    ),
    layout(
        "DepthToSpace",
        lambda builder, x: _block(builder, x, True),
        _deep,
        requires=lambda ins, attrs: [ins[0].shape[1] % attrs["blocksize"] ** 2 == 0],
        ranks=(4, 4),
        moves=Moves.FIRST,
        symbolic=_open_depth,
        rank_ends=RankEnds.BOTH,
        rounding=Rounding.EXACT,
        rows=rows_of_first,
    ),
    layout(
        "SpaceToDepth",
        lambda builder, x: _block(builder, x, False),
        _spaced,
        requires=lambda ins, attrs: [side % attrs["blocksize"] == 0 for side in ins[0].shape[2:]],
        ranks=(4, 4),
        moves=Moves.FIRST,
        symbolic=_open_space,
        rank_ends=RankEnds.BOTH,
        rounding=Rounding.EXACT,
        rows=rows_of_first,
    ),
    layout(
        "Shape",
        _shape,
        lambda ins, attrs: [("int64", (len(_shape_range(ins, attrs)),))],
        ranks=(1, 5),  # that of a scalar is empty
        bounds=lambda ins, attrs: (1.0, max((ins[0].shape[axis] for axis in _shape_range(ins, attrs)), default=1)),
        symbolic=True,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Size",
        None,
        lambda ins, attrs: [("int64", ())],
        bounds=lambda ins, attrs: (1.0, math.prod(ins[0].shape)),
        symbolic=True,
        rounding=Rounding.EXACT,
    ),
    layout(
        "Trilu",
        parts=(Numbers(between(-3, 3), scalar=True, skip=0.3), flag("upper", 0.6)),
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
        None,
        _eye_type,
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
        _reverse,
        requires=_lengths_fit,
        ranks=(2, 5),
        usual={1: lengths("time_axis", 0)},
        rank_ends=RankEnds.LEAST,
        sizes_unsaid=True,
        rounding=Rounding.EXACT,
    ),
)
