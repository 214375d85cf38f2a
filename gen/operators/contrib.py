"""onnxruntime's own operators (domain com.microsoft), as a second domain: only programs for targets that have it use them.

Facts: onnxruntime's schemas and its document of contrib operators, checked by running each. ONNX's checker knows nothing of them.
"""

from collections.abc import Mapping
from typing import Any

from opsieve.gen.operators.convolutions import _conv, _conv_bounds, _conv_cost, _conv_fits, _conv_type
from opsieve.gen.operators.layouts import with_zero
from opsieve.gen.operators.matmul import _gemm, _gemm_bounds, _gemm_fits, _gemm_type, _matrix_shape
from opsieve.gen.operators.normalisations import normal
from opsieve.gen.operators.quantised import SCALES, ZERO_POINTS, _scales, _zero_points, full
from opsieve.gen.spec.builder import FREE, Builder, Sizes
from opsieve.gen.spec.declaration import Operator, RankEnds, Sampler
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.instance import Attr, Draft, Input, Instance, Numbers, axis_of, between, drawn_axis, flag, last
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.symbolic_arith import broadcast
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed

DOMAIN = "com.microsoft"
_FLOATS = ("float32", "float16")
_BYTES = ("uint8", "int8")


def contrib(name: str, sample: Sampler | None = None, **more: Any) -> Operator:
    """An operator of the second domain."""
    return Operator(name, sample, domain=DOMAIN, family="contrib", dtypes=more.pop("dtypes", ("float32",)), **more)


