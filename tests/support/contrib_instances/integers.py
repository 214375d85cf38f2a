"""Quantised operators: random instances, one function an operator where one expression does not do."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from contrib_instances.drawing import (
    Instance,
    Rng,
    byte,
    bytes_of,
    convolution,
    maybe,
    pool,
    positive,
    scale,
    shape,
    side,
    some,
    trimmed,
)


def quantised(rng: Rng, *, low: int = 1, **attributes: Any) -> Instance:
    kind = bytes_of(rng)
    x = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape(rng, low)).astype(kind)
    return Instance([x, scale(rng), byte(rng, kind), scale(rng), byte(rng, kind)], attributes)


def pair(rng: Rng) -> Instance:
    kind, sides = bytes_of(rng), shape(rng)
    a, b = byte(rng, kind, *sides), byte(rng, kind, *(sides if rng.random() < 0.5 else sides[-1:]))
    return Instance(
        [a, scale(rng), byte(rng, kind), b, scale(rng), byte(rng, kind), scale(rng), byte(rng, kind)]
    )


def qlinear_conv(rng: Rng) -> Instance:
    x, w, attributes = convolution(rng)
    kind = bytes_of(rng)
    attributes["channels_last"] = int(rng.random() < 0.3)
    data = byte(rng, kind, *x)
    if attributes["channels_last"]:
        data = np.moveaxis(data, 1, -1).copy()
    by_channel = rng.random() < 0.5
    bias = maybe(rng, rng.integers(-200, 200, w[0]).astype(np.int32))
    weights = byte(rng, kind, *w)
    zero = np.zeros((w[0],) if by_channel else (), kind)
    return Instance(
        trimmed(data, scale(rng), byte(rng, kind), weights, scale(rng, *([w[0]] if by_channel else [])), zero, scale(rng) * 5, byte(rng, kind), bias),
        attributes, constants=(3, 4, 5, 8),
    )  # fmt: skip


def qlinear_pool(rng: Rng) -> Instance:
    sides, attributes = pool(rng)
    kind = bytes_of(rng)
    attributes |= {"count_include_pad": int(rng.random() < 0.5), "channels_last": int(rng.random() < 0.3)}
    x = byte(rng, kind, *sides)
    if attributes["channels_last"]:
        x = np.moveaxis(x, 1, -1).copy()
    return Instance([x, scale(rng), byte(rng, kind), scale(rng), byte(rng, kind)], attributes)


def qlinear_global(rng: Rng) -> Instance:
    return Instance(quantised(rng, low=3).inputs, {"channels_last": int(rng.random() < 0.5)})


def qlinear_softmax(rng: Rng) -> Instance:
    made = quantised(rng)
    return Instance(
        [*made.inputs[:3], np.float32(1 / 256), made.inputs[4]],
        {"axis": -1 if rng.random() < 0.5 else 0, "opset": 12 + int(rng.random() < 0.5)},
    )


def qlinear_concat(rng: Rng) -> Instance:
    kind, sides = bytes_of(rng), shape(rng)
    axis = int(rng.integers(len(sides)))
    inputs: list[Any] = [scale(rng), byte(rng, kind)]
    for _ in range(side(rng, 1, 4)):
        inputs += [
            byte(rng, kind, *(side(rng) if at == axis else length for at, length in enumerate(sides))),
            scale(rng),
            byte(rng, kind),
        ]
    return Instance(
        inputs, {"axis": axis}, constants=tuple(at for at in range(len(inputs)) if at < 2 or at % 3 != 2)
    )


def qlinear_where(rng: Rng) -> Instance:
    kind, sides = bytes_of(rng), shape(rng)
    pairs = [(byte(rng, kind, *sides), scale(rng), byte(rng, kind)) for _ in range(2)]
    return Instance(
        [rng.random(sides) < 0.5, *pairs[0], *pairs[1], scale(rng), byte(rng, kind)],
        constants=(2, 3, 5, 6, 7, 8),
    )


def qgemm(rng: Rng) -> Instance:
    kind = bytes_of(rng)
    m, k, n = side(rng), side(rng), side(rng)
    turned = [int(rng.random() < 0.5) for _ in range(2)]
    a = byte(rng, kind, *((k, m) if turned[0] else (m, k)))
    b = byte(rng, kind, *((n, k) if turned[1] else (k, n)))
    c = maybe(rng, rng.integers(-500, 500, [(n,), (m, n), (1, n)][int(rng.integers(3))]).astype(np.int32))
    ends = [scale(rng) * 5, byte(rng, kind)] if rng.random() < 0.7 else [None, None]
    wide = [n] if rng.random() < 0.5 else []
    inputs = trimmed(a, scale(rng), byte(rng, kind), b, scale(rng, *wide), np.zeros(wide, kind), c, *ends)
    return Instance(
        inputs, {"transA": turned[0], "transB": turned[1], "alpha": 0.5 + float(rng.random() < 0.5)}
    )


def to_float(rng: Rng) -> Instance:
    kind, lead = bytes_of(rng), shape(rng, 0, 2)
    m, k, n = side(rng), side(rng), side(rng)
    wide = [n] if rng.random() < 0.5 else []
    zeros = [byte(rng, kind), byte(rng, kind, *wide)] if rng.random() < 0.5 else [None, None]
    bias = maybe(rng, some(rng, n))
    return Instance(
        trimmed(
            byte(rng, kind, *lead, m, k), byte(rng, kind, k, n), scale(rng), scale(rng, *wide), *zeros, bias
        )
    )


def dynamic_matmul(rng: Rng) -> Instance:
    kind, lead = bytes_of(rng), shape(rng, 0, 2)
    m, k, n = side(rng), side(rng), side(rng)
    wide = [n] if rng.random() < 0.5 else []
    inputs = trimmed(
        some(rng, *lead, m, k),
        byte(rng, kind, k, n),
        scale(rng, *wide),
        maybe(rng, byte(rng, kind, *wide)),
        maybe(rng, some(rng, n)),
    )
    return Instance(inputs)


def quantize(rng: Rng) -> Instance:
    kind = [np.uint8, np.int8, np.uint16, np.int16][int(rng.integers(4))]
    sides = shape(rng, 2)
    if rng.random() < 0.5:
        return Instance([3 * some(rng, *sides), scale(rng), byte(rng, kind)])
    axis = int(rng.integers(len(sides)))
    return Instance(
        [3 * some(rng, *sides), scale(rng, sides[axis]), byte(rng, kind, sides[axis])], {"axis": axis}
    )


def dequantize(rng: Rng) -> Instance:
    made = quantize(rng)
    kind, x = made.inputs[2].dtype, made.inputs[0]
    return Instance([byte(rng, kind, *x.shape), *made.inputs[1:]], made.attributes)


def quantised_embedded(rng: Rng) -> Instance:
    batch, length, width = side(rng), side(rng), 4 * side(rng)
    kind = bytes_of(rng)
    segments = rng.random() < 0.6
    mask = maybe(rng, (np.arange(length) < rng.integers(0, length + 1, (batch, 1))).astype(np.int32))
    tables = [
        byte(rng, kind, 7, width),
        byte(rng, kind, length, width),
        byte(rng, kind, 2, width) if segments else None,
        byte(rng, kind, width),
        byte(rng, kind, width),
    ]
    inputs = [
        rng.integers(0, 7, (batch, length)).astype(np.int32),
        rng.integers(0, 2, (batch, length)).astype(np.int32) if segments else None,
        *tables,
        mask,
    ]
    inputs += [None if table is None else scale(rng) for table in tables] + [
        None if table is None else byte(rng, kind) for table in tables
    ]
    return Instance(inputs, {"epsilon": 1e-5}, 2)


def nbits(rng: Rng) -> Instance:
    bits, block = [2, 4, 8][int(rng.integers(3))], 16 << int(rng.integers(2))
    k, n = side(rng, 1, 80), side(rng, 1, 12)
    blocks = -(-k // block)
    b = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    zeros = maybe(rng, rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8))
    bias = maybe(rng, some(rng, n), 0.3)
    inputs = trimmed(some(rng, *shape(rng, 1, 2), k), b, scale(rng, n, blocks), zeros, None, bias)
    return Instance(inputs, {"K": k, "N": n, "bits": bits, "block_size": block}, constants=(1, 2, 3))


def bnb4(rng: Rng) -> Instance:
    k, n, block = 16 * side(rng), 4 * side(rng), 16
    b = rng.integers(0, 256, (n * k // 2,)).astype(np.uint8)
    inputs = [some(rng, side(rng), k), b, positive(rng, -(-n * k // block))]
    return Instance(
        inputs, {"K": k, "N": n, "block_size": block, "quant_type": int(rng.random() < 0.5)}, constants=(1, 2)
    )


def gather_block(rng: Rng) -> Instance:
    rows, width, block = side(rng, 2), 16 * side(rng, 1, 4), 16
    indices = rng.integers(-rows, rows, shape(rng, 0, 2))
    attributes: dict[str, Any] = {"block_size": block, "gather_axis": 0, "quantize_axis": 1}
    form = int(rng.integers(3))
    blocks = -(-width // block)
    if form == 0:
        bits = [2, 4, 8][int(rng.integers(3))]
        data = rng.integers(0, 256, (rows, width * bits // 8)).astype(np.uint8)
        zeros = maybe(rng, rng.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8))
        attributes["bits"] = bits
    elif form == 1:
        kind: Any = ml_dtypes.int4 if rng.random() < 0.5 else ml_dtypes.uint4
        data = rng.integers(0, 8, (rows, width)).astype(kind)
        zeros = maybe(rng, rng.integers(0, 8, (rows, blocks)).astype(kind))
    else:
        data, zeros = some(rng, rows, width).astype(ml_dtypes.float8_e4m3fn), None
    return Instance(trimmed(data, indices, scale(rng, rows, blocks), zeros), attributes, constants=(0, 2, 3))


def moe(rng: Rng) -> Instance:
    rows, width, inner, experts = side(rng), 4 * side(rng), 4 * side(rng), side(rng, 2)
    kind = ["relu", "gelu", "silu", "identity", "swiglu"][int(rng.integers(5))]
    fused = 2 if kind == "swiglu" else 1
    attributes: dict[str, Any] = {
        "k": side(rng, 1, experts + 1),
        "activation_type": kind,
        "normalize_routing_weights": int(rng.random() < 0.5),
    }
    if kind == "swiglu":
        attributes |= {
            "swiglu_fusion": 1,
            "activation_alpha": 1.702,
            "activation_beta": 1.0,
            "swiglu_limit": 7.0,
        }
    inputs = [
        some(rng, rows, width), some(rng, rows, experts), some(rng, experts, fused * inner, width),
        maybe(rng, some(rng, experts, fused * inner)), some(rng, experts, width, inner),
        maybe(rng, some(rng, experts, width)),
    ]  # fmt: skip
    return Instance(trimmed(*inputs), attributes)


def quantised_moe(rng: Rng) -> Instance:
    rows, width, inner, experts = side(rng), 16 * side(rng, 1, 3), 16 * side(rng, 1, 3), side(rng, 2)
    bits = [4, 8][int(rng.integers(2))]
    attributes: dict[str, Any] = {
        "k": side(rng, 1, experts + 1), "activation_type": "swiglu", "swiglu_fusion": 1,
        "expert_weight_bits": bits, "weights_prepacked": 0,
        "normalize_routing_weights": int(rng.random() < 0.5), "activation_alpha": 1.702,
        "activation_beta": 1.0,
    }  # fmt: skip
    inputs = [
        some(rng, rows, width), some(rng, rows, experts),
        rng.integers(0, 256, (experts, 2 * inner, width * bits // 8)).astype(np.uint8),
        scale(rng, experts, 2 * inner) / 10, None,
        rng.integers(0, 256, (experts, width, inner * bits // 8)).astype(np.uint8),
        scale(rng, experts, width) / 10,
    ]  # fmt: skip
    return Instance(inputs, attributes, constants=(2, 3, 5, 6))


INSTANCES: Mapping[str, Callable[[Rng], Instance]] = {
    "QEmbedLayerNormalization": quantised_embedded,
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "QLinearAdd": pair,
    "QLinearMul": pair,
    "QLinearSigmoid": quantised,
    "QLinearLeakyRelu": lambda rng: quantised(rng, alpha=0.1),
    "QLinearSoftmax": qlinear_softmax,
    "QLinearGlobalAveragePool": qlinear_global,
    "QLinearAveragePool": qlinear_pool,
    "QLinearConcat": qlinear_concat,
    "QLinearWhere": qlinear_where,
    "QLinearConv": qlinear_conv,
    "QGemm": qgemm,
    "MatMulIntegerToFloat": to_float,
    "DynamicQuantizeMatMul": dynamic_matmul,
    "MatMulInteger16": lambda rng: Instance(
        [
            rng.integers(-99, 99, (3, k := side(rng))).astype(np.int16),
            rng.integers(-99, 99, (k, 4)).astype(np.int16),
        ]
    ),
    "MatMulNBits": nbits,
    "MatMulBnb4": bnb4,
    "GatherBlockQuantized": gather_block,
    "MoE": moe,
    "QMoE": quantised_moe,
}
