"""onnxruntime's own operators (domain com.microsoft), as a second domain that only programs for targets with
those kernels use.

Facts: onnxruntime's schemas and its document of contrib operators, checked by running each operator. ONNX's
checker does not know them.
"""

from collections.abc import Mapping
from typing import Any

from opsieve.gen.declarations import declaration, properties, symbolic_arith
from opsieve.gen.declarations.builder import FREE, Sizes
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    Draft,
    First,
    Input,
    Numbers,
    OutputCount,
    Partner,
    between,
    drawn_axis,
    flag,
    last,
    some,
    whole,
)
from opsieve.gen.declarations.tensor import Bounds, Domain, Ins, Typed
from opsieve.gen.operators import convolutions, matmul, normalisations, reshaping
from opsieve.gen.operators.quantised import ZERO_POINTS, full, other_bytes, scale, scale_and_zero, zero_point

DOMAIN = "com.microsoft"
_FLOATS = ("float32", "float16")
_BYTES = ("uint8", "int8")


def contrib(name: str, **more: Any) -> declaration.Operator:
    """Declare an operator of the second domain."""
    return declaration.Operator(
        name, domain=DOMAIN, family="contrib", dtypes=more.pop("dtypes", ("float32",)), **more
    )


def _soft(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    bias = ins[1].size if len(ins) > 1 else 0.0
    # Below 0 the activations dip to about -0.17 (Gelu) or -0.28 (Swish).
    return -0.5, max(ins[0].high, 0.0) + bias


def _fused_factor(draft: Draft) -> Sizes:
    """Return the shape of the second factor, with the leading axes of the first."""
    *lead, rows, columns = draft.x.shape
    shared = rows if "transA" in draft.attrs else columns
    return (*lead, *((FREE, shared) if "transB" in draft.attrs else (shared, FREE)))


def _fused_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    a, b = ins[0].shape, ins[1].shape
    return [
        (
            ins[0].dtype,
            (*a[:-2], a[-1] if attrs.get("transA") else a[-2], b[-2] if attrs.get("transB") else b[-1]),
        )
    ]


_ACTIVATION = Attr("activation", ("Relu", "Sigmoid", "Tanh"))
# A scale near 0 would hide a wrong result behind it.
_SKIP = (Input(whole), Input(last, Domain(0.2, 2)))
_SKIPPED = (Input(last, share=0.4), Attr("epsilon", (1e-3, 1e-5)), OutputCount(1))


def _skip_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return normalisations.normal([ins[0], *ins[2:4]], ins[0].shape[-1])


# Scale and zero point of the operand, then those of the result.
_REQUANTISED = (*scale_and_zero(0), *scale_and_zero(0))


def _columns(draft: Draft) -> Sizes:
    return (draft.x.shape[-1], FREE)


def _second_width(draft: Draft) -> Sizes:
    assert draft.inputs[1] is not None
    return draft.inputs[1].shape[-1:]


def _range_of(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return full(ins[0].dtype)


def _scaled_parts(draft: Draft) -> None:
    """Two or three tensors that differ along the axis alone, each with its scale and zero point."""
    x, draft.inputs = draft.x, []
    scale()(draft)
    draft.inputs.append(draft.builder.ints([draft.rng.choice(ZERO_POINTS[x.dtype])], x.dtype, ()))
    wanted = tuple(FREE if place == draft.axis % x.rank else side for place, side in enumerate(x.shape))
    for _ in range(draft.rng.between(2, 3)):
        draft.inputs.append(x if len(draft.inputs) == 2 else draft.builder.match(x.dtype, wanted))
        for part in scale_and_zero(len(draft.inputs) - 1):
            part(draft)


def _concat_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    # Inputs: scale and zero point of the result, then tensor, scale and zero point of each part.
    parts = ins[2::3]
    axis = attrs["axis"] % len(parts[0].shape)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [(parts[0].dtype, tuple(shape))]


def _infer_expand_dims(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    values, shape = ins[1].values, ins[0].shape
    assert values is not None
    at = int(values[0])
    return [(ins[0].dtype, (*shape[:at], 1, *shape[at:]))]


OPERATORS = (
    contrib("Gelu", bounds=_soft),
    contrib(
        "FastGelu",
        parts=(Input(last, share=0.5),),
        bounds=_soft,
        ranks=(1, 4),
    ),
    contrib("QuickGelu", parts=(Attr("alpha", (1.0, 1.702)),), bounds=_soft),
    contrib("BiasGelu", parts=(Input(last),), bounds=_soft, ranks=(1, 4)),
    contrib(
        "FusedMatMul",
        parts=(
            Attr("transA", (1,), 0.4),
            Attr("transB", (1,), 0.4),
            Attr("alpha", (0.5, 2.0, -1.0), 0.5),
            Input(_fused_factor),
        ),
        infer=_fused_type,
        bounds=declaration.magnitude(
            lambda ins, attrs: (
                abs(attrs.get("alpha", 1.0))
                * ins[0].shape[-2 if attrs.get("transA") else -1]
                * ins[0].size
                * ins[1].size
            )
        ),
        ranks=(2, 4),
    ),
    contrib(
        "FusedGemm",
        parts=(*matmul.GEMM, _ACTIVATION),
        infer=matmul.gemm_type,
        requires=matmul.gemm_fits,
        bounds=matmul.gemm_bounds,
        ranks=(2, 2),
        sizes_unsaid=True,
    ),
    contrib(
        "FusedConv",
        parts=(*convolutions.CONV, _ACTIVATION),
        infer=convolutions.conv_type,
        requires=convolutions.conv_fits,
        bounds=convolutions.conv_bounds,
        cost=convolutions.conv_cost,
        ranks=(4, 4),
        sizes_unsaid=True,
    ),
    contrib(
        "SkipLayerNormalization",
        parts=(*_SKIP, Input(last, share=0.6), *_SKIPPED),
        bounds=_skip_bounds,
        ranks=(3, 3),
    ),
    contrib("SkipSimplifiedLayerNormalization", parts=(*_SKIP, *_SKIPPED), bounds=_skip_bounds, ranks=(3, 3)),
    *(
        contrib(
            name,
            parts=(*scale_and_zero(0), Partner(), *scale_and_zero(0), *scale_and_zero(0)),
            infer=lambda ins, attrs: [(ins[0].dtype, symbolic_arith.broadcast(ins[0].shape, ins[3].shape))],
            bounds=_range_of,
            dtypes=_BYTES,
            scales=(1, 4, 6),
            rounding=properties.Rounding.REQUANTISES,
        )
        for name in ("QLinearAdd", "QLinearMul")
    ),
    contrib(
        "QLinearSigmoid",
        parts=_REQUANTISED,
        bounds=_range_of,
        dtypes=_BYTES,
        scales=(1, 3),
        rounding=properties.Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearLeakyRelu",
        parts=(*_REQUANTISED, Attr("alpha", lambda draft: 0.1)),
        bounds=_range_of,
        dtypes=_BYTES,
        scales=(1, 3),
        rounding=properties.Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearSoftmax",
        parts=(*_REQUANTISED, Attr("axis", drawn_axis), Attr("opset", (12, 13))),
        bounds=_range_of,
        dtypes=_BYTES,
        ranks=(1, 4),
        rounding=properties.Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearGlobalAveragePool",
        parts=_REQUANTISED,
        infer=lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape[:2], *(1 for _ in ins[0].shape[2:])))],
        bounds=_range_of,
        dtypes=_BYTES,
        ranks=(3, 5),
        scales=(1, 3),
        rounding=properties.Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearConcat",
        parts=(Attr("axis", drawn_axis), _scaled_parts),
        infer=_concat_type,
        bounds=lambda ins, attrs: full(ins[2].dtype),
        dtypes=_BYTES,
        ranks=(1, 4),
        rounding=properties.Rounding.REQUANTISES,
    ),
    contrib(
        "DynamicQuantizeMatMul",
        parts=(
            Input(_columns, dtype=_BYTES),
            scale(),
            some(zero_point(1), Input(_second_width, dtype="float32", share=0.5), share=0.6),
        ),
        infer=lambda ins, attrs: [("float32", matmul.matrix_shape(ins[0].shape, ins[1].shape))],
        bounds=declaration.magnitude(
            lambda ins, attrs: (
                1.02 * ins[0].shape[-1] * ins[0].size * 255 * ins[2].size
                + (ins[4].size if len(ins) > 4 else 0.0)
                + 1
            )
        ),
        ranks=(2, 4),
        rounding=properties.Rounding.COMPUTES,
    ),
    contrib(
        "MatMulIntegerToFloat",
        parts=(
            Input(_columns, dtype=other_bytes),
            scale(),
            scale(),
            some(zero_point(0), zero_point(1), share=0.6),
        ),
        infer=lambda ins, attrs: [("float32", matmul.matrix_shape(ins[0].shape, ins[1].shape))],
        bounds=lambda ins, attrs: (-65025.0 * ins[0].shape[-1] * 0.25, 65025.0 * ins[0].shape[-1] * 0.25),
        dtypes=_BYTES,
        ranks=(2, 4),
    ),
    contrib(
        "ExpandDims",
        parts=(Numbers(lambda draft: draft.rng.between(0, draft.x.rank), "int32", scalar=True),),
        infer=_infer_expand_dims,
        dtypes=(*_FLOATS, "int64", "int32"),
        ranks=(0, 4),
    ),
    contrib(
        "Trilu",
        parts=(Numbers(between(-2, 2), scalar=True, share=0.5), flag("upper")),
        bounds=reshaping.with_zero,
        dtypes=("float32", "int64"),
        ranks=(2, 4),
        rank_ends=declaration.RankEnds.LEAST,
        rounding=properties.Rounding.EXACT,
    ),
    contrib(
        "CDist",
        parts=(Input(lambda draft: (FREE, draft.x.shape[1])), Attr("metric", ("euclidean", "sqeuclidean"))),
        infer=lambda ins, attrs: [(ins[0].dtype, (ins[0].shape[0], ins[1].shape[0]))],
        bounds=lambda ins, attrs: (0.0, 2 * ins[0].shape[1] * (ins[0].size + ins[1].size) ** 2),
        dtypes=("float32", "float64"),
        ranks=(2, 2),
    ),
    contrib(
        "MultiHeadAttention",
        parts=(
            First("batch queries width"),
            # The width is parted among the heads.
            Attr("num_heads", lambda draft: draft.rng.choice(symbolic_arith.divisors(draft["width"]))),
            Count("keys", between(1, 5)),
            Count("size", between(1, 3)),
            Input("batch keys width", Domain(-4, 4)),
            Input("batch keys num_heads*size"),
            Attr("scale", (0.5,), 0.3),
            OutputCount(1),
        ),
        infer=lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape[:2], ins[2].shape[2]))],
        bounds=lambda ins, attrs: (ins[2].low, ins[2].high),
        safe=(Domain(-4, 4),),
        ranks=(3, 3),
    ),
)
