"""Mismatches behind operators that jump: excused when a rounding error explains them, not otherwise."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from in_process import InProcessLab
from onnx import ModelProto, TensorProto, helper, numpy_helper

from opsieve.backends.compare import POLICY
from opsieve.backends.judge.discontinuities import excuses
from opsieve.backends.judge.discontinuity_points import add_shifts, find_points, sever
from opsieve.backends.judge.integer_results import find_wrong_by_integers
from opsieve.backends.judge.oracles import FLOAT64, NATIVE
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.gen.irs.onnx.edits import tap_model
from opsieve.gen.irs.onnx.program import OnnxProgram

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741
Values = dict[str, Any]


def model(nodes: list[onnx.NodeProto], outputs: dict[str, int], **weights: Any) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F, None)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


class Candidate:
    """A compiler that adds an error to one tensor and is right about everything behind it."""

    def __init__(
        self, tensor: str, error: float, *, changes: bool = False, then: str = "", by: int = 1
    ) -> None:
        self.tensor, self.error, self.changes, self.then, self.by = tensor, error, changes, then, by
        self.lab = InProcessLab()

    def run(self, proto: ModelProto, feeds: Values) -> Values:
        cut = sever(proto, [self.tensor], [value.name for value in proto.graph.output])
        own = self.observe(NATIVE, tap_model(proto, [self.tensor]), feeds).outputs or {}
        moved = (own[self.tensor] + np.float32(self.error)).astype(own[self.tensor].dtype)
        outputs = self.observe(NATIVE, cut, {**feeds, self.tensor: moved}).outputs or {}
        if self.then in outputs:
            outputs[self.then] = outputs[self.then] + self.by
        return {name: value for name, value in outputs.items() if not name.endswith("__made")} | (
            {self.tensor: moved} if self.tensor in [v.name for v in proto.graph.output] else {}
        )

    def observe(self, target: Any, proto: ModelProto, feeds: Values) -> Observation:
        return self.lab.observe(target, OnnxProgram(proto.SerializeToString()), feeds)

    def excused(self, proto: ModelProto, feeds: Values, dtypes: dict[str, str]) -> tuple[str, ...]:
        got = self.run(proto, feeds)
        self.taps = 0

        def ask(who: str, changed: ModelProto, inputs: Values) -> Observation:
            if who == "candidate":
                self.taps += 1
                outputs = self.run(changed, inputs)
                if self.changes:
                    outputs = {
                        name: value * 0 if name in dtypes else value for name, value in outputs.items()
                    }
                return Observation("candidate", "", "ok", outputs=outputs)
            return self.observe({"native": NATIVE, "float64": FLOAT64}[who], changed, inputs)

        return excuses(proto, feeds, got, list(dtypes), dtypes, POLICY, ask)


FLOOR = model(
    [node("Sigmoid", "x", "s"), node("Floor", "s", "f"), node("Mul", "f k", "y")], {"y": F}, k=np.float32([7])
)
NEAR = {"x": np.float32([17.0])}  # its sigmoid is 1 - 4e-8: the floor of the float32 is 1 or 0


def test_a_floor_that_a_rounding_error_flips_is_excused_by_the_candidate_s_own_value() -> None:
    candidate = Candidate("s", 1e-7)
    assert candidate.excused(FLOOR, NEAR, {"y": "float32"}) == ("y",)
    assert candidate.taps == 1


def test_an_error_that_is_no_rounding_error_is_not_excused() -> None:
    assert Candidate("s", 0.3).excused(FLOOR, {"x": np.float32([1.0])}, {"y": "float32"}) == ()


def test_an_error_behind_the_jump_is_not_excused() -> None:
    assert Candidate("s", 1e-7, then="y").excused(FLOOR, NEAR, {"y": "float32"}) == ()


def test_a_cast_whose_type_the_caller_of_a_function_says_may_jump() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]> g (float[2] x) => (float[2] y) { z = Exp(x) y = local.f <to = 1> (z) }
        <opset_import: ["" : 21], domain: "local"> f <to> (a) => (b) { b = Cast <to: int = @to> (a) }"""
    assert find_points(onnx.parser.parse_model(text), ["y"]).names == ("z",)


