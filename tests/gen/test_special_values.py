"""Special values: which ones a type has, where they go and where they do not."""

import math

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from opsieve.gen.errors import BadInput
from opsieve.gen.model.tensors import graph_inputs, misfit
from opsieve.gen.values.values import KINDS, special_inputs, special_numbers, steering

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(nodes, inputs):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*info) for info in inputs],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_the_special_numbers_of_a_single():
    numbers = special_numbers("float32")
    assert numbers.dtype == np.float32
    assert len(numbers) == 12
    assert [math.copysign(1, number) for number in numbers[:2]] == [1, -1]
    assert numbers[2] == np.float32(2.0**-149)
    assert 0 < numbers[4] < np.finfo(np.float32).tiny
    assert numbers[5] == np.finfo(np.float32).max
    assert np.isnan(numbers).sum() == 1
    assert np.isinf(numbers).sum() == 2


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_kept_apart(kind):
    numbers = special_numbers("float64", (kind,))
    found = {
        "zeros": (numbers == 0).all(),
        "subnormals": (np.abs(numbers) < np.finfo(np.float64).tiny).all() and (numbers != 0).all(),
        "extremes": np.isfinite(numbers).all() and (np.abs(numbers) >= np.finfo(np.float64).tiny).all(),
        "nan": np.isnan(numbers).all(),
        "inf": np.isinf(numbers).all(),
    }
    assert found[kind]
    assert len(numbers)


@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"]
)
def test_what_a_narrow_type_lacks_is_left_out(dtype):
    wide = special_numbers(dtype).astype(np.float64)
    assert np.isinf(wide).any() == (dtype == "float8_e5m2")
    assert np.isnan(wide).any() == (dtype != "float4_e2m1fn")
    assert (wide == 0).any() == (dtype != "float8_e8m0fnu")


def test_integers_have_their_ends():
    assert special_numbers("int8").tolist() == [0, -128, 127]
    assert special_numbers("uint4").astype(np.int64).tolist() == [0, 0, 15]
    assert special_numbers("int8", ("nan",)).size == 0


def test_every_kind_is_met_and_most_elements_stay():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [100])])
    value = special_inputs(model, 1)["x"]
    assert np.isnan(value).any()
    assert np.isinf(value).any()
    assert (np.signbit(value) & (value == 0)).any()
    assert np.isfinite(value).sum() >= 75
    assert misfit(value, graph_inputs(model)["x"]) == ""
    assert value.tobytes() == special_inputs(model, 1)["x"].tobytes()
    assert value.tobytes() != special_inputs(model, 2)["x"].tobytes()


def test_indices_divisors_and_shapes_are_left_alone():
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"]),
        helper.make_node("Reshape", ["g", "s"], ["r"]),
        helper.make_node("Div", ["j", "k"], ["d"]),
        helper.make_node("Cast", ["d"], ["c"], to=FLOAT),
        helper.make_node("Add", ["r", "c"], ["y"]),
    ]
    inputs = [("x", FLOAT, ["n"]), ("i", INT64, [4]), ("s", INT64, [1]), ("j", INT64, [4]), ("k", INT64, [4])]
    model = model_of(nodes, inputs)
    given = {
        "x": np.ones(8, np.float32),
        "i": np.arange(4),
        "s": np.array([4]),
        "j": np.arange(4),
        "k": np.ones(4, np.int64),
    }
    made = special_inputs(model, 3, inputs=given)
    for name in ("i", "s", "k"):
        assert np.array_equal(made[name], given[name])
    assert not np.array_equal(made["x"], given["x"])
    assert np.iinfo(np.int64).max in made["j"]
    assert np.array_equal(given["x"], np.ones(8, np.float32))


def test_an_index_that_is_computed_keeps_its_values():
    """x is cast, y is added, on the way to the index; z is only data."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=INT64),
        helper.make_node("Add", ["i", "y"], ["j"]),
        helper.make_node("Gather", ["z", "j"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
    ]
    model = model_of(nodes, [("x", FLOAT, [4]), ("y", INT64, [4]), ("z", FLOAT, [40])])
    assert steering(model) == {"x", "y"}
    values = special_inputs(model, 0)
    assert np.isfinite(values["x"]).all()
    assert np.isnan(values["z"]).any()


def test_what_a_body_counts_with_keeps_its_values():
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on_"]), helper.make_node("Add", ["s", "s"], ["s_"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [8]),
        ],
        [
            helper.make_tensor_value_info("on_", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s_", FLOAT, [8]),
        ],
    )
    nodes = [
        helper.make_node("Add", ["n", "n"], ["m"]),
        helper.make_node("Loop", ["m", "", "x"], ["y"], body=body),
    ]
    model = model_of(nodes, [("n", INT64, []), ("x", FLOAT, [8])])
    assert steering(model) == {"n"}


def test_the_ends_of_the_widest_integers():
    assert special_numbers("uint64").tolist() == [0, 0, 2**64 - 1]
    assert special_numbers("int64").tolist() == [0, -(2**63), 2**63 - 1]


def test_a_wide_type_of_ml_dtypes():
    model = model_of([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], [("x", TensorProto.BFLOAT16, [40])])
    value = special_inputs(model, 0, ("inf",))["x"]
    assert value.dtype == ml_dtypes.bfloat16
    assert np.isinf(value.astype(np.float32)).sum() == 10


def test_an_unknown_kind_is_told():
    with pytest.raises(BadInput, match="'huge'; there are zeros"):
        special_inputs(model_of([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [2])]), 0, ("huge",))
