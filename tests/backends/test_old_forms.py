"""Operators as they were before opset 13: the reference against onnxruntime where it has a kernel, else
against what the page says.
"""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from opsieve.backends.reference import old_forms
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

ORT, FLOAT64 = resolve("onnxruntime:disable_all"), resolve("reference:float64")
DRAW = np.random.default_rng(5)
X = DRAW.normal(size=(2, 3, 4, 5)).astype(np.float32)
FOUR = {name: (DRAW.random(3) + 0.5).astype(np.float32) for name in ("scale", "bias", "mean", "var")}


def old(operator: str, opset: int, fed: dict[str, Any], outputs: int = 1, **attributes: Any) -> ModelProto:
    node = helper.make_node(operator, list(fed), [f"y{at}" for at in range(outputs)], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value)
            )
            for name, value in fed.items()
        ],
        [helper.make_empty_tensor_value_info("y0")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


KERNELS: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
    *((name, opset, {"x": X}, {"axis": axis} if axis is not None else {}) for name in ("Softmax", "LogSoftmax", "Hardmax") for opset in (7, 11, 12) for axis in (None, 0, 2, 3)),
    *(("BatchNormalization", opset, {"x": X, **FOUR}, {"epsilon": 0.01}) for opset in (7, 9, 12)),
    ("Clip", 7, {"x": X}, {"min": -0.5, "max": 0.5}), ("Clip", 6, {"x": X}, {"min": -0.5}),
    ("Clip", 11, {"x": X, "low": np.float32(-0.5)}, {}), ("Dropout", 7, {"x": X}, {"ratio": 0.3}),
    ("Dropout", 10, {"x": X}, {}), ("Dropout", 12, {"x": X}, {}),
    *(("ReduceSum", opset, {"x": X}, {"axes": [1, -1] if opset == 11 else [1], "keepdims": 0}) for opset in (7, 11)),
    *((name, 11, {"x": X}, {"axes": [0, 2]}) for name in ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceProd")),
    *((name, 12, {"x": X}, {"axes": [3]}) for name in ("ReduceMax", "ReduceMin", "ReduceSumSquare")),
    ("ReduceLogSum", 7, {"x": np.abs(X)}, {"axes": [3]}),
    *(("Squeeze", opset, {"x": X[:1]}, {"axes": [0]}) for opset in (7, 11)),
    *(("Unsqueeze", opset, {"x": X}, {"axes": [0, 4]}) for opset in (7, 11)),
    ("Slice", 7, {"x": X}, {"axes": [1, 3], "starts": [1, -3], "ends": [3, 99]}),
    ("Split", 7, {"x": X}, {"axis": 1, "split": [1, 2]}), ("Split", 11, {"x": X}, {"axis": 2}),
    *(("Pad", 7, {"x": X}, {"pads": [0, 0, 1, 2, 0, 0, 2, 1], "mode": mode}) for mode in ("constant", "edge", "reflect")),
    ("Upsample", 7, {"x": X}, {"scales": [1.0, 1.0, 2.0, 3.0]}),
    ("Upsample", 7, {"x": X}, {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}),
    ("Upsample", 9, {"x": X, "s": np.float32([1, 1, 2, 1.5])}, {}),
    ("Resize", 10, {"x": X, "s": np.float32([1, 1, 0.5, 1.5])}, {}),
    ("Resize", 10, {"x": X, "s": np.float32([1, 1, 2, 2])}, {"mode": "linear"}),
    ("TopK", 7, {"x": X}, {"k": 2, "axis": 1}),
    ("Gemm", 7, {"a": X[0, 0], "b": X[0, 1].T.copy(), "c": X[0, 0, 0, :4]}, {"alpha": 0.5}),
    ("PRelu", 7, {"x": X, "s": X[0, :, :1, :1].copy()}, {}), ("Max", 7, {"a": X, "b": -X}, {}),
    ("Mean", 7, {"a": X, "b": -2 * X}, {}),
    ("MaxPool", 7, {"x": X}, {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]}),
    ("AveragePool", 7, {"x": X}, {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}),
    ("ArgMax", 7, {"x": X}, {"axis": 1}),
    *(("DequantizeLinear", opset, {"x": np.arange(-6, 6, dtype=np.int8).reshape(3, 4), "s": np.float32([0.5, 2, 3]), "z": np.int8([0, 1, -2])}, {"axis": 0}) for opset in (13, 18)),
    ("DequantizeLinear", 10, {"x": np.arange(6, dtype=np.uint8), "s": np.float32(0.5), "z": np.uint8(3)}, {}),
    ("Pad", 2, {"x": X}, {"pads": [0, 0, -1, 2, 0, 0, 0, -1]}),
    ("Pad", 11, {"x": X, "p": np.array([0, 0, -1, 2, 0, 0, 0, -1])}, {"mode": "edge"}),
    ("Scatter", 9, {"x": X[0, 0], "i": np.array([[2, 0]]), "u": np.float32([[7, 8]])}, {"axis": 0}),
    ("OneHot", 9, {"i": np.array([1, 0, 2]), "d": np.array(3), "v": np.float32([0, 1])}, {}),
    ("Flatten", 7, {"x": X}, {"axis": 2}), ("LpNormalization", 7, {"x": X}, {"axis": 1, "p": 1}),
    ("InstanceNormalization", 7, {"x": X, "scale": FOUR["scale"], "bias": FOUR["bias"]}, {}),
    ("LSTM", 7, {"x": X[0], "w": X[:1, 0, :, :].repeat(2, 1).copy(), "r": X[:1, 1, :, :2].repeat(2, 1).copy()}, {"hidden_size": 2}),
]  # fmt: skip


