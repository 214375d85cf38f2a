"""Faults of onnxruntime's own operators that `opsieve learn` came upon, each as one node: beside a float64
evaluation, and with new memory filled in two ways.

    python benchmarks/learnt_faults.py [-t onnxruntime]

Of each instance that its operator's page allows: how far the result is from what the page says, and whether
results are the same when new memory holds zeros and when it holds large numbers. A pair that the page says is
equal is told as the second beside the first.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from opsieve.backends.probing.learning_session import FILLS
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

Array = np.ndarray[Any, Any]
Case = tuple[str, list[Array | None], int, dict[str, Any], Array | None]
_RNG = np.random.default_rng(1)


def _drawn(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def _attended(query: Array, key: Array, value: Array, past_key: Array, past_value: Array) -> Array:
    """Softmax(Q K^T / sqrt(size)) V in float64, keys and values [batch, heads, length, size] behind the
    past's.
    """
    batch, length, hidden = query.shape
    count = past_key.shape[1]
    q, k, v = (
        x.astype(float).reshape(batch, -1, count, hidden // count).swapaxes(1, 2) for x in (query, key, value)
    )
    k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    weights = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(hidden // count))
    made: Array = (weights / weights.sum(-1, keepdims=True)) @ v
    return made.swapaxes(1, 2).reshape(batch, length, hidden)


def _with_past(name: str, size: int, ends: list[Array | None], outputs: int, **attributes: int) -> Case:
    parts = [_drawn(1, 1, 2 * size) for _ in range(3)]
    past = [_drawn(1, 2, 3, size) for _ in range(2)]
    ins = [*parts, *past, *ends] if name == "GroupQueryAttention" else [*parts, None, None, None, *past]
    return name, ins, outputs, {"num_heads": 2, **attributes}, _attended(*parts, *past)


def cases() -> Mapping[str, Case]:
    """Instances by what is wrong with them, or, where nothing is, what they are beside."""
    seen: list[Array | None] = [np.array([3], np.int32), np.array([4], np.int32)]
    x, cos, sin = _drawn(1, 2, 16), _drawn(4, 4), _drawn(4, 4)
    at = np.array([[0, 1]], np.int64)
    one, partly = np.array([1], np.int64), {"num_heads": 2, "rotary_embedding_dim": 2}
    quarter = np.full((2, 3, 8), 3, np.uint8), np.full((2, 2, 8), 2, np.uint8)
    lstm = [_drawn(1, 1, 3), *quarter, None, None, _drawn(2, 1, 2), None, None]
    scale, zero = np.full((2, 8), 0.1, np.float32), np.ones((2, 8), np.uint8)
    both = {"hidden_size": 2, "direction": "bidirectional"}
    words, empty = np.ones((1, 6), np.int32), np.zeros((1, 6), np.int32)
    table = [_drawn(3, 1, 2, 4), _drawn(3), _drawn(5, 4)]
    return {
        "MultiHeadAttention, a past, all outputs": _with_past("MultiHeadAttention", 4, [], 3),
        "MultiHeadAttention, a past, no present outputs": _with_past("MultiHeadAttention", 4, [], 1),
        "GroupQueryAttention, a past, all outputs": _with_past("GroupQueryAttention", 16, seen, 3, kv_num_heads=2),
        "GroupQueryAttention, a past, no present outputs": _with_past("GroupQueryAttention", 16, seen, 1, kv_num_heads=2),
        "RotaryEmbedding, scale 1": ("RotaryEmbedding", [x, at, cos, sin], 1, {"num_heads": 2}, None),
        "RotaryEmbedding, scale 0.5": ("RotaryEmbedding", [x, at, cos, sin], 1, {"num_heads": 2, "scale": 0.5}, None),
        "RotaryEmbedding of 2 of 8, a cache of a column": ("RotaryEmbedding", [x, one, cos[:, :1], sin[:, :1]], 1, partly, None),
        "RotaryEmbedding of 2 of 8, a cache with its other columns": ("RotaryEmbedding", [x, one, cos, sin], 1, partly, None),
        "DynamicQuantizeLSTM, scales and zero points by column": ("DynamicQuantizeLSTM", [*lstm, scale, zero, scale, zero], 1, both, None),
        "DynamicQuantizeLSTM, the same zero points by direction": ("DynamicQuantizeLSTM", [*lstm, scale, zero[:, 0], scale, zero[:, 0]], 1, both, None),
        "WordConvEmbedding, a word": ("WordConvEmbedding", [words, *table], 1, {}, None),
        "WordConvEmbedding, a word without characters": ("WordConvEmbedding", [empty, *table], 1, {}, None),
    }  # fmt: skip


def _test(case: Case, fill: int) -> Test:
    name, ins, outputs, attributes, _ = case
    fed = {f"x{place}": each for place, each in enumerate(ins) if each is not None}
    names = ["" if each is None else f"x{place}" for place, each in enumerate(ins)]
    outs = [f"y{place}" for place in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(name, names, outs, domain="com.microsoft", **attributes)],
        "fault",
        [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for k, a in fed.items()
        ],
        [helper.make_empty_tensor_value_info(out) for out in outs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return Test(OnnxProgram(model.SerializeToString(), name), fed, as_is=True, fill=fill)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-t", "--target", default="onnxruntime")
    target, before = resolve(parser.parse_args().target), None
    with Workers() as workers:
        print(target.display, workers.version(target))
        for what, case in cases().items():
            seen = [
                answer.outputs
                for answer in workers.observe_many(target, [_test(case, fill) for fill in FILLS])
            ]
            if any(each is None for each in seen):
                print(f"{what}: refused")
                continue
            first, second = (each["y0"] for each in seen if each is not None)
            said = [
                (
                    "the same in any memory"
                    if np.array_equal(first, second, equal_nan=True)
                    else "HANGS ON MEMORY"
                )
            ]
            if case[-1] is not None:
                said.append(f"off by {np.abs(first - case[-1]).max():.1e}")
            elif before is not None and before[0] == case[0]:
                said.append(f"differs from the one above by {np.abs(first - before[1]).max():.1e}")
            print(f"{what}: {', '.join(said)}")
            before = (case[0], first)


if __name__ == "__main__":
    main()
