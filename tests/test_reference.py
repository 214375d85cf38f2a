"""The reference backend: native and in float64, fed by name, with the hazards that it meets."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opsieve.backends.protocol import Request
from opsieve.backends.reference import BACKEND, REFUSED

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, Any]],
    outputs: dict[str, tuple[int, Any]],
    opset: int = 21,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(proto: onnx.ModelProto, feeds: dict[str, Any], precision: str = "native") -> tuple[dict[str, Any], Request]:
    request = Request(proto.SerializeToString(), {"precision": precision}, feeds, lambda _: None)
    return BACKEND.prepare(request)(feeds), request


def test_float64_computes_what_float32_rounds_away() -> None:
    proto = model(
        [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Sub", ["s", "x"], ["z"])],
        {"x": (F, [1]), "y": (F, [1])},
        {"z": (F, [1])},
    )
    feeds = {"y": np.float32([1e-8]), "x": np.float32([1.0]), "not an input": np.ones(1)}
    native, wide = run(proto, feeds)[0]["z"], run(proto, feeds, "float64")[0]["z"]
    assert (native.dtype, native[0]) == (np.float32, 0.0)
    assert wide.dtype == np.float64
    assert wide[0] == pytest.approx(1e-8, rel=1e-6)


def test_scalars_stay_scalars() -> None:
    proto = model([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": (F, [2])}, {"y": (F, [])})
    for precision in ("native", "float64"):
        assert run(proto, {"x": np.float32([1, 2])}, precision)[0]["y"].shape == ()


def test_function_bodies_with_float32_constants_run_in_float64() -> None:
    proto = model(
        [helper.make_node("MeanVarianceNormalization", ["x"], ["y"])], {"x": (F, [1, 2, 2, 2])}, {"y": (F, None)}, 13
    )
    got = run(proto, {"x": np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)}, "float64")[0]["y"]
    assert got.dtype == np.float64
    assert got.std() == pytest.approx(1.0, abs=1e-3)


def test_sequences_and_absent_optionals() -> None:
    has = helper.make_node("OptionalHasElement", ["o"], ["p"])
    pack = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    optional = helper.make_tensor_type_proto(F, [2])
    graph = helper.make_graph(
        [has, pack],
        "g",
        [
            helper.make_value_info("o", helper.make_optional_type_proto(optional)),
            helper.make_tensor_value_info("x", F, [2]),
        ],
        [
            helper.make_tensor_value_info("p", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("s", F, None),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    values, _ = run(proto, {"x": np.float32([1, 2])}, "float64")
    assert not values["p"]
    assert [item.dtype for item in values["s"]] == [np.float64, np.float64]


@pytest.mark.parametrize(("shape", "trips"), [((), 3), ((2, 2), 3), ((2,), 0)])
def test_loop_stacks_its_scan_outputs(shape: tuple[int, ...], trips: int) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["x"], ["scan"])],
        "body",
        [helper.make_tensor_value_info("i", I, []), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("scan", F, shape)],
    )
    proto = model(
        [helper.make_node("Loop", ["n", ""], ["y"], body=body)], {"n": (I, []), "x": (F, shape)}, {"y": (F, None)}
    )
    got = run(proto, {"n": np.array(trips), "x": np.ones(shape, np.float32)})[0]["y"]
    assert got.shape == (trips, *shape)


@pytest.mark.parametrize("precision", ["native", "float64"])
def test_mean_broadcasts_its_first_input(precision: str) -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ab"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Mean", ["a", "b"], ["y"])], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    values, _ = run(model, {"a": np.float32([1, 3]), "b": np.float32([[1, 1], [3, 5]])}, precision)
    assert values["y"].tolist() == [[1, 2], [2, 4]]


def test_hazards_are_told_with_the_outputs_that_depend_on_them() -> None:
    nodes = [helper.make_node("Div", ["a", "b"], ["q"], name="divide"), helper.make_node("Add", ["a", "b"], ["s"])]
    proto = model(nodes, {"a": (I, [2]), "b": (I, [2])}, {"q": (I, [2]), "s": (I, [2])})
    _, request = run(proto, {"a": np.array([4, 4]), "b": np.array([2, 0])}, "float64")
    assert request.hazards == [
        {"rule": "integer-division-by-zero", "node": "divide", "operator": "Div", "outputs": ["q"]}
    ]
    assert run(proto, {"a": np.array([4, 4]), "b": np.array([2, 1])})[1].hazards == []


def test_a_guarded_division_is_no_hazard() -> None:
    zero = helper.make_node("Constant", [], ["zero"], value_int=0)
    nodes = [
        zero,
        helper.make_node("Equal", ["b", "zero"], ["is_zero"]),
        helper.make_node("Div", ["a", "b"], ["q"]),
        helper.make_node("Where", ["is_zero", "a", "q"], ["y"]),
    ]
    proto = model(nodes, {"a": (I, [2]), "b": (I, [2])}, {"y": (I, [2]), "q": (I, [2])})
    _, request = run(proto, {"a": np.array([4, 4]), "b": np.array([2, 0])})
    assert [hazard["outputs"] for hazard in request.hazards] == [["q"]]


def test_hazards_inside_bodies_count_for_their_node() -> None:
    body = helper.make_graph(
        [helper.make_node("Mod", ["a", "b"], ["m"])], "then", [], [helper.make_tensor_value_info("m", I, [1])]
    )
    node = helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=body)
    proto = model([node], {"p": (TensorProto.BOOL, []), "a": (I, [1]), "b": (I, [1])}, {"y": (I, [1])})
    _, request = run(proto, {"p": np.array(True), "a": np.array([5]), "b": np.array([0])})
    assert [(h["rule"], h["operator"], h["outputs"]) for h in request.hazards] == [
        ("integer-division-by-zero", "Mod", ["y"])
    ]


def test_the_checker_s_refusal_is_noted_and_the_model_runs_all_the_same() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"], unknown=1)], {"x": (F, [1])}, {"y": (F, [1])})
    request = Request(proto.SerializeToString(), {"precision": "native"}, {}, lambda _: None)
    assert BACKEND.prepare(request)({"x": np.float32([-1])})["y"] == [0.0]
    assert request.notes[0].startswith(REFUSED)


def test_what_an_exception_means() -> None:
    with pytest.raises(NotImplementedError) as lacking:
        run(
            model(
                [helper.make_node("Scatter", ["x", "i", "x"], ["y"])],
                {"x": (F, [1]), "i": (I, [1])},
                {"y": (F, [1])},
                9,
            ),
            {},
        )
    kind = f"{type(lacking.value).__module__}.{type(lacking.value).__qualname__}"
    assert BACKEND.classify("compile", kind, str(lacking.value)) == "unsupported"
    gather = model([helper.make_node("Gather", ["x", "i"], ["y"])], {"x": (F, [2]), "i": (I, [1])}, {"y": (F, [1])})
    with pytest.raises(IndexError) as outside:
        run(gather, {"x": np.float32([1, 2]), "i": np.array([7])})
    assert BACKEND.classify("run", "IndexError", str(outside.value)) == "rejected"
    assert BACKEND.classify("run", "ValueError", "anything") == "error"