def test_an_old_form_is_what_onnxruntime_has(workers: Workers) -> None:
    tests = []
    for operator, opset, fed, attributes in KERNELS:
        outputs = {"Split": 2, "TopK": 2}.get(operator, 1)
        tests.append(
            Test(OnnxProgram(old(operator, opset, fed, outputs, **attributes).SerializeToString()), fed)
        )
    seen = zip(KERNELS, workers.observe_many(ORT, tests), workers.observe_many(FLOAT64, tests), strict=True)
    for (operator, opset, *_), kernel, reference in seen:
        assert kernel.outputs is not None, (operator, opset, kernel.message)
        assert reference.outputs is not None, (operator, opset, reference.message)
        np.testing.assert_allclose(
            reference.outputs["y0"], kernel.outputs["y0"], rtol=1e-4, atol=1e-6, err_msg=f"{operator} {opset}"
        )


A, B = X, X[0, :, :, 0].copy()  # [3, 4] lies along the dimensions 1 and 2 of the first
PAGES: list[tuple[str, int, dict[str, Any], dict[str, Any], Any]] = [
    ("Add", 1, {"a": A, "b": B}, {"axis": 1, "broadcast": 1, "consumed_inputs": [0, 0]}, A + B[:, :, None]),
    ("Mul", 6, {"a": A, "b": X[0, 0, 0]}, {"broadcast": 1}, A * X[0, 0, 0]),
    ("Sub", 6, {"a": A, "b": FOUR["bias"]}, {"axis": 1, "broadcast": 1}, A - FOUR["bias"][:, None, None]),
    ("Div", 6, {"a": np.array([7, -7]), "b": np.array([2, 2])}, {}, [3, -3]),
    ("Pow", 1, {"a": np.abs(A), "b": np.float32(2)}, {"broadcast": 1}, A * A),
    ("Less", 1, {"a": A, "b": -A}, {}, A < -A),
    ("And", 1, {"a": A > 0, "b": A[:, :, :, 0] > 0}, {"axis": 0, "broadcast": 1}, (A > 0) & (A[:, :, :, :1] > 0)),
    ("Relu", 1, {"x": A}, {"consumed_inputs": [0]}, np.maximum(A, 0)),
    ("Sum", 1, {"a": A, "b": A}, {"consumed_inputs": [0, 0]}, 2 * A),
    ("Mean", 1, {"a": A, "b": A}, {"consumed_inputs": [0, 0]}, A),
    ("Reshape", 1, {"x": A}, {"shape": [0, -1], "consumed_inputs": [0]}, A.reshape(2, -1)),
    ("Clip", 1, {"x": A}, {"min": -0.5, "max": 0.5, "consumed_inputs": [0]}, A.clip(-0.5, 0.5)),
    ("Split", 1, {"x": A}, {"axis": 1, "split": [1, 2]}, A[:, :1]),
    ("Split", 1, {"x": A, "split": np.array([1, 2])}, {"axis": 1}, A[:, :1]),
    ("Tile", 1, {"x": A, "tiles": np.float32(2), "axis": np.float32(1)}, {}, np.concatenate([A, A], 1)),
    ("Gemm", 6, {"a": A[0, 0], "b": A[0, 1].T.copy(), "c": A[0, 0, :1, :4]}, {"broadcast": 1}, A[0, 0] @ A[0, 1].T + A[0, 0, :1, :4]),
    ("AveragePool", 1, {"x": A[:1, :1, :2, :2].copy()}, {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}, np.reshape([A[0, 0, 0, 0], A[0, 0, 0, :2].mean(), A[0, 0, :2, 0].mean(), A[0, 0, :2, :2].mean()], (1, 1, 2, 2))),
    ("Concat", 1, {"a": A, "b": A}, {}, np.concatenate([A, A], 1)),
    ("Cast", 1, {"x": A}, {"to": "INT32"}, A.astype(np.int32)),
    ("PRelu", 1, {"x": A, "s": FOUR["scale"]}, {}, np.where(A < 0, A * FOUR["scale"][:, None, None], A)),
    ("Dropout", 1, {"x": A}, {"is_test": 1, "ratio": 0.5, "consumed_inputs": [0]}, A),
    ("Upsample", 1, {"x": A}, {"height_scale": 2.0, "width_scale": 1.0}, A.repeat(2, 2)),
    ("Pad", 1, {"x": A}, {"paddings": [0, 0, 1, 0, 0, 0, 0, 0], "value": 2.0}, np.pad(A, [(0, 0), (0, 0), (1, 0), (0, 0)], constant_values=2)),
    ("BatchNormalization", 1, {"x": A, **FOUR}, {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1], "epsilon": 0.01}, FOUR["scale"][:, None, None] * (A - FOUR["mean"][:, None, None]) / np.sqrt(FOUR["var"][:, None, None] + 0.01) + FOUR["bias"][:, None, None],),
    ("BatchNormalization", 7, {"x": A[:, 0, 0, :3].copy(), **FOUR}, {"spatial": 0, "epsilon": 0.01}, FOUR["scale"] * (A[:, 0, 0, :3] - FOUR["mean"]) / np.sqrt(FOUR["var"] + 0.01) + FOUR["bias"],),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "opset", "fed", "attributes", "right"), PAGES)