SIGN = model(
    [node("Mul", "x k", "a"), node("Mul", "k x", "b"), node("Sub", "a b", "d"), node("Sign", "d", "y")],
    {"y": F},
    k=np.float32([0.7]),
)


def test_the_sign_of_what_should_cancel_is_excused_and_of_more_than_a_remainder_not() -> None:
    for changes in (False, True):
        assert Candidate("d", 1e-7, changes=changes).excused(
            SIGN, {"x": np.float32([0.9])}, {"y": "float32"}
        ) == ("y",)
        assert (
            Candidate("d", 1e-3, changes=changes).excused(SIGN, {"x": np.float32([0.9])}, {"y": "float32"})
            == ()
        )


def test_reach_serves_when_asking_for_more_changes_the_answer() -> None:
    assert Candidate("s", 1e-7, changes=True).excused(FLOOR, NEAR, {"y": "float32"}) == ("y",)
    assert Candidate("s", 0.3, changes=True).excused(FLOOR, {"x": np.float32([1.0])}, {"y": "float32"}) == ()
    for off in (1, -8):  # above the envelope from 0 to 7, and below it
        assert (
            Candidate("s", 1e-7, changes=True, then="y", by=off).excused(FLOOR, NEAR, {"y": "float32"}) == ()
        )


def test_an_index_between_near_ties_is_excused() -> None:
    proto = model([node("Exp", "x", "e"), node("ArgMax", "e", "y", axis=0, keepdims=0)], {"y": I})
    near = {"x": np.float32([1.0, 1.0, 0.0])}
    own = Candidate("e", 0.0)
    own.error = np.float32([0.0, 1e-6, 0.0])  # type: ignore[assignment]
    assert own.excused(proto, near, {"y": "int64"}) == ("y",)
    own.error = np.float32([0.0, 0.0, 9.0])  # type: ignore[assignment]
    assert own.excused(proto, near, {"y": "int64"}) == ()


@pytest.mark.parametrize("last", [20, 39])
def test_the_last_of_many_that_are_alike_is_excused(last: int) -> None:
    proto = model([node("Exp", "x", "e"), node("ArgMin", "e", "y", axis=0, keepdims=0)], {"y": I})
    alike = {"x": np.float32([*[1.0] * 40, 2.0])}
    own = Candidate("e", 0.0, changes=True)
    own.error = np.float32([-1e-6 * (place == last) for place in range(41)])  # type: ignore[assignment]
    assert own.excused(proto, alike, {"y": "int64"}) == ("y",)
    own.error = np.float32([*[0.0] * 40, -9.0])  # type: ignore[assignment]
    assert own.excused(proto, alike, {"y": "int64"}) == ()


def test_a_value_that_is_wrong_before_an_index_excuses_nothing_however_near_the_tie() -> None:
    proto = model([node("Exp", "x", "e"), node("ArgMax", "e", "y", axis=0, keepdims=0)], {"y": I})
    near = {"x": np.float32([0.0, 1.0, 1.00005])}
    wrong = Candidate("e", 0.0, changes=True)  # asked for more it computes otherwise, as a fusion does
    for error in (3e-3, 1.6e-4):  # beyond the screen; within it, and far from what the reference rounds away
        wrong.error = np.float32([0.0, error, 0.0])  # type: ignore[assignment]
        assert wrong.excused(proto, near, {"y": "int64"}) == ()
    wrong.error = np.float32([0.0, 3e-6, 0.0])  # type: ignore[assignment]
    tie = {"x": np.float32([0.0, 1.0, 1.0000001])}
    assert wrong.excused(proto, tie, {"y": "int64"}) == ("y",)


