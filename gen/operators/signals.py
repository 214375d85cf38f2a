"""Fourier transforms, and element-wise operators that younger opsets brought or that need more than one line.

Sources: the ONNX operator pages of DFT, STFT, CastLike, BitCast, Shrink, Swish, IsNaN, IsInf.
"""

import math
from collections.abc import Mapping
from typing import Any

from opsieve.gen.model.tensors import DTYPES, data_size
from opsieve.gen.operators.elementwise import CAST_TARGETS
from opsieve.gen.operators.layouts import values_of
from opsieve.gen.spec.builder import Builder
from opsieve.gen.spec.declaration import Moves, Operator
from opsieve.gen.spec.domains import Domain, Site, exact, size_of
from opsieve.gen.spec.dtype_facts import FLOATS, LARGEST, LEAST, NUMBER, is_float
from opsieve.gen.spec.instance import Attr, Draft, Instance
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed
from opsieve.gen.spec.undefined import cast_of_float, nan_element


def _fourier(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    if x.shape[-1] not in (1, 2):
        x = builder.match(x.dtype, (*x.shape[:-1], rng.between(1, 2)))
    axis = rng.between(1, x.rank - 2) if x.rank > 2 else 0
    length = None
    if rng.random() < builder.style.rates.unlikely_input:
        length = builder.ints([rng.between(1, x.shape[axis] + 2)], "int64", ())
    kind = rng.choice(("inverse", "onesided", "", ""))
    if kind == "inverse" and x.shape[-1] == 2:
        attrs["inverse"] = 1
    if kind == "onesided" and x.shape[-1] == 1:
        attrs["onesided"] = 1
    if builder.opset < 20:
        attrs["axis"] = axis
        return Instance([x] if length is None else [x, length], attrs)
    return Instance(
        [
            x,
            length,
            builder.ints([axis - x.rank if rng.random() < builder.style.rates.negative_axis else axis], "int64", ()),
        ],
        attrs,
    )


def _fourier_axis(ins: Ins, attrs: Mapping[str, Any]) -> int:
    return int(attrs["axis"] if "axis" in attrs else values_of(ins[2])[0]) % len(ins[0].shape)


def _fourier_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    sides, axis = list(ins[0].shape), _fourier_axis(ins, attrs)
    if len(ins) > 1 and ins[1] is not None:
        sides[axis] = values_of(ins[1])[0]
    if attrs.get("onesided"):
        sides[axis] = sides[axis] // 2 + 1
    return [(ins[0].dtype, (*sides[:-1], 2))]


def _fourier_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    size = 2 * ins[0].size * ins[0].shape[_fourier_axis(ins, attrs)]
    return -size, size


def _short_time(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    length = rng.between(4, 16)
    signal = builder.match(x.dtype, (rng.between(1, 2), length, 1))
    frame, step = rng.between(2, length), rng.between(1, 4)
    taper = (
        builder.match(x.dtype, (frame,), Domain(0, 1)) if rng.random() < builder.style.rates.optional_input else None
    )
    attrs["onesided"] = rng.below(2)  # always given: onnx 1.23 infers the default wrongly
    given = builder.ints([frame], "int64", ())
    return Instance([signal, builder.ints([step], "int64", ()), taper, given], attrs)


def _short_time_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    frame, step = values_of(ins[3])[0], values_of(ins[1])[0]
    bins = frame // 2 + 1 if attrs.get("onesided", 1) else frame
    return [(ins[0].dtype, (ins[0].shape[0], (ins[0].shape[1] - frame) // step + 1, bins, 2))]


def _cast_like(builder: Builder, x: Tensor) -> Instance | None:
    allowed = builder.takes("CastLike", "T2") & frozenset(CAST_TARGETS)
    dtype = builder.liked(allowed)
    if dtype != "bool" and not (LEAST[dtype] <= x.low and x.high <= LARGEST[dtype]):
        return None
    return Instance([x, builder.match(dtype, builder.shape(0, 2))])


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


def _bit_cast(builder: Builder, x: Tensor) -> Instance:
    dtype = _SAME_WIDTH[x.dtype]
    if x.low < 0 or x.high > LARGEST[dtype]:  # a sign bit would make another number of it
        x = builder.match(x.dtype, x.shape, Domain(0, min(LARGEST[dtype], LARGEST[x.dtype])))
    return Instance([x], {"to": NUMBER[dtype]})


def _shrunk(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
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


def _frame_length(site: Site) -> Domain:
    """No longer than the signal and the window."""
    return exact([min(size_of(site.shape(0), 1) or 2, size_of(site.shape(2), 0) or 4)])


OPERATORS = (
    Operator(
        "DFT",
        _fourier,
        infer=_fourier_type,
        bounds=_fourier_bounds,
        ranks=(2, 4),
        family="signal",
        dtypes=("float32", "float64", "float16"),
        usual={1: lambda site: exact([max(size_of(site.shape(0), site.attribute("axis", 1)) or 4, 1)]), 2: exact([1])},
        unmodelled=lambda ins, attrs: bool(attrs.get("inverse") and attrs.get("onesided")),
        sizes_unsaid=True,
        rounding=Rounding.SUMS,
    ),
    Operator(
        "STFT",
        _short_time,
        infer=_short_time_type,
        bounds=lambda ins, attrs: (-2 * ins[0].size * ins[0].shape[1], 2 * ins[0].size * ins[0].shape[1]),
        ranks=(3, 3),
        family="signal",
        dtypes=("float32", "float64"),
        usual={1: Domain(1, 2), 3: _frame_length},
        sizes_unsaid=True,
        rounding=Rounding.SUMS,
    ),
    Operator(
        "CastLike",
        _cast_like,
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
        _bit_cast,
        infer=lambda ins, attrs: [(DTYPES[attrs["to"]], ins[0].shape)],
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
