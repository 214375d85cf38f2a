"""Activations, products and normalisations: random instances, one function an operator where one expression
does not do.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from contrib_instances.drawing import Instance, Rng, convolution, maybe, positive, shape, side, some, trimmed


def unary(rng: Rng) -> Instance:
    return Instance([3 * some(rng, *shape(rng))])


def fused_conv(rng: Rng) -> Instance:
    x, w, attributes = convolution(rng)
    chosen = [
        ("Relu", None),
        ("Sigmoid", None),
        ("Tanh", None),
        ("LeakyRelu", [0.1]),
        ("Clip", [-0.5, 0.5]),
        ("HardSigmoid", [0.2, 0.5]),
    ]
    name, params = chosen[int(rng.integers(len(chosen)))]
    attributes |= {"activation": name, **({"activation_params": params} if params else {})}
    return Instance(trimmed(some(rng, *x), some(rng, *w), maybe(rng, some(rng, w[0]))), attributes)


def matmul(rng: Rng, batched: bool = True) -> Instance:
    lead, (m, k, n) = shape(rng, 1, 2), (side(rng), side(rng), side(rng))
    ta, tb = (int(rng.random() < 0.5) for _ in range(2))
    attributes: dict[str, Any] = {"alpha": float(rng.normal()), "transA": ta, "transB": tb}
    a, b = some(rng, *lead, *((k, m) if ta else (m, k))), some(rng, *lead, *((n, k) if tb else (k, n)))
    if batched and rng.random() < 0.3:
        # the first axis of what is given becomes the last but one
        attributes |= {"transBatchA": 1, "transA": 0}
        a = np.moveaxis(some(rng, *lead, m, k), -2, 0).copy()
    return Instance([a, b], attributes)


def gemm(rng: Rng) -> Instance:
    m, k, n = side(rng), side(rng), side(rng)
    chosen: list[tuple[str, dict[str, float]]] = [
        ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2}),
        ("Elu", {"activation_alpha": 0.7}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}), ("Softplus", {}),
        ("Softsign", {}), ("ThresholdedRelu", {"activation_alpha": 0.3}),
        ("ScaledTanh", {"activation_alpha": 0.5, "activation_beta": 2.0}),
        ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}),
    ]  # fmt: skip
    name, params = chosen[int(rng.integers(len(chosen)))]
    attributes: dict[str, Any] = {"activation": name, "alpha": 0.5, "beta": 2.0, **params}
    return Instance(trimmed(some(rng, m, k), some(rng, k, n), maybe(rng, some(rng, n))), attributes)


def skip(rng: Rng, simple: bool = False) -> Instance:
    batch, length, width = side(rng), side(rng), 4 * side(rng)
    ins = [
        some(rng, batch, length, width),
        some(rng, *([batch] if simple or rng.random() < 0.7 else []), length, width),
        positive(rng, width),
    ]
    bias = maybe(rng, some(rng, width))
    more = [bias] if simple else [maybe(rng, some(rng, width)), bias]
    return Instance(trimmed(*ins, *more), {"epsilon": 1e-5}, 4, compared=(0, 3))


def embedded(rng: Rng) -> Instance:
    batch, length, width = side(rng), side(rng), 4 * side(rng)
    segments = rng.random() < 0.6
    mask = maybe(rng, (np.arange(length) < rng.integers(0, length + 1, (batch, 1))).astype(np.int32))
    ids = rng.integers(0, 7, (batch, length)).astype(np.int32)
    inputs = trimmed(
        ids, rng.integers(0, 2, (batch, length)).astype(np.int32) if segments else None, some(rng, 7, width),
        some(rng, length + 2, width), some(rng, 2, width) if segments else None, positive(rng, width),
        some(rng, width), mask,
        maybe(rng, rng.integers(0, length + 2, (batch, length)).astype(np.int32), 0.3),
    )  # fmt: skip
    return Instance(inputs, {"epsilon": 1e-5}, 3, compared=(0, 1, 2))


def gated_rms(rng: Rng) -> Instance:
    groups, width = side(rng), side(rng, 2)
    sides = (side(rng), side(rng), groups * width)
    return Instance(
        [some(rng, *sides), positive(rng, width), some(rng, *sides)],
        {"activation": ["silu", "swish", "sigmoid"][int(rng.integers(3))]},
    )


def gated_add(rng: Rng) -> Instance:
    sides = shape(rng, 2)
    return Instance([some(rng, *sides), some(rng, *sides), some(rng, *sides[:-1], 1)])


def branchwise(rng: Rng) -> Instance:
    lead, c, h = shape(rng, 1, 2), side(rng), side(rng, 2)
    flat = rng.random() < 0.5
    kinds = [(c * h,), (c, h), (h,)]
    gain = maybe(rng, positive(rng, *kinds[int(rng.integers(3))]), 0.8)
    return Instance(
        trimmed(some(rng, *lead, *((c * h,) if flat else (c, h))), gain), {"num_branches": c} if flat else {}
    )


def pre_mix(rng: Rng) -> Instance:
    lead, c, h = shape(rng, 1, 2), side(rng, 2), side(rng, 2)
    flat = rng.random() < 0.5
    gates = [(c,), (c, 1), (c, h)][int(rng.integers(3))]
    return Instance(
        [some(rng, *lead, *((c * h,) if flat else (c, h))), some(rng, *lead, *gates)],
        {"reduction_scale": 0.5, **({"num_branches": c} if flat else {})},
    )


def post_mix(rng: Rng) -> Instance:
    made = pre_mix(rng)
    streams, gates = made.inputs
    c = made.attributes.get("num_branches") or streams.shape[-2]
    lead = streams.shape[:-1] if made.attributes.get("num_branches") else streams.shape[:-2]
    h = streams.shape[-1] // c if made.attributes.get("num_branches") else streams.shape[-1]
    mix = maybe(rng, some(rng, *lead, c, c))
    attributes = {key: value for key, value in made.attributes.items() if key == "num_branches"}
    return Instance(trimmed(streams, some(rng, *lead, h), gates, mix), attributes)


def engram(rng: Rng) -> Instance:
    b, s, c, h = (side(rng) for _ in range(4))
    ins = [
        some(rng, b, s, c, h),
        some(rng, b, s, c, h),
        some(rng, b, s, h),
        positive(rng, c, h),
        positive(rng, c, h),
    ]
    last = rng.random() < 0.5
    return Instance([*ins, positive(rng, c, h)] if last else ins, {}, 2 if last else 1)


def decays(rng: Rng) -> Instance:
    b, t, h = (side(rng) for _ in range(3))
    both = rng.random() < 0.5
    return Instance(
        [some(rng, b, t, h), some(rng, h), -positive(rng, h), *([some(rng, b, t, h)] if both else [])],
        {},
        2 if both else 1,
    )


INSTANCES: Mapping[str, Callable[[Rng], Instance]] = {
    "Gelu": unary,
    "QuickGelu": lambda rng: Instance(unary(rng).inputs, {"alpha": float(rng.uniform(0.5, 2))}),
    "FastGelu": lambda rng: Instance(
        trimmed(x := some(rng, *shape(rng)), maybe(rng, some(rng, x.shape[-1])))
    ),
    "BiasGelu": lambda rng: Instance([x := some(rng, *shape(rng)), some(rng, x.shape[-1])]),
    "ScaledSiLU": lambda rng: Instance(
        trimmed(some(rng, *shape(rng)), maybe(rng, positive(rng))), {"alpha": 0.7}
    ),
    "FusedConv": fused_conv,
    "FusedGemm": gemm,
    "FusedMatMul": matmul,
    "TransposeMatMul": lambda rng: matmul(rng, False),
    "SkipLayerNormalization": skip,
    "SkipSimplifiedLayerNormalization": lambda rng: skip(rng, True),
    "SimplifiedLayerNormalization": lambda rng: Instance(
        [x := some(rng, *shape(rng)), positive(rng, x.shape[-1])], {"epsilon": 1e-5}
    ),
    "EmbedLayerNormalization": embedded,
    "GatedRMSNorm": gated_rms,
    "GatedAdd": gated_add,
    "BranchwiseRMSNorm": branchwise,
    "HyperConnectionPreMix": pre_mix,
    "HyperConnectionPostMix": post_mix,
    "EngramGate": engram,
    "LinearAttentionGate": decays,
}
