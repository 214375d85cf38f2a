"""Operators that move values, and operators on words: random instances, one function an operator where one
expression does not do.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from contrib_instances.drawing import Instance, Rng, byte, bytes_of, maybe, pool, shape, side, some, trimmed
from contrib_instances.floats import unary


def crop(rng: Rng) -> Instance:
    n, c, h, w = side(rng), side(rng), side(rng, 2), side(rng, 2)
    count = side(rng)
    boxes = np.sort(rng.uniform(-0.2, 1.2, (count, 2, 2)), axis=1).reshape(count, 4).astype(np.float32)
    attributes = {"mode": "bilinear" if rng.random() < 0.6 else "nearest", "extrapolation_value": 0.5}
    sizes = np.array([side(rng), side(rng)], np.int32)
    return Instance(
        [some(rng, n, c, h, w), boxes, rng.integers(0, n, count).astype(np.int32), sizes], attributes
    )


def grid(rng: Rng) -> Instance:
    n = side(rng)
    attributes = {
        "mode": ["bilinear", "nearest", "bicubic"][int(rng.integers(3))],
        "padding_mode": ["zeros", "border", "reflection"][int(rng.integers(3))],
    }
    points = rng.uniform(-1.3, 1.3, (n, side(rng), side(rng), 2)).astype(np.float32)
    return Instance(
        [some(rng, n, side(rng), side(rng, 2), side(rng, 2)), points],
        {**attributes, "align_corners": int(rng.random() < 0.5)},
    )


def gather_nd(rng: Rng) -> Instance:
    sides = shape(rng, 1, 4)
    depth = side(rng, 1, len(sides) + 1)
    indices = np.stack(
        [rng.integers(0, length, shape(np.random.default_rng(3), 1, 2)) for length in sides[:depth]], axis=-1
    )
    return Instance([some(rng, *sides), indices])


def pads(rng: Rng) -> Instance:
    sides = shape(rng, 1, 4)
    mode = ["constant", "edge", "reflect"][int(rng.integers(3))]
    most = 3 if mode != "reflect" else min(sides)
    amounts = rng.integers(0, max(most, 1), 2 * len(sides))
    return Instance(
        trimmed(some(rng, *sides), amounts, maybe(rng, np.float32(2.5)) if mode == "constant" else None),
        {"mode": mode},
    )


def unfold(rng: Rng) -> Instance:
    sides = shape(rng, 1, 3)
    dim = int(rng.integers(len(sides)))
    return Instance(
        [some(rng, *sides)], {"dim": dim, "size": side(rng, 1, sides[dim] + 1), "step": side(rng, 1, 3)}
    )


def max_pool(rng: Rng) -> Instance:
    sides, attributes = pool(rng)
    return Instance([np.moveaxis(byte(rng, bytes_of(rng), *sides), 1, -1).copy()], attributes)


def conv_transpose(rng: Rng) -> Instance:
    c, out, kernel = side(rng), side(rng), [side(rng, 1, 4), side(rng, 1, 4)]
    amounts = np.array([int(rng.integers(0, (k + 1) // 2)) for k in kernel * 2])
    inputs = trimmed(
        some(rng, side(rng), c, side(rng, 3), side(rng, 3)),
        some(rng, c, out, *kernel),
        amounts,
        maybe(rng, some(rng, out)),
    )
    return Instance(inputs, {"kernel_shape": kernel, "strides": [side(rng, 1, 3) for _ in range(2)]})


def causal_conv(rng: Rng) -> Instance:
    b, c, length, k = side(rng), side(rng), side(rng), side(rng, 2)
    dilation = side(rng, 1, 3)
    inputs = trimmed(
        some(rng, b, c, length),
        some(rng, c, 1, k),
        maybe(rng, some(rng, c)),
        maybe(rng, some(rng, b, c, (k - 1) * dilation)),
    )
    return Instance(inputs, {"activation": ["silu", "none"][int(rng.integers(2))], "dilation": dilation}, 2)


def tokenized(rng: Rng) -> Instance:
    words = ["hello world", "a,b;c", "onnx  runtime", "", "x", "l'été, 12"]
    x = np.array([words[int(rng.integers(len(words)))] for _ in range(side(rng))], object)
    x = x.reshape(1, -1) if rng.random() < 0.5 else x
    attributes: dict[str, Any] = {
        "mark": int(rng.random() < 0.5),
        "mincharnum": side(rng, 1, 3),
        "pad_value": "#",
    }
    forms: list[dict[str, Any]] = [
        {"separators": [" ", ","]},
        {"separators": [""]},
        {"tokenexp": "[a-z]+"},
        {"tokenexp": "."},
        {"separators": ["[ ;,]+"]},
    ]
    return Instance([x], attributes | forms[int(rng.integers(len(forms)))])


def hashed(rng: Rng) -> Instance:
    kind = int(rng.integers(5))
    x: Any = (
        np.array(["abc", "", "hello", "αβ"], object)
        if kind == 0
        else rng.integers(0, 1 << 31, shape(rng)).astype([np.int32, np.uint32, np.int64, np.uint64][kind - 1])
    )
    return Instance([x], {"positive": int(rng.random() < 0.5), "seed": int(rng.integers(0, 1000))})


def no_repeats(rng: Rng) -> Instance:
    b, length, words = side(rng), side(rng, 3, 12), side(rng, 2, 5)
    return Instance(
        [rng.integers(0, words, (b, length)), some(rng, b, words)], {"ngram_size": side(rng, 1, 4)}
    )


def ngram_hashes(rng: Rng) -> Instance:
    b, length, order, count = side(rng), side(rng), side(rng, 2, 5), side(rng, 1, 4)
    ids = rng.integers(0, 5, (b, length))
    past = maybe(rng, rng.integers(0, 5, (b, order - 1)))
    heads = (order - 1) * count
    end = maybe(rng, np.array(2, np.int64))
    segments = maybe(rng, np.sort(rng.integers(0, 3, (b, length)), axis=1).astype(np.int32), 0.3)
    inputs = trimmed(
        ids,
        2 * rng.integers(0, 1 << 20, order) + 1,
        rng.integers(3, 50, heads),
        past,
        maybe(rng, rng.integers(0, 99, heads)),
        end,
        segments,
    )
    return Instance(
        inputs,
        {
            "max_ngram_size": order,
            "n_head_per_ngram": count,
            "pad_id": 1,
            "reset_on_eos": int(rng.random() < 0.5),
        },
        2,
    )


def packed_ngram_hashes(rng: Rng) -> Instance:
    lengths, order, count = [side(rng) for _ in range(side(rng))], side(rng, 2, 5), side(rng, 1, 4)
    total, heads, segmented = sum(lengths), (order - 1) * count, rng.random() < 0.5
    # the output of states stands behind one that is there with segments alone
    capacity = int(rng.integers(0, 4)) if segmented else 0
    inputs = trimmed(
        rng.integers(0, 5, total),
        2 * rng.integers(0, 1 << 20, order) + 1,
        rng.integers(3, 50, heads),
        np.cumsum([0, *lengths]).astype(np.int32),
        maybe(rng, rng.integers(0, 5, (len(lengths), order - 1)), 1.0 if segmented else 0.5),
        maybe(rng, rng.integers(0, 99, heads)),
        maybe(rng, np.array(2, np.int64)),
        np.sort(rng.integers(0, 3, total)).astype(np.int32) if segmented else None,
        rng.integers(0, 2, (len(lengths), order - 1)).astype(np.int32) if segmented else None,
        rng.integers(0, 5, len(lengths)).astype(np.int32) if capacity else None,
    )
    attributes = {
        "max_ngram_size": order,
        "n_head_per_ngram": count,
        "pad_id": 1,
        "reset_on_eos": int(rng.random() < 0.5),
    }
    if capacity:
        return Instance(inputs, attributes | {"state_update_capacity": capacity}, 4)
    return Instance(inputs, attributes, 3 if segmented else 2)


def bifurcation(rng: Rng) -> Instance:
    source, current = rng.integers(0, 6, side(rng, 3, 12)), rng.integers(0, 6, side(rng, 1, 6))
    return Instance(
        trimmed(source, current, np.array(0, np.int64), maybe(rng, rng.integers(0, 6, len(source) + 1))),
        {},
        2,
    )


def word_embedding(rng: Rng) -> Instance:
    words, length, filters, width, size = side(rng), side(rng, 3, 8), side(rng), side(rng, 1, 4), side(rng)
    x = rng.integers(1, 9, (words, length)).astype(np.int32)
    for row, count in enumerate(rng.integers(1, length + 1, words)):
        x[row, count:] = 0
    return Instance([x, some(rng, filters, 1, width, size), some(rng, filters), some(rng, 9, size)])


def ranged(rng: Rng) -> Instance:
    kind = [np.int32, np.int64, np.float32, np.int16][int(rng.integers(4))]
    start, count, step = int(rng.integers(-9, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 4))
    values = [start, start + count * step, step]
    return Instance([np.array(value, kind) for value in (values if rng.random() < 0.7 else values[:2])])


def invertible(rng: Rng) -> Instance:
    lead, n = shape(rng, 0, 2), side(rng)
    return Instance([some(rng, *lead, n, n) + 4 * np.eye(n, dtype=np.float32)])


INSTANCES: Mapping[str, Callable[[Rng], Instance]] = {
    "ExpandDims": lambda rng: Instance(
        [x := some(rng, *shape(rng)), np.array(rng.integers(-x.ndim - 1, x.ndim + 1), np.int32)]
    ),
    "SampleOp": unary,
    "GatherND": gather_nd,
    "Unique": lambda rng: Instance([rng.integers(0, 5, side(rng, 1, 12)).astype(np.float32)], {}, 3),
    "Trilu": lambda rng: Instance(
        trimmed(some(rng, *shape(rng, 2)), maybe(rng, np.array(rng.integers(-3, 4)))),
        {"upper": int(rng.random() < 0.5)},
    ),
    "Pad": pads,
    "Range": ranged,
    "UnfoldTensor": unfold,
    "CropAndResize": crop,
    "GridSample": grid,
    "Inverse": invertible,
    "CDist": lambda rng: Instance(
        [some(rng, 3, k := side(rng)), some(rng, 4, k)],
        {"metric": ["euclidean", "sqeuclidean"][int(rng.random() < 0.5)]},
    ),
    "DynamicTimeWarping": lambda rng: Instance([some(rng, side(rng, 1, 9), side(rng, 1, 9)) ** 2]),
    "NhwcMaxPool": max_pool,
    "ConvTransposeWithDynamicPads": conv_transpose,
    "CausalConvWithState": causal_conv,
    "Tokenizer": tokenized,
    "MurmurHash3": hashed,
    "NGramRepeatBlock": no_repeats,
    "NGramHashMapping": ngram_hashes,
    "VarlenNGramHashMapping": packed_ngram_hashes,
    "BifurcationDetector": bifurcation,
    "WordConvEmbedding": word_embedding,
}
