"""Quantisation: scaled integers and the products that work on them.

Sources: the ONNX operator pages of QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger,
ConvInteger, QLinearMatMul, QLinearConv. Scales are constants: compilers fuse only those.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import catalogue, properties, symbolic_arith
from opsieve.gen.declarations.builder import FREE, Sizes
from opsieve.gen.declarations.declaration import Operator, RankEnds, SizeRule, magnitude
from opsieve.gen.declarations.instance import (
    Count,
    Draft,
    First,
    Input,
    Numbers,
    Part,
    look_up,
    sign_axis,
    some,
)
from opsieve.gen.declarations.tensor import LARGEST, LEAST, POSITIVE, Bounds, Ins, is_float
from opsieve.gen.operators.convolutions import Windows, conv_cost, infer_window_sizes
from opsieve.gen.operators.matmul import inner, matrix_shape, second_factor

# Powers of two are exact, so a rewrite of scales must not change results; the others round.
SCALES = (0.02, 0.05, 0.1, 0.125, 0.25, 0.5)
ZERO_POINTS = {
    "uint8": (0, 100, 128),
    "int8": (0, 0, 3),
    "uint16": (0, 1000),
    "int16": (0,),
    "int32": (0,),
    "uint4": (0, 7),
    "int4": (0, 1),
}
_BYTES = ("uint8", "int8")


def scale(dtype: str | Callable[[Draft], str] = "float32", shape: str = "") -> Part:
    """Make the part of an input of scales."""
    if not shape:
        return Numbers(SCALES, dtype, scalar=True)
    return Numbers(
        lambda draft: [draft.rng.choice(SCALES) for _ in range(math.prod(draft.shape(shape)))],
        dtype,
        shape=shape,
    )


def zero_point(of: int | str, shape: str = "", share: float | None = None) -> Part:
    """Make the part of an input of zero points, with the type of an input or of this name."""

    def dtype(draft: Draft) -> str:
        tensor = draft.inputs[of] if isinstance(of, int) else None
        return str(draft[str(of)]) if tensor is None else tensor.dtype

    def one(draft: Draft) -> int:
        return draft.rng.choice(ZERO_POINTS.get(dtype(draft), (0,)))

    def each(draft: Draft) -> list[int]:
        return [one(draft) for _ in range(math.prod(draft.shape(shape)))]

    return Numbers(each if shape else one, dtype, scalar=not shape, shape=shape, share=share)


def scale_and_zero(place: int) -> tuple[Part, ...]:
    """Make the parts for a scale and a zero point of the type of the input at a position."""
    return scale(), zero_point(place)


def other_bytes(draft: Draft) -> str:
    """Draw the type of a second operand that kernels support next to the first: int8 goes with int8 only."""
    return "int8" if draft.x.dtype == "int8" else draft.rng.choice(_BYTES)


def _grain(draft: Draft) -> None:
    """Draw the shape of scales: one for the whole tensor, for each place of an axis, or for each block of it
    (since opset 21).
    """
    rng, rates, shape = draft.rng, draft.builder.style.rates, draft.x.shape
    draft.sizes["grain"] = ()
    if not shape or rng.random() < rates.whole_tensor:
        return
    axis = rng.below(len(shape))
    draft.sizes["grain"] = (shape[axis],)
    if axis != 1 or rng.random() >= rates.axis_left_out:
        draft.attrs["axis"] = sign_axis(draft.builder, axis, len(shape))
    if draft.opset >= 21 and len(shape) > 1 and rng.random() < rates.blocked:
        size = rng.between(1, shape[axis])
        blocks = -(-shape[axis] // size)
        # The page accepts sizes from ceil(side / blocks) on; only that one is drawn.
        if -(-shape[axis] // blocks) == size:
            draft.sizes["grain"] = (*shape[:axis], blocks, *shape[axis + 1 :])
            draft.attrs["block_size"] = size


def _result_type(draft: Draft) -> str:
    had = catalogue.form("QuantizeLinear", draft.opset)
    assert had is not None
    allowed = [dtype for dtype in ZERO_POINTS if dtype in had.types[had.outputs[0].type]]
    return draft.rng.choice(("uint8", "int8", *allowed))


def _scale_type(draft: Draft) -> str:
    had = catalogue.form("DequantizeLinear", draft.opset)
    assert had is not None
    floats = had.types[had.inputs[1].type] & {"float32", "float16"}
    return draft.builder.choose_dtype(floats) if draft.draws(0.3) else "float32"


def full(dtype: str) -> Bounds:
    """Return the interval of an integer type."""
    return LEAST[dtype], LARGEST[dtype]


def _scales_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    """Require one scale, or one for each place of an axis or block of it (opset 21), and as many zero
    points.
    """
    x, scale = ins[0].shape, ins[1].shape
    found: list[symbolic_arith.Truth] = []
    if len(ins) > 2:
        found = [
            len(ins[2].shape) == len(scale),
            *(p == q for p, q in zip(ins[2].shape, scale, strict=False)),
        ]
    if len(scale) == 1 and not attrs.get("block_size") and len(x) > 1:
        axis = attrs.get("axis", 1)
        found.append(-len(x) <= axis < len(x) and scale[0] == x[axis])
    return found


def _conv_sizes(x: Sizes, w: Sizes, attrs: Mapping[str, Any]) -> Sizes:
    return (x[0], w[0], *infer_window_sizes(x[2:], w[2:], attrs))


def _conv_relations(x: int, w: int) -> Any:
    def requires(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
        a, b = ins[x].shape, ins[w].shape
        return [a[1] == b[1] * attrs.get("group", 1), *(side >= 1 for side in _conv_sizes(a, b, attrs)[2:])]

    return requires


def declare_quantised(name: str, infer: Any, bounds: Any, **more: Any) -> Operator:
    """Declare an operator on scaled integers."""
    return Operator(name, infer=infer, bounds=bounds, family="quantised", **more)


def _filter_type(draft: Draft) -> str:
    assert draft.inputs[3] is not None
    return draft.inputs[3].dtype


_WINDOWS = (First("batch channels sides..."), Windows(), Count("maps", lambda draft: draft.number(1, 4, 16)))


def _one_for_all(ins: Ins, attrs: Mapping[str, Any]) -> bool:
    """Return whether the scale has one element, as a scalar or a vector, or an attribute names the output's
    type.
    """
    return math.prod(ins[1].shape) == 1 or "output_dtype" in attrs


OPERATORS = (
    declare_quantised(
        "QuantizeLinear",
        lambda ins, attrs: [(ins[2].dtype if len(ins) > 2 else "uint8", ins[0].shape)],
        lambda ins, attrs: full(ins[2].dtype if len(ins) > 2 else "uint8"),
        requires=_scales_fit,
        parts=(
            _grain,
            Count("result", _result_type),
            scale(lambda draft: draft.x.dtype, "grain..."),
            some(
                zero_point("result", "grain..."),
                where=lambda draft: draft["result"] != "uint8" or draft.draws(0.7),
            ),
        ),
        dtypes=("float32", "float16", "bfloat16"),
        usual={1: POSITIVE},
        undefined=(properties.nan_input,),
        unmodelled=_one_for_all,
        converts=True,
        scales=(1,),
        rounding=properties.Rounding.COMPUTES,
    ),
    declare_quantised(
        "DequantizeLinear",
        lambda ins, attrs: [(ins[1].dtype, ins[0].shape)],
        magnitude(lambda ins, attrs: (ins[0].size + (ins[2].size if len(ins) > 2 else 0.0)) * ins[1].size),
        parts=(
            _grain,
            scale(_scale_type, "grain..."),
            some(
                zero_point(0, "grain...", share=0.7),
                # The page: int32 has no zero point, and float8 types usually have none.
                where=lambda draft: draft.x.dtype != "int32" and not is_float(draft.x.dtype),
            ),
        ),
        requires=_scales_fit,
        dtypes=("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4", "float8_e4m3fn", "float8_e5m2"),
        usual={1: POSITIVE},
        unmodelled=_one_for_all,
        converts=True,
        scales=(1,),
    ),
    declare_quantised(
        "DynamicQuantizeLinear",
        lambda ins, attrs: [("uint8", ins[0].shape), ("float32", ()), ("uint8", ())],
        # Where all elements are 0 the scale is 1.
        lambda ins, attrs: [(0.0, 255.0), (0.0, max(ins[0].size, 1.0)), (0.0, 255.0)],
        dtypes=("float32",),
        undefined=(properties.nan_input, properties.empty_range),
        symbolic=True,
        converts=True,
        rounding=properties.Rounding.COMPUTES,
    ),
    declare_quantised(
        "MatMulInteger",
        lambda ins, attrs: [("int32", matrix_shape(ins[0].shape, ins[1].shape))],
        # 255 * 255 is the largest product of two bytes, zero points included.
        magnitude(lambda ins, attrs: ins[0].shape[-1] * 65025.0),
        parts=(
            Input(second_factor, dtype=other_bytes),
            some(zero_point(0), zero_point(1, share=0.5), share=0.5),
        ),
        requires=inner,
        ranks=(1, 4),
        symbolic=True,
        rank_ends=RankEnds.LEAST,
    ),
    declare_quantised(
        "QLinearMatMul",
        lambda ins, attrs: [(ins[7].dtype, matrix_shape(ins[0].shape, ins[3].shape))],
        lambda ins, attrs: full(ins[7].dtype),
        parts=(
            First(fits=lambda draft: draft.x.rank > 1, other="rows inner"),
            # Opset 21 added scales of other types than float32.
            Count("type", lambda draft: "float16" if draft.opset >= 21 and draft.draws(0.1) else "float32"),
            *(scale(look_up("type")), zero_point(0)),
            Input(lambda draft: (draft.x.shape[-1], FREE), dtype=other_bytes),
            *(scale(look_up("type")), zero_point(3)),
            *(scale(look_up("type")), zero_point(0)),
        ),
        requires=lambda ins, attrs: inner((ins[0], ins[3]), attrs),
        ranks=(1, 4),
        dtypes=_BYTES,
        usual={1: POSITIVE, 4: POSITIVE, 6: POSITIVE},
        scales=(1, 4, 6),
        rounding=properties.Rounding.REQUANTISES,
    ),
    declare_quantised(
        "ConvInteger",
        lambda ins, attrs: [("int32", _conv_sizes(ins[0].shape, ins[1].shape, attrs))],
        magnitude(lambda ins, attrs: math.prod(ins[1].shape[1:]) * 65025.0),
        parts=(
            *_WINDOWS,
            Input("maps channels kernel...", dtype=other_bytes),
            some(zero_point(0), zero_point(1, share=0.5), share=0.5),
        ),
        requires=_conv_relations(0, 1),
        ranks=(3, 4),
        cost=conv_cost,
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.FILTERED,
    ),
    declare_quantised(
        "QLinearConv",
        lambda ins, attrs: [(ins[7].dtype, _conv_sizes(ins[0].shape, ins[3].shape, attrs))],
        lambda ins, attrs: full(ins[7].dtype),
        parts=(
            *(*_WINDOWS, *scale_and_zero(0)),
            Input("maps channels kernel...", dtype=other_bytes),
            Count("grain", lambda draft: (draft["maps"],) if draft.draws(0.4) else ()),
            scale(shape="grain..."),
            Numbers(
                # Kernels demand equal zero points for all filters; 0 is the usual one.
                lambda draft: (
                    [0] * draft["grain"][0]
                    if draft["grain"]
                    else [draft.rng.choice(ZERO_POINTS[_filter_type(draft)])]
                ),
                _filter_type,
                shape="grain...",
            ),
            *scale_and_zero(0),
            Numbers(
                lambda draft: [draft.rng.between(-100, 100) for _ in range(draft["maps"])], "int32", share=0.4
            ),
        ),
        requires=_conv_relations(0, 3),
        ranks=(3, 4),
        usual={1: POSITIVE, 4: POSITIVE, 6: POSITIVE},
        rank_ends=RankEnds.LEAST,
        scales=(1, 4, 6),
        rounding=properties.Rounding.REQUANTISES,
    ),
)