def _soft(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    bias = ins[1].size if len(ins) > 1 else 0.0
    return -0.5, max(ins[0].high, 0.0) + bias


def _fused_matmul(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    inner = x.shape[-1]
    if rng.random() < builder.style.rates.transposed:
        attrs["transA"] = 1
        inner = x.shape[-2]
    lead = x.shape[:-2]
    shape = (*lead, inner, FREE)
    if rng.random() < builder.style.rates.transposed:
        attrs["transB"] = 1
        shape = (*lead, FREE, inner)
    if rng.random() < builder.style.rates.attribute:
        attrs["alpha"] = rng.choice((0.5, 2.0, -1.0))
    return Instance([x, builder.match(x.dtype, shape)], attrs)


def _fused_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    a, b = ins[0].shape, ins[1].shape
    return [(ins[0].dtype, (*a[:-2], a[-1] if attrs.get("transA") else a[-2], b[-2] if attrs.get("transB") else b[-1]))]


def _fused_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    inner = ins[0].shape[-2 if attrs.get("transA") else -1]
    size = abs(attrs.get("alpha", 1.0)) * inner * ins[0].size * ins[1].size
    return -size, size


def _activated(sample: Any) -> Any:
    def activated(builder: Builder, x: Tensor) -> Instance:
        made: Instance = sample(builder, x)
        made.attributes["activation"] = builder.rng.choice(("Relu", "Sigmoid", "Tanh"))
        return made

    return activated


def _skip(builder: Builder, x: Tensor, simple: bool) -> Instance:
    rng = builder.rng
    width = x.shape[-1:]
    ins: list[Tensor | None] = [x, builder.match(x.dtype, x.shape), builder.match(x.dtype, width, Domain(0.2, 2))]
    if not simple:
        ins.append(builder.match(x.dtype, width) if rng.random() < builder.style.rates.likely_input else None)
    if rng.random() < builder.style.rates.unlikely_input:
        ins.append(builder.match(x.dtype, width))
    while ins[-1] is None:
        ins.pop()
    return Instance(ins, {"epsilon": rng.choice((1e-3, 1e-5))}, 1)


def _skip_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return normal([ins[0], *ins[2:4]], ins[0].shape[-1])


def _quantised_pair(builder: Builder, x: Tensor) -> Instance:
    y = builder.partner(x)
    ins = [
        *(x, _scales(builder, "float32", ()), _zero_points(builder, x.dtype, ())),
        *(y, _scales(builder, "float32", ()), _zero_points(builder, x.dtype, ())),
        *(_scales(builder, "float32", ()), _zero_points(builder, x.dtype, ())),
    ]
    return Instance(ins)


def _zero_point(draft: Draft) -> int:
    return draft.rng.choice(ZERO_POINTS.get(draft.x.dtype, (0,)))


_SCALE = Numbers(lambda draft: draft.rng.choice(SCALES), "float32", scalar=True)
_ZERO = Numbers(_zero_point, "", scalar=True)
_REQUANTISED = (_SCALE, _ZERO, _SCALE, _ZERO)  # of the operand, and of the result


def _new_place(draft: Draft) -> int:
    return draft.rng.between(0, draft.x.rank)


def _same_width(draft: Draft) -> Sizes:
    return (FREE, draft.x.shape[1])


def _range_of(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return full(ins[0].dtype)


def _quantised_concat(builder: Builder, x: Tensor) -> Instance:
    axis = axis_of(builder, x)
    wanted = tuple(FREE if place == axis % x.rank else side for place, side in enumerate(x.shape))
    ins = [_scales(builder, "float32", ()), _zero_points(builder, x.dtype, ())]
    for tensor in (x, *(builder.match(x.dtype, wanted) for _ in range(builder.rng.between(1, 2)))):
        ins += [tensor, _scales(builder, "float32", ()), _zero_points(builder, x.dtype, ())]
    return Instance(ins, {"axis": axis})


def _concat_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    parts = ins[2::3]
    axis = attrs["axis"] % len(parts[0].shape)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [(parts[0].dtype, tuple(shape))]


def _dynamic_matmul(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    dtype = rng.choice(_BYTES)
    b = builder.match(dtype, (x.shape[-1], FREE))
    ins: list[Tensor | None] = [x, b, _scales(builder, "float32", ())]
    if rng.random() < builder.style.rates.likely_input:
        ins.append(_zero_points(builder, dtype, ()))
        if rng.random() < builder.style.rates.optional_input:
            ins.append(builder.match("float32", (b.shape[1],)))
    return Instance(ins)


def _dynamic_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    bias = ins[4].size if len(ins) > 4 else 0.0
    size = 1.02 * ins[0].shape[-1] * ins[0].size * 255 * ins[2].size + bias + 1
    return -size, size


def _to_float(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    dtype = "int8" if x.dtype == "int8" else rng.choice(_BYTES)
    b = builder.match(dtype, (x.shape[-1], FREE))
    ins: list[Tensor | None] = [x, b, _scales(builder, "float32", ()), _scales(builder, "float32", ())]
    if rng.random() < builder.style.rates.likely_input:
        ins += [_zero_points(builder, x.dtype, ()), _zero_points(builder, dtype, ())]
    return Instance(ins)


def _expanded(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    values, shape = ins[1].values, ins[0].shape
    assert values is not None
    at = int(values[0])
    return [(ins[0].dtype, (*shape[:at], 1, *shape[at:]))]


def _heads(builder: Builder, q: Tensor) -> Instance:
    rng = builder.rng
    heads = rng.choice([n for n in range(1, q.shape[2] + 1) if q.shape[2] % n == 0])
    keys = rng.between(1, 5)
    value = heads * rng.between(1, 3)
    ins: list[Tensor | None] = [
        q,
        builder.match(q.dtype, (q.shape[0], keys, q.shape[2]), Domain(-4, 4)),
        builder.match(q.dtype, (q.shape[0], keys, value)),
    ]
    attrs: Attributes = {"num_heads": heads}
    if rng.random() < builder.style.rates.rare_attribute:
        attrs["scale"] = 0.5
    return Instance(ins, attrs, 1)


def _pairwise(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, broadcast(ins[0].shape, ins[3].shape))]


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
    contrib("FusedMatMul", _fused_matmul, infer=_fused_type, bounds=_fused_bounds, ranks=(2, 4)),
    contrib(
        "FusedGemm",
        _activated(_gemm),
        infer=_gemm_type,
        requires=_gemm_fits,
        bounds=_gemm_bounds,
        ranks=(2, 2),
        sizes_unsaid=True,
    ),
    contrib(
        "FusedConv",
        _activated(_conv),
        infer=_conv_type,
        requires=_conv_fits,
        bounds=_conv_bounds,
        cost=_conv_cost,
        ranks=(4, 4),
        sizes_unsaid=True,
    ),
    contrib("SkipLayerNormalization", lambda builder, x: _skip(builder, x, False), bounds=_skip_bounds, ranks=(3, 3)),
    contrib(
        "SkipSimplifiedLayerNormalization",
        lambda builder, x: _skip(builder, x, True),
        bounds=_skip_bounds,
        ranks=(3, 3),
    ),
    *(
        contrib(
            name,
            _quantised_pair,
            infer=_pairwise,
            bounds=_range_of,
            dtypes=_BYTES,
            scales=(1, 4, 6),
            rounding=Rounding.REQUANTISES,
        )
        for name in ("QLinearAdd", "QLinearMul")
    ),
    contrib(
        "QLinearSigmoid",
        parts=_REQUANTISED,
        bounds=_range_of,
        dtypes=_BYTES,
        scales=(1, 3),
        rounding=Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearLeakyRelu",
        parts=(*_REQUANTISED, Attr("alpha", lambda draft: 0.1)),
        bounds=_range_of,
        dtypes=_BYTES,
        scales=(1, 3),
        rounding=Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearSoftmax",
        parts=(*_REQUANTISED, Attr("axis", drawn_axis), Attr("opset", (12, 13))),
        bounds=_range_of,
        dtypes=_BYTES,
        ranks=(1, 4),
        rounding=Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearGlobalAveragePool",
        parts=_REQUANTISED,
        infer=lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape[:2], *(1 for _ in ins[0].shape[2:])))],
        bounds=_range_of,
        dtypes=_BYTES,
        ranks=(3, 5),
        scales=(1, 3),
        rounding=Rounding.REQUANTISES,
    ),
    contrib(
        "QLinearConcat",
        _quantised_concat,
        infer=_concat_type,
        bounds=lambda ins, attrs: full(ins[2].dtype),
        dtypes=_BYTES,
        ranks=(1, 4),
        rounding=Rounding.REQUANTISES,
    ),
    contrib(
        "DynamicQuantizeMatMul",
        _dynamic_matmul,
        infer=lambda ins, attrs: [("float32", _matrix_shape(ins[0].shape, ins[1].shape))],
        bounds=_dynamic_bounds,
        ranks=(2, 4),
        rounding=Rounding.COMPUTES,
    ),
    contrib(
        "MatMulIntegerToFloat",
        _to_float,
        infer=lambda ins, attrs: [("float32", _matrix_shape(ins[0].shape, ins[1].shape))],
        bounds=lambda ins, attrs: (-65025.0 * ins[0].shape[-1] * 0.25, 65025.0 * ins[0].shape[-1] * 0.25),
        dtypes=_BYTES,
        ranks=(2, 4),
    ),
    contrib(
        "ExpandDims",
        parts=(Numbers(_new_place, "int32", scalar=True),),
        infer=_expanded,
        dtypes=(*_FLOATS, "int64", "int32"),
        ranks=(0, 4),
    ),
    contrib(
        "Trilu",
        parts=(Numbers(between(-2, 2), scalar=True, skip=0.5), flag("upper")),
        bounds=with_zero,
        dtypes=("float32", "int64"),
        ranks=(2, 4),
        rank_ends=RankEnds.LEAST,
        rounding=Rounding.EXACT,
    ),
    contrib(
        "CDist",
        parts=(Input(_same_width), Attr("metric", ("euclidean", "sqeuclidean"))),
        infer=lambda ins, attrs: [(ins[0].dtype, (ins[0].shape[0], ins[1].shape[0]))],
        bounds=lambda ins, attrs: (0.0, 2 * ins[0].shape[1] * (ins[0].size + ins[1].size) ** 2),
        dtypes=("float32", "float64"),
        ranks=(2, 2),
    ),
    contrib(
        "MultiHeadAttention",
        _heads,
        infer=lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape[:2], ins[2].shape[2]))],
        bounds=lambda ins, attrs: (ins[2].low, ins[2].high),
        safe=(Domain(-4, 4),),
        ranks=(3, 3),
    ),
)
