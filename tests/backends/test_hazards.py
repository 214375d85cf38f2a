"""Each rule of what ONNX leaves open, on values that meet it and on values that just do not."""

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from opsieve.backends.reference.hazards import disturb_value, nodes_reaching, open_results

NAN, INF = float("nan"), float("inf")


def rules(operator: str, inputs: list[Any], output: Any, **attributes: Any) -> list[str]:
    return [name for name, _ in open_results(operator, SimpleNamespace(**attributes), inputs, [output])]


def i32(*values: int) -> Any:
    return np.array(values, np.int32)


LOW = np.iinfo(np.int32).min

CASES = [
    ("Div", [i32(4), i32(0)], i32(0), "integer-division-by-zero"),
    ("Div", [i32(4), i32(2)], i32(2), None),
    ("Div", [np.float32([1]), np.float32([0])], np.float32([INF]), None),
    ("Mod", [i32(LOW), i32(-1)], i32(0), "integer-division-overflow"),
    ("Mod", [i32(LOW + 1), i32(-1)], i32(0), None),
    ("Cast", [np.float32([NAN])], i32(0), "cast-of-nan"),
    ("Cast", [np.float32([2.0**31])], i32(LOW), "cast-out-of-range"),
    ("Cast", [np.array([2.0**31 - 0.5])], i32(2**31 - 1), None),
    ("Cast", [np.array([-0.9])], np.array([0], np.uint8), None),
    ("Cast", [np.array([8.0])], np.array([0], ml_dtypes.int4), "cast-out-of-range"),
    ("Cast", [i32(300)], np.array([44], np.uint8), None),
    ("Cast", [np.float32([NAN])], np.array([True]), None),
    ("Cast", [np.float32([0.1])], np.array(["0.1"], object), "float-as-text"),
    ("BitShift", [np.uint8([1]), np.uint8([8])], np.uint8([0]), "shift-too-far"),
    ("BitShift", [np.uint8([1]), np.uint8([7])], np.uint8([128]), None),
    ("Add", [i32(2**31 - 1), i32(1)], i32(LOW), "integer-overflow"),
    ("Add", [np.uint8([255]), np.uint8([1])], np.uint8([0]), None),
    ("Mul", [np.int64([2**62]), np.int64([2])], np.int64([-(2**63)]), "integer-overflow"),
    ("Mul", [np.int64([2**62]), np.int64([1])], np.int64([2**62]), None),
    ("Neg", [i32(LOW)], i32(LOW), "integer-overflow"),
    ("Abs", [np.int8([-128])], np.int8([-128]), "integer-overflow"),
    ("ReduceSum", [i32(2**31 - 1, 1)], i32(LOW), "integer-overflow"),
    ("ReduceSum", [i32(5, 1)], i32(6), None),
    ("Pow", [i32(2), i32(-1)], i32(0), "negative-integer-power"),
    ("Pow", [i32(10), i32(10)], i32(1410065408), "integer-overflow"),
    ("Pow", [np.float32([-2]), np.float32([0.5])], np.float32([NAN]), None),
    ("Relu", [np.float32([NAN])], np.float32([NAN]), "nan-input"),
    ("Relu", [np.float32([INF])], np.float32([INF]), None),
    ("ArgMax", [np.float32([NAN, 1])], np.int64([0]), "nan-input"),
    ("Greater", [np.float32([1]), np.float32([NAN])], np.array([False]), "nan-input"),
    ("Clip", [np.float32([1]), np.float32(2), np.float32(1)], np.float32([1]), None),
    ("Softmax", [np.float32([INF, 0])], np.float32([NAN, NAN]), "softmax-of-infinity"),
    ("Softmax", [np.float32([-INF, -INF])], np.float32([NAN, NAN]), "softmax-of-infinity"),
    ("Softmax", [np.float32([-INF, 0])], np.float32([0, 1]), None),
    ("ScatterND", [np.zeros(3), np.array([[0], [-3]]), np.ones(2)], np.zeros(3), "duplicate-scatter"),
    ("ScatterND", [np.zeros(3), np.array([[0], [1]]), np.ones(2)], np.zeros(3), None),
    ("ScatterElements", [np.zeros(3), np.array([1, 1]), np.ones(2)], np.zeros(3), "duplicate-scatter"),
    ("RandomNormal", [], np.zeros(3), "random-operator"),
    ("Dropout", [np.ones(2), np.array(0.5), np.array(True)], np.ones(2), "random-operator"),
    ("Dropout", [np.ones(2), np.array(0.5), np.array(False)], np.ones(2), None),
    ("MatMul", [np.ones((1, 2000)), np.ones((2000, 1))], np.ones((1, 1)), "accumulation:2000"),
    ("MatMul", [np.ones((1, 20)), np.ones((20, 1))], np.ones((1, 1)), None),
    ("Conv", [np.ones((1, 128, 9)), np.ones((4, 128, 9))], np.ones((1, 4, 1)), "accumulation:1152"),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "inputs", "output", "rule"), CASES)
def test_rule(operator: str, inputs: list[Any], output: Any, rule: str | None) -> None:
    with np.errstate(all="ignore"):
        assert rules(operator, inputs, output) == ([rule] if rule else [])


def test_attributes_matter() -> None:
    scatter = [np.zeros(3), np.array([1, 1]), np.ones(2)]
    assert rules("ScatterElements", scatter, np.zeros(3), reduction="add") == []
    assert rules("TopK", [np.ones(2), np.array([1])], np.ones(1), sorted=0) == ["topk-unsorted"]
    assert rules("TopK", [np.ones(2), np.array([1])], np.ones(1), sorted=1) == []


def test_only_the_open_elements_are_disturbed() -> None:
    ((_, mask),) = open_results("Div", SimpleNamespace(), [i32(1, 2), i32(0, 1)], [i32(0, 2)])
    assert list(disturb_value(i32(0, 2), mask) == i32(0, 2)) == [False, True]


@given(
    st.sampled_from([np.float32, np.float64, np.int8, np.uint64, np.bool_, ml_dtypes.bfloat16]),
    st.integers(0, 100),
)
def test_a_disturbed_value_differs_everywhere_and_keeps_its_type(kind: Any, number: int) -> None:
    value = np.full(3, number).astype(kind)
    other = disturb_value(value, None)
    assert (other.dtype, other.shape) == (value.dtype, value.shape)
    assert (other != value).all()
    assert np.isfinite(disturb_value(np.array([NAN]), None)).all()


def test_reach_follows_uses_through_bodies() -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["b"], ["c"])],
        "t",
        [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["b"]),
            helper.make_node("Abs", ["x"], ["z"]),
            helper.make_node("If", ["p"], ["y"], then_branch=inner, else_branch=inner),
        ],
        "g",
        [],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in ("y", "z")],
    )
    assert nodes_reaching(graph) == {0: {"y"}, 1: {"z"}, 2: {"y"}}
