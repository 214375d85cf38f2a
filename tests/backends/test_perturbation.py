"""What rounding can do to an output, and what it cannot."""

from typing import Any

import numpy as np
from in_process import InProcessLab
from onnx import ModelProto, TensorProto, helper, numpy_helper

from opsieve.backends.compare import POLICY
from opsieve.backends.judge.perturbation import measure_movements
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.gen.irs.onnx.program import OnnxProgram

H = TensorProto.FLOAT16
X = {"x": np.float16([3.1, 400.0, 0.7])}


def model(*nodes: tuple[str, str, str]) -> ModelProto:
    made = [helper.make_node(operator, inputs.split(), [output]) for operator, inputs, output in nodes]
    ends = [helper.make_tensor_value_info(name, H, [3]) for name in ("x", "y")]
    return helper.make_model(
        helper.make_graph(made, "g", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


def explained(proto: ModelProto, got: list[float], feeds: dict[str, Any] = X) -> bool:
    lab = InProcessLab()

    def ask(who: str, asked: ModelProto, given: dict[str, Any]) -> Observation:
        target = resolve({"native": "reference", "float64": "reference:float64"}[who])
        return lab.observe(target, OnnxProgram(asked.SerializeToString()), given)

    return measure_movements(proto, feeds, ["y"], POLICY, ask)["y"].is_explaining(np.float16(got), POLICY)


# The root of a square less itself by another way: 0 where both are rounded alike.
CANCELLING = model(("Mul", "x x", "s"), ("Sqrt", "s", "a"), ("Abs", "x", "b"), ("Sub", "a b", "y"))
PLAIN = model(("Mul", "x x", "s"), ("Sqrt", "s", "a"), ("Neg", "a", "y"))


def test_a_remainder_of_what_should_cancel_is_rounding() -> None:
    assert explained(CANCELLING, [0.002, 0.25, 0])


def test_more_than_rounding_can_leave_is_not() -> None:
    assert not explained(CANCELLING, [0.002, 40, 0])


def test_each_element_is_looked_at_by_itself() -> None:
    assert not explained(CANCELLING, [0.25, 0, 0])  # what 400 may leave, 3.1 may not


def test_a_well_conditioned_program_excuses_nothing() -> None:
    assert not explained(PLAIN, [-3.1, -440, -0.7])


def test_terms_that_cancel_within_an_operator_leave_a_remainder_of_the_largest() -> None:
    centred = model(("Sub", "x x", "z"), ("Add", "z x", "c"), ("CumSum", "c axis", "y"))
    centred.graph.initializer.append(numpy_helper.from_array(np.array(0), "axis"))
    feeds = {"x": np.float16([400.0, -400.0, 400.0])}
    assert explained(centred, [400, 2, 400], feeds)
    assert not explained(centred, [400, 40, 400], feeds)


def test_a_bounded_function_is_approximated_to_an_absolute_error() -> None:
    assert explained(
        model(("Sigmoid", "x", "s"), ("Neg", "s", "y")), [0, 0, 0], {"x": np.float16([-12, -13, -14])}
    )
    assert not explained(
        model(("Sigmoid", "x", "s"), ("Neg", "s", "y")), [0, 0, -0.1], {"x": np.float16([-12, -13, -14])}
    )