def test_an_old_form_is_what_its_page_says(
    workers: Workers, operator: str, opset: int, fed: dict[str, Any], attributes: dict[str, Any], right: Any
) -> None:
    seen = workers.observe(
        FLOAT64, OnnxProgram(old(operator, opset, fed, **attributes).SerializeToString()), fed
    )
    assert seen.outputs is not None, seen.message
    np.testing.assert_allclose(seen.outputs["y0"], right, rtol=1e-6, atol=1e-6)


def test_operands_of_other_shapes_need_the_attribute(workers: Workers) -> None:
    fed = {"a": A, "b": X[0, 0, 0]}
    for operator, why in (("Add", "could not be broadcast"), ("Sum", "are not one")):
        seen = workers.observe(FLOAT64, OnnxProgram(old(operator, 6, fed).SerializeToString()), fed)
        assert seen.outcome == "error"
        assert why in seen.message


def test_a_scan_of_opset_8_goes_over_each_item_of_a_batch(workers: Workers) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "item"], ["sum"]), helper.make_node("Identity", ["sum"], ["out"])],
        "body",
        [helper.make_tensor_value_info(name, 1, [2]) for name in ("state", "item")],
        [helper.make_tensor_value_info(name, 1, [2]) for name in ("sum", "out")],
    )
    items = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    fed = {"lengths": np.array([3, 2]), "start": np.zeros((2, 2), np.float32), "items": items}
    proto = old("Scan", 8, fed, 2, num_scan_inputs=1, directions=[1], body=body)
    proto.graph.output.append(helper.make_empty_tensor_value_info("y1"))
    seen = workers.observe(FLOAT64, OnnxProgram(proto.SerializeToString()), fed)
    assert seen.outputs is not None, seen.message
    np.testing.assert_array_equal(seen.outputs["y0"], [items[0].sum(0), items[1, :2].sum(0)])
    np.testing.assert_array_equal(seen.outputs["y1"][1], [items[1, 1], items[1, 1] + items[1, 0], [0, 0]])


def test_a_model_without_opsets_is_of_the_first() -> None:
    assert old_forms.opset_of(ModelProto()) == 1
    assert old_forms.operators(old_forms.NEW) == ()
    assert {each.__name__ for each in old_forms.operators(12)} == {
        "DequantizeLinear",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
    }
