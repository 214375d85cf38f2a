"""Fourier transforms, and element-wise operators that younger opsets brought or that need more than one line.

Sources: the ONNX operator pages of DFT, STFT, CastLike, BitCast, Shrink, Swish, IsNaN, IsInf.
"""

import math
from collections.abc import Mapping
from typing import Any

from opsieve.gen.declarations.declaration import Moves, Operator, magnitude
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    Draft,
    First,
    Input,
    Numbers,
    between,
    flag,
    look_up,
    never,
    sign_axis,
    since,
    some,
    whole,
)
from opsieve.gen.declarations.properties import Rounding, cast_of_float, nan_element
from opsieve.gen.declarations.tensor import (
    FLOATS,
    LARGEST,
    NUMBER,
    Bounds,
    Domain,
    Ins,
    Typed,
    exact,
    is_float,
    optional,
    size_of,
)
from opsieve.gen.model.tensors import DTYPES, data_size
from opsieve.gen.operators import elementwise, reshaping


def _length_axis(draft: Draft) -> int:
    """Draw the axis of the signal, which excludes the last axis (real and imaginary parts) and, where
    possible, the batch axis.
    """
    draft.axis = draft.rng.between(1, draft.x.rank - 2) if draft.x.rank > 2 else 0
    return draft.axis


_FOURIER = (
    First(
        fits=lambda draft: draft.x.shape[-1] in (1, 2),
        other=lambda draft: (*draft.x.shape[:-1], draft.rng.between(1, 2)),
    ),
    Count("place", _length_axis),
    Numbers(lambda draft: draft.rng.between(1, draft.side + 2), scalar=True, share=0.4),
    # Opset 20 turned the attribute into an input.
    some(Attr("axis", look_up("place")), where=lambda draft: draft.opset < 20),
    since(20, Numbers(lambda draft: sign_axis(draft.builder, draft.axis, draft.x.rank), scalar=True)),
    some(Attr("inverse", (1,), 0.25), where=lambda draft: draft.x.shape[-1] == 2),
    # The page: a one-sided transform is for real input only, and the inverse of it is not generated.
    some(Attr("onesided", (1,), 0.25), where=lambda draft: draft.x.shape[-1] == 1),
)


def _fourier_axis(ins: Ins, attrs: Mapping[str, Any]) -> int:
    return int(attrs["axis"] if "axis" in attrs else reshaping.values_of(ins[2])[0]) % len(ins[0].shape)


def _fourier_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    sides, axis = list(ins[0].shape), _fourier_axis(ins, attrs)
    length = optional(ins, 1)
    if length is not None:
        sides[axis] = reshaping.values_of(length)[0]
    if attrs.get("onesided"):
        # A real signal's spectrum is symmetric: floor(n/2) + 1 values determine it.
        sides[axis] = sides[axis] // 2 + 1
    return [(ins[0].dtype, (*sides[:-1], 2))]


_SHORT_TIME = (
    First(
        "batch length 1",
        fits=never,
        other=lambda draft: (draft.rng.between(1, 2), draft.rng.between(4, 16), 1),
    ),
    Numbers(between(1, 4), scalar=True),
    Count("frame", lambda draft: draft.rng.between(2, draft["length"])),
    Input("frame", Domain(0, 1), share=0.5),
    Numbers(look_up("frame"), scalar=True),
    # Always given, because shape inference of onnx 1.23 uses the wrong default.
    flag("onesided"),
)


