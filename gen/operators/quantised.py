"""Quantisation: scaled integers and the products that work on them.

Sources: the ONNX operator pages of QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, ConvInteger,
QLinearMatMul, QLinearConv. Scales are constants: compilers fuse only those.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.operators.convolutions import _conv_cost
from opsieve.gen.operators.matmul import _inner, _matmul, _matrix_shape
from opsieve.gen.operators.windows import kernel_for, open_window, place_windows, placed
from opsieve.gen.spec.builder import FREE, Builder, OpenBuilder, Sizes
from opsieve.gen.spec.declaration import Operator, RankEnds, Sampler
from opsieve.gen.spec.domains import POSITIVE
from opsieve.gen.spec.dtype_facts import LARGEST, LEAST, is_float
from opsieve.gen.spec.instance import Instance
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.schema import form
from opsieve.gen.spec.size_rules import SizeRule
from opsieve.gen.spec.symbolic_arith import Truth
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed
from opsieve.gen.spec.undefined import empty_range, nan_input

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


def _zero_points(builder: Builder, dtype: str, shape: Sizes) -> Tensor:
    count = math.prod(shape)
    return builder.ints([builder.rng.choice(ZERO_POINTS.get(dtype, (0,))) for _ in range(count)], dtype, shape)


def _scales(builder: Builder, dtype: str, shape: Sizes) -> Tensor:
    return builder.ints([builder.rng.choice(SCALES) for _ in range(math.prod(shape))], dtype, shape)


def _grain(builder: Builder, x: Tensor) -> tuple[Sizes, Attributes]:
    """The shape of scales: one for the whole tensor, one for each place of an axis, or since opset 21 one for each block of it."""
    rng = builder.rng
    if not x.rank or rng.random() < builder.style.rates.whole_tensor:
        return (), {}
    axis = rng.below(x.rank)
    attrs: Attributes = {"axis": axis - x.rank if rng.random() < builder.style.rates.negative_axis else axis}
    if axis == 1 and rng.random() < builder.style.rates.axis_left_out:
        attrs = {}
    if builder.opset >= 21 and x.rank > 1 and rng.random() < builder.style.rates.blocked:
        size = rng.between(1, x.shape[axis])
        blocks = -(-x.shape[axis] // size)
        if -(-x.shape[axis] // blocks) == size:  # the size must be one that this many blocks can have
            return (*x.shape[:axis], blocks, *x.shape[axis + 1 :]), {**attrs, "block_size": size}
    return (x.shape[axis],), attrs


def _quantize(builder: Builder, x: Tensor) -> Instance | None:
    had = form("QuantizeLinear", builder.opset)
    assert had is not None
    allowed = [dtype for dtype in ZERO_POINTS if dtype in had.types[had.outputs[0].type]]
    dtype = builder.rng.choice(("uint8", "int8", *allowed))
    shape, attrs = _grain(builder, x)
    scale = _scales(builder, x.dtype if x.dtype != "int32" else "float32", shape)
    if dtype == "uint8" and builder.rng.random() < builder.style.rates.no_zero_point:
        return Instance([x, scale], attrs)
    return Instance([x, scale, _zero_points(builder, dtype, shape)], attrs)


def _quantized(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[2].dtype if len(ins) > 2 else "uint8", ins[0].shape)]


def full(dtype: str) -> Bounds:
    """All that an integer type can hold."""
    return LEAST[dtype], LARGEST[dtype]


def _dequantize(builder: Builder, x: Tensor) -> Instance:
    had = form("DequantizeLinear", builder.opset)
    assert had is not None
    shape, attrs = _grain(builder, x)
    floats = had.types[had.inputs[1].type] & {"float32", "float16"}
    scale = _scales(
        builder,
        builder.liked(frozenset(floats)) if builder.rng.random() < builder.style.rates.other_scale_dtype else "float32",
        shape,
    )
    if x.dtype == "int32" or is_float(x.dtype) or builder.rng.random() < builder.style.rates.no_zero_point:
        return Instance([x, scale], attrs)
    return Instance([x, scale, _zero_points(builder, x.dtype, shape)], attrs)


def _dequantized_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    size = (ins[0].size + (ins[2].size if len(ins) > 2 else 0.0)) * ins[1].size
    return -size, size


def _scales_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """One scale, or one for each place of an axis, or (opset 21) one for each block of it; as many zero points."""
    x, scale = ins[0].shape, ins[1].shape
    found: list[Truth] = []
    if len(ins) > 2:
        found = [len(ins[2].shape) == len(scale), *(p == q for p, q in zip(ins[2].shape, scale, strict=False))]
    if len(scale) == 1 and not attrs.get("block_size") and len(x) > 1:
        axis = attrs.get("axis", 1)
        found.append(-len(x) <= axis < len(x) and scale[0] == x[axis])
    return found


def _dynamic(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [("uint8", ins[0].shape), ("float32", ()), ("uint8", ())]


def _pair(builder: Builder) -> tuple[str, str]:
    """Element types of an activation and a weight, as kernels have them."""
    return builder.rng.choice((("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")))


def _integer_matmul(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    other = "int8" if x.dtype == "int8" else rng.choice(_BYTES)
    shaped = _matmul(builder, x).inputs[1]
    assert shaped is not None
    b = builder.match(other, shaped.shape)
    ins: list[Tensor | None] = [x, b]
    if rng.random() < builder.style.rates.optional_input:
        ins.append(_zero_points(builder, x.dtype, ()))
        if rng.random() < builder.style.rates.optional_input:
            ins.append(_zero_points(builder, other, ()))
    return Instance(ins)


def _integer_bounds(terms: int) -> Bounds:
    return -terms * 65025.0, terms * 65025.0


def _quantised_matmul(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    other = "int8" if x.dtype == "int8" else rng.choice(_BYTES)
    if x.rank == 1:
        x = builder.match(x.dtype, (FREE, FREE))
    b = builder.match(other, (x.shape[-1], FREE))
    scale = "float32" if builder.opset < 21 or rng.random() < builder.style.rates.float32_scale else "float16"
    ins: list[Tensor] = []
    for operand in (x, b):
        ins += [operand, _scales(builder, scale, ()), _zero_points(builder, operand.dtype, ())]
    return Instance([*ins, _scales(builder, scale, ()), _zero_points(builder, x.dtype, ())])


def _convolved(builder: Builder, x: Tensor, other: str) -> tuple[Tensor, Tensor, Attributes]:
    attrs: Attributes = {}
    kernel = kernel_for(builder, x.shape[2:])
    place_windows(builder, x.shape[2:], kernel, attrs, True)
    return x, builder.match(other, (builder.rng.between(1, 4), x.shape[1], *kernel)), attrs


def _integer_conv(builder: Builder, x: Tensor) -> Instance:
    x, w, attrs = _convolved(builder, x, "int8" if x.dtype == "int8" else builder.rng.choice(_BYTES))
    ins = [x, w]
    if builder.rng.random() < builder.style.rates.optional_input:
        ins.append(_zero_points(builder, x.dtype, ()))
        if builder.rng.random() < builder.style.rates.optional_input:
            ins.append(_zero_points(builder, w.dtype, ()))
    return Instance(ins, attrs)


def _conv_sizes(x: Sizes, w: Sizes, attrs: Mapping[str, Any]) -> Sizes:
    return (x[0], w[0], *placed(x[2:], w[2:], attrs))


def _quantised_conv(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    x, w, attrs = _convolved(builder, x, "int8" if x.dtype == "int8" else rng.choice(_BYTES))
    features = w.shape[0]
    each: Sizes = (features,) if rng.random() < builder.style.rates.per_channel else ()
    zero = builder.ints([0] * features, w.dtype, each) if each else _zero_points(builder, w.dtype, ())
    ins = [
        *(x, _scales(builder, "float32", ()), _zero_points(builder, x.dtype, ())),
        *(w, _scales(builder, "float32", each), zero),
        *(_scales(builder, "float32", ()), _zero_points(builder, x.dtype, ())),
    ]
    if rng.random() < builder.style.rates.unlikely_input:
        ins.append(builder.ints([rng.between(-100, 100) for _ in range(features)], "int32"))
    return Instance(ins, attrs)


def _conv_relations(x: int, w: int) -> Any:
    def requires(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
        a, b = ins[x].shape, ins[w].shape
        return [a[1] == b[1] * attrs.get("group", 1), *(side >= 1 for side in _conv_sizes(a, b, attrs)[2:])]

    return requires


def quantised(name: str, sample: Sampler | None, infer: Any, bounds: Any, **more: Any) -> Operator:
    """An operator on scaled integers."""
    return Operator(name, sample, infer=infer, bounds=bounds, family="quantised", **more)


def _open_integer_conv(builder: OpenBuilder, x: Tensor) -> Instance:
    kernel, attrs = open_window(builder, x.rank - 2, False, True)
    other = "int8" if x.dtype == "int8" else builder.rng.choice(("uint8", "int8"))
    return Instance([x, builder.match(other, (builder.number(1, 16), x.shape[1], *kernel))], attrs)


def _one_for_all(ins: Ins, attrs: Mapping[str, Any]) -> bool:
    """A single scale or zero point may be a scalar or a vector; the type of the output may be given by an attribute."""
    return math.prod(ins[1].shape) == 1 or "output_dtype" in attrs


OPERATORS = (
    quantised(
        "QuantizeLinear",
        _quantize,
        _quantized,
        requires=_scales_fit,
        bounds=lambda ins, attrs: full(ins[2].dtype if len(ins) > 2 else "uint8"),
        dtypes=("float32", "float16", "bfloat16"),
        usual={1: POSITIVE},
        undefined=(nan_input,),
        unmodelled=_one_for_all,
        converts=True,
        scales=(1,),
        rounding=Rounding.COMPUTES,
    ),
    quantised(
        "DequantizeLinear",
        _dequantize,
        lambda ins, attrs: [(ins[1].dtype, ins[0].shape)],
        _dequantized_bounds,
        requires=_scales_fit,
        dtypes=("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4", "float8_e4m3fn", "float8_e5m2"),
        usual={1: POSITIVE},
        unmodelled=_one_for_all,
        converts=True,
        scales=(1,),
    ),
    quantised(
        "DynamicQuantizeLinear",
        None,
        _dynamic,
        lambda ins, attrs: [(0.0, 255.0), (0.0, max(ins[0].size, 1e-3)), (0.0, 255.0)],
        dtypes=("float32",),
        undefined=(nan_input, empty_range),
        symbolic=True,
        converts=True,
        rounding=Rounding.COMPUTES,
    ),
    quantised(
        "MatMulInteger",
        _integer_matmul,
        lambda ins, attrs: [("int32", _matrix_shape(ins[0].shape, ins[1].shape))],
        lambda ins, attrs: _integer_bounds(ins[0].shape[-1]),
        requires=_inner,
        ranks=(1, 4),
        symbolic=True,
        rank_ends=RankEnds.LEAST,
    ),
    quantised(
        "QLinearMatMul",
        _quantised_matmul,
        lambda ins, attrs: [(ins[7].dtype, _matrix_shape(ins[0].shape, ins[3].shape))],
        lambda ins, attrs: full(ins[7].dtype),
        requires=lambda ins, attrs: _inner((ins[0], ins[3]), attrs),
        ranks=(1, 4),
        dtypes=_BYTES,
        usual={1: POSITIVE, 4: POSITIVE, 6: POSITIVE},
        scales=(1, 4, 6),
        rounding=Rounding.REQUANTISES,
    ),
    quantised(
        "ConvInteger",
        _integer_conv,
        lambda ins, attrs: [("int32", _conv_sizes(ins[0].shape, ins[1].shape, attrs))],
        lambda ins, attrs: _integer_bounds(math.prod(ins[1].shape[1:])),
        requires=_conv_relations(0, 1),
        ranks=(3, 4),
        cost=_conv_cost,
        symbolic=_open_integer_conv,
        rank_ends=RankEnds.LEAST,
        size_rule=SizeRule.FILTERED,
    ),
    quantised(
        "QLinearConv",
        _quantised_conv,
        lambda ins, attrs: [(ins[7].dtype, _conv_sizes(ins[0].shape, ins[3].shape, attrs))],
        lambda ins, attrs: full(ins[7].dtype),
        requires=_conv_relations(0, 3),
        ranks=(3, 4),
        usual={1: POSITIVE, 4: POSITIVE, 6: POSITIVE},
        rank_ends=RankEnds.LEAST,
        scales=(1, 4, 6),
        rounding=Rounding.REQUANTISES,
    ),
)
