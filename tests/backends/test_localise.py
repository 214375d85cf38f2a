"""Disputes between a compiler and the reference alone, settled by the first operator that differs given equal
inputs.
"""

from typing import Any

import numpy as np
import pytest
from in_process import InProcessLab
from onnx import TensorProto, helper

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import FLOAT64, NATIVE
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.verdict import Verdict
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

SUBJECT, OTHER = resolve("tract"), resolve("openvino")
FEEDS = {"x": np.float32([0.25, 0.5])}


def program(*operators: str) -> OnnxProgram:
    names = ["x", *(f"v{place}" for place in range(len(operators)))]
    nodes = [
        helper.make_node(op, [a], [b]) for op, a, b in zip(operators, names[:-1], names[1:], strict=True)
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [2])], [value(names[-1], TensorProto.FLOAT, [2])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return OnnxProgram(model.SerializeToString())


class Compilers(InProcessLab):
    """Compilers that are the reference with an operator off by a factor, and `other`, which takes one
    operator at a time.
    """

    def __init__(self, **factors: tuple[str, float]) -> None:
        super().__init__()
        self.factors = factors

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        assert isinstance(program, OnnxProgram)
        if target == OTHER and len(program.proto.graph.node) > 1:
            return Observation("openvino", "", "unsupported", "compile", message="too much")
        who = target if target.name == "reference" else NATIVE
        operator, factor = self.factors.get("reference" if target == FLOAT64 else target.name, ("", 1.0))
        model = type(program.proto)()
        model.CopyFrom(program.proto)
        for node in list(model.graph.node):
            if node.op_type == operator:
                made, kind = node.output[0], TensorProto.DOUBLE if target == FLOAT64 else TensorProto.FLOAT
                node.output[0] = made + "_right"
                scale = helper.make_node(
                    "Constant", [], [made + "_by"], value=helper.make_tensor("f", kind, [], [factor])
                )
                place = list(model.graph.node).index(node)
                rest = [scale, helper.make_node("Mul", [made + "_right", made + "_by"], [made])]
                nodes = [*model.graph.node[: place + 1], *rest, *model.graph.node[place + 1 :]]
                copies = [type(each).FromString(each.SerializeToString()) for each in nodes]
                del model.graph.node[:]
                model.graph.node.extend(copies)
        return super().observe(who, OnnxProgram(model.SerializeToString()), inputs, fresh=fresh)


def verdict(lab: Compilers, *operators: str) -> Verdict:
    return judge_program(program(*operators), FEEDS, SUBJECT, lab, oracles=[OTHER]).verdict


def test_the_wrong_operator_is_named_when_somebody_confirms_it_alone() -> None:
    found = verdict(Compilers(tract=("Tanh", 1.01)), "Exp", "Tanh", "Neg")
    assert (found.verdict, found.kind, found.operator) == ("fail", "mismatch", "Tanh")
    assert "its Tanh differs given equal inputs" in found.reason


def test_a_reference_that_stands_alone_is_outvoted() -> None:
    found = verdict(Compilers(reference=("Tanh", 1.01)), "Exp", "Tanh", "Neg")
    assert (found.verdict, found.operator, found.rules) == ("pass", "Tanh", ("reference-outvoted",))


def test_an_operator_that_nobody_else_has_stays_undecided_and_is_named() -> None:
    lab = Compilers(tract=("Tanh", 1.01), openvino=("Tanh", 1.5))
    found = verdict(lab, "Exp", "Tanh", "Neg")
    assert (found.verdict, found.operator) == ("undecided", "Tanh")


def test_an_outvoted_reference_hides_no_wrong_operator_behind() -> None:
    lab = Compilers(reference=("Exp", 1.01), tract=("Tanh", 1.02))
    found = verdict(lab, "Exp", "Tanh", "Neg")
    assert (found.verdict, found.operator) == ("fail", "Tanh")


@pytest.mark.parametrize("operators", [("Tanh",), ("Exp", "Tanh")])
def test_a_program_of_few_operators_is_settled_as_well(operators: tuple[str, ...]) -> None:
    assert verdict(Compilers(tract=("Tanh", 1.01)), *operators).verdict == "fail"
    assert verdict(Compilers(reference=("Tanh", 1.01)), *operators).verdict == "pass"