def _short_time_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    frame, step = reshaping.values_of(ins[3])[0], reshaping.values_of(ins[1])[0]
    bins = frame // 2 + 1 if attrs.get("onesided", 1) else frame
    return [(ins[0].dtype, (ins[0].shape[0], (ins[0].shape[1] - frame) // step + 1, bins, 2))]


def _like_type(draft: Draft) -> str:
    allowed = draft.builder.takes("CastLike", "T2") & frozenset(elementwise.CAST_TARGETS)
    return draft.builder.choose_dtype(
        frozenset(
            dtype for dtype in allowed if dtype == draft.x.dtype or elementwise.holds_all(dtype, draft.x)
        )
    )


def _cast_like_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    dtype = ins[1].dtype
    if dtype == "bool":
        return 0.0, 1.0
    return (ins[0].low, ins[0].high) if is_float(dtype) else (math.floor(ins[0].low), math.ceil(ins[0].high))


_SAME_WIDTH = {
    "int8": "uint8",
    "uint8": "int8",
    "int16": "uint16",
    "uint16": "int16",
    "int32": "uint32",
    "uint32": "int32",
    "int64": "uint64",
    "uint64": "int64",
}


def _same_bits(draft: Draft) -> Domain:
    """Return the numbers without a sign bit: they are the same in both types."""
    dtype = draft.x.dtype
    return Domain(0, min(LARGEST[_SAME_WIDTH[dtype]], LARGEST[dtype]))


def _shrunk(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    # The page: x + bias below -lambd, x - bias above lambd, and 0 between them.
    low, high, far, bias = ins[0].low, ins[0].high, attrs.get("lambd", 0.5), attrs.get("bias", 0.0)
    ends = [0.0] if low <= far and high >= -far else []
    if low < -far:
        ends += [low + bias, min(high, -far) + bias]
    if high > far:
        ends += [max(low, far) - bias, high - bias]
    return min(ends), max(ends)


def _truth(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [("bool", ins[0].shape)]


def _one_sign(draft: Draft) -> None:
    kept = draft.rng.choice(("detect_positive", "detect_negative", ""))
    if kept:
        draft.attrs[kept] = draft.rng.below(2)


def _unit(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return 0.0, 1.0


OPERATORS = (
    Operator(
        "DFT",
        parts=_FOURIER,
        infer=_fourier_type,
        # A sum over the axis of products with a sine or cosine, for the real and the imaginary part.
        bounds=magnitude(lambda ins, attrs: 2 * ins[0].size * ins[0].shape[_fourier_axis(ins, attrs)]),
        ranks=(2, 4),
        family="signal",
        dtypes=("float32", "float64", "float16"),
        usual={
            1: lambda site: exact([max(size_of(site.shape(0), site.attribute("axis", 1)) or 4, 1)]),
            2: exact([1]),
        },
        unmodelled=lambda ins, attrs: bool(attrs.get("inverse") and attrs.get("onesided")),
        sizes_unsaid=True,
        rounding=Rounding.SUMS,
    ),
    Operator(
        "STFT",
        parts=_SHORT_TIME,
        infer=_short_time_type,
        bounds=lambda ins, attrs: (-2 * ins[0].size * ins[0].shape[1], 2 * ins[0].size * ins[0].shape[1]),
        ranks=(3, 3),
        family="signal",
        dtypes=("float32", "float64"),
        # A frame is at most as long as the signal and the window.
        usual={
            1: Domain(1, 2),
            3: lambda site: exact([min(size_of(site.shape(0), 1) or 2, size_of(site.shape(2), 0) or 4)]),
        },
        sizes_unsaid=True,
        rounding=Rounding.SUMS,
    ),
    Operator(
        "CastLike",
        parts=(Input(lambda draft: draft.builder.shape(0, 2), dtype=_like_type),),
        same_shape=True,
        infer=lambda ins, attrs: [(ins[1].dtype, ins[0].shape)],
        bounds=_cast_like_bounds,
        family="cast",
        moves=Moves.IN_ORDER,
        undefined=(cast_of_float,),
        symbolic=True,
        converts=True,
        rounding=Rounding.JUMPS,
    ),
    Operator(
        "BitCast",
        parts=(
            First(fits=lambda draft: draft.x.within(_same_bits(draft)), other=whole, domain=_same_bits),
            Attr("to", lambda draft: NUMBER[_SAME_WIDTH[draft.x.dtype]]),
        ),
        infer=lambda ins, attrs: [(DTYPES[attrs["to"]], ins[0].shape)],
        # Of eight elements, so that also types of less than 8 bits take whole bytes.
        requires=lambda ins, attrs: [data_size(ins[0].dtype, 8) == data_size(DTYPES[attrs["to"]], 8)],
        family="cast",
        dtypes=tuple(_SAME_WIDTH),
        converts=True,
    ),
    Operator(
        "Shrink",
        parts=(Attr("lambd", (0.0, 0.25, 1.0), 0.5), Attr("bias", (0.0, 0.5, 1.0), 0.5)),
        bounds=_shrunk,
        family="unary",
        dtypes=FLOATS,
        undefined=(nan_element,),
        symbolic=True,
        rounding=Rounding.JUMPS,
    ),
    Operator(
        "Swish",
        parts=(Attr("alpha", (0.5, 1.702), 0.5),),
        bounds=lambda ins, attrs: (-1.0, max(ins[0].high, 0.0)),
        family="unary",
        dtypes=FLOATS,
        symbolic=True,
    ),
    Operator(
        "IsNaN",
        infer=_truth,
        bounds=_unit,
        family="logic",
        dtypes=FLOATS,
        symbolic=True,
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
    Operator(
        "IsInf",
        parts=(_one_sign,),
        infer=_truth,
        bounds=_unit,
        family="logic",
        dtypes=FLOATS,
        symbolic=True,
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
)