def test_quantisation_of_a_value_on_a_boundary_is_excused_by_reach() -> None:
    nodes = [
        node("Exp", "x", "e"),
        node("QuantizeLinear", "e s z", "q"),
        node("DequantizeLinear", "q s z", "y"),
    ]
    proto = model(nodes, {"y": F}, s=np.float32(0.25), z=np.uint8(0))
    boundary = {"x": np.log(np.float32([0.375, 3.0])).astype(np.float32)}
    # An honest error that crosses the boundary: one step of 0.25.
    assert Candidate("e", -1e-5).excused(proto, boundary, {"y": "float32"}) == ("y",)
    assert Candidate("e", 1.0).excused(proto, boundary, {"y": "float32"}) == ()


def test_exact_values_before_a_jump_leave_nothing_to_excuse() -> None:
    proto = model([node("Transpose", "x", "t"), node("ArgMax", "t", "y", axis=0)], {"y": I})
    assert find_points(proto, ["y"]).names == ()
    assert (
        find_points(
            model([node("Conv", "x w", "c"), node("MaxPool", "c", "y", kernel_shape=[2])], {"y": F}, w=1),
            ["y"],
        ).names
        == ()
    )


def test_only_jumps_on_the_way_to_the_output_count() -> None:
    nodes = [node("Exp", "x", "e"), node("Floor", "e", "f"), node("Sin", "x", "s"), node("Round", "s", "r")]
    found = find_points(model(nodes, {"f": F, "r": F}), ["r"])
    assert (found.names, found.decided) == (("s",), True)


def test_jumps_inside_bodies_and_functions_are_points_of_their_node() -> None:
    body = helper.make_graph(
        [node("Floor", "e", "b")], "b", [], [helper.make_tensor_value_info("b", F, None)]
    )
    nodes = [node("Exp", "x", "e"), node("If", "p", "y", then_branch=body, else_branch=body)]
    found = find_points(model(nodes, {"y": F}, p=True), ["y"])
    assert (found.names, found.decided) == (("e",), False)
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [node("Floor", "a", "b")], [helper.make_opsetid("", 21)]
    )
    proto = model([node("Exp", "x", "e"), node("F", "e", "y", domain="local")], {"y": F})
    proto.functions.append(function)
    assert find_points(proto, ["y"]).names == ("e",)


def test_a_cast_between_floats_is_no_jump() -> None:
    nodes = [
        node("Exp", "x", "e"),
        node("Cast", "e", "h", to=TensorProto.FLOAT16),
        node("Cast", "h", "y", to=I),
    ]
    assert find_points(model(nodes, {"y": I}), ["y"]).names == ("h",)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=6))
def test_surgery_keeps_the_meaning(values: list[float]) -> None:
    lab = InProcessLab()
    feeds = {"x": np.array(values, np.float32)}
    nodes = [node("Tanh", "x", "t"), node("Round", "t", "r"), node("Exp", "r", "e"), node("Floor", "e", "y")]
    proto = model(nodes, {"y": F, "t": F})

    def ask(changed: ModelProto, more: Values) -> Values:
        return lab.observe(FLOAT64, OnnxProgram(changed.SerializeToString()), {**feeds, **more}).outputs or {}

    plain = ask(tap_model(proto, ["t", "e"]), {})
    cut = ask(sever(proto, ["t", "e"], ["y"]), {"t": plain["t"], "e": plain["e"]})
    moved = ask(add_shifts(proto, ["t", "e"], ["y"]), {"t__shift": np.zeros(()), "e__shift": np.zeros(())})
    for other in (cut, moved):
        np.testing.assert_array_equal(other["y"], plain["y"])
        np.testing.assert_array_equal(other["t__made"], plain["t"])
        np.testing.assert_array_equal(other["e__made"], plain["e"])
    # and a value fed from outside is what its users see
    assert (ask(sever(proto, ["e"], ["y"]), {"e": plain["e"] + 1})["y"] == plain["y"] + 1).all()
    assert (ask(add_shifts(proto, ["e"], ["y"]), {"e__shift": np.ones(())})["y"] == plain["y"] + 1).all()


# -- integers that are scaled and rounded again


def requantised(scale: float) -> ModelProto:
    """x uint8[1,4] times the unit matrix, scaled by 0.1 * 0.5 / `scale`."""
    graph = helper.make_graph(
        [node("QLinearMatMul", "x as az w bs bz ys yz", "y")], "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 4])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in {"as": np.float32(0.1), "az": np.uint8(0), "w": np.eye(4, dtype=np.uint8), "bs": np.float32(0.5), "bz": np.uint8(0), "ys": np.float32(scale), "yz": np.uint8(0),}.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_tie_of_scaled_integers_falls_to_either_side() -> None:
    lab = InProcessLab()
    proto, feeds = requantised(0.5), {"x": np.uint8([[45, 44, 85, 200]])}

    def ask(who: str, asked: ModelProto, given: Values) -> Observation:
        target = {
            "candidate": "onnxruntime",
            "native": "reference",
            "float64": "reference:precision=float64",
        }[who]
        return lab.observe(resolve(target), OnnxProgram(asked.SerializeToString()), given)

    got = ask("candidate", proto, feeds).outputs or {}
    right = ask("float64", proto, feeds).outputs or {}
    assert (got["y"].tolist(), right["y"].tolist()) == ([[4, 4, 8, 20]], [[5, 4, 9, 20]])
    dtypes = {"y": "uint8"}
    assert excuses(proto, feeds, got, ["y"], dtypes, POLICY, ask) == ("y",)
    wrong = {"y": got["y"] + np.uint8([[0, 1, 0, 0]])}  # 4.4 is no tie
    assert excuses(proto, feeds, wrong, ["y"], dtypes, POLICY, ask) == ()


def test_how_many_values_are_not_zero_can_be_a_matter_of_rounding() -> None:
    proto = model([node("Sin", "x", "a"), node("NonZero", "a", "y")], {"y": I})
    feeds = {"x": np.float32([0, 1, 2])}
    assert Candidate("a", 1e-9).excused(proto, feeds, {"y": "int64"}) == ("y",)
    assert Candidate("a", 0.5).excused(proto, feeds, {"y": "int64"}) == ()


class FusesIntegers:
    """A compiler that takes a division of integers and the product behind it for nothing."""

    def __init__(self) -> None:
        self.lab = InProcessLab()

    def observe(self, who: str, proto: ModelProto, feeds: Values) -> Observation:
        target = {"candidate": NATIVE, "native": NATIVE, "float64": FLOAT64}[who]
        seen = self.lab.observe(target, OnnxProgram(proto.SerializeToString()), feeds)
        outputs = dict(seen.outputs or {})
        if who == "candidate" and "y" in outputs:
            cast = self.lab.observe(NATIVE, OnnxProgram(tap_model(proto, ["c"]).SerializeToString()), feeds)
            outputs["y"] = (cast.outputs or {})["c"]
            if "a" in outputs:  # asked for what goes into the cast, it computes otherwise
                outputs["y"] = outputs["y"] + 1
        return replace(seen, outputs=outputs)


def test_what_integers_alone_make_wrong_is_not_excused() -> None:
    nodes = [
        node("Mul", "x scale", "a"), node("Cast", "a", "c", to=I),
        node("Div", "c three", "d"), node("Mul", "d three", "y"),
    ]  # fmt: skip
    proto = model(nodes, {"y": I}, scale=np.float32(1.7), three=np.int64(3))
    # So large that rounding before the cast moves it by more than the division does.
    feeds = {"x": np.linspace(1e6, 9e6, 16).astype(np.float32)}
    compiler = FusesIntegers()
    got = compiler.observe("candidate", proto, feeds).outputs or {}
    excused = excuses(proto, feeds, got, ["y"], {"y": "int64"}, POLICY, compiler.observe)
    assert excused == ("y",)
    assert find_wrong_by_integers(proto, feeds, got, excused, compiler.observe) == {"y"}
    right = compiler.observe("native", proto, feeds).outputs or {}
    assert (
        find_wrong_by_integers(
            proto, feeds, right, excused, lambda _, *asked: compiler.observe("native", *asked)
        )
        == set()
    )
