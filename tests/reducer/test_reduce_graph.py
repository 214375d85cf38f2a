"""Cuts are valid models whatever is kept; the order of distance, single steps on nodes, the order of
subjects, sameness.
"""

import random
from dataclasses import replace

import numpy as np
import onnx
from failing import host, program
from models import chain
from onnx import TensorProto, helper, numpy_helper

from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.verdict import Kind, Mismatch, Verdict
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.edits import cut
from opsieve.gen.irs.onnx.view import Graph, Subject, list_captured
from opsieve.reducer.nodes.localise import Hint, hint
from opsieve.reducer.oracle.target_test import other_builds
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.passes.onnx import BYPASS, NODES, OUTPUTS
from opsieve.reducer.problem.order import simpler, value_complexity
from opsieve.reducer.problem.recording import record_values
from opsieve.triage.fingerprint.sameness import make_failure


def subject(nodes: list[onnx.NodeProto], outputs: list[str], workers: Workers) -> Subject:
    start = Subject(program(nodes, outputs).proto, {"x": np.ones((2, 3), np.float32)}, {})
    return record_values(start, None, workers)


LINE = [("Abs", "x", "a"), ("Neg", "a", "b"), ("Exp", "b", "c"), ("Tanh", "c", "d")]


def line(workers: Workers, outputs: tuple[str, ...] = ("d",)) -> Subject:
    nodes = [helper.make_node(op, [source], [result], op.lower()) for op, source, result in LINE]
    return subject(nodes, list(outputs), workers)


def test_every_subset_of_nodes_is_a_valid_model_that_runs_to_the_recorded_values(workers: Workers) -> None:
    case = host(3, 60, [["Tanh", "Exp"]])
    start = record_values(Subject(case.program.proto, case.inputs, {}), None, workers)
    assert {name for node in start.model.graph.node for name in node.output} <= set(start.values)
    graph, validator, draw = Graph(start), OnnxValidator(workers, start), random.Random(0)
    pieces = [cut(graph, draw.sample(range(len(graph.nodes)), draw.randint(1, 60))) for _ in range(30)]
    assert all(piece is not None for piece in pieces)
    assert validator.complaints([piece for piece in pieces if piece]) == [""] * 30
    for piece in pieces[:5]:
        assert piece is not None
        answer = workers.observe(resolve("onnxruntime"), piece.program, piece.inputs)
        assert answer.outputs is not None
        for name, value in answer.outputs.items():
            np.testing.assert_allclose(value, start.values[name], rtol=1e-5)


def test_what_is_missing_becomes_an_input_and_what_is_unread_an_output(workers: Workers) -> None:
    piece = cut(Graph(line(workers)), [1, 2])
    assert piece is not None
    assert [info.name for info in piece.model.graph.input] == ["a"]
    assert [info.name for info in piece.model.graph.output] == ["c"]
    np.testing.assert_array_equal(piece.inputs["a"], np.ones((2, 3)))
    assert cut(replace_values(Graph(line(workers))), [2]) is None


def test_an_output_of_the_model_stays_as_declared_and_a_new_one_is_as_open(workers: Workers) -> None:
    """An output without a shape got that of its value, so that a checker refused what a run had shown."""
    start = line(workers, ("b", "d"))
    for info in start.model.graph.output:
        info.type.tensor_type.ClearField("shape")
    piece = cut(Graph(start), [0, 1, 2])
    assert piece is not None
    assert [info.name for info in piece.model.graph.output] == ["b", "c"]
    assert not any(info.type.tensor_type.HasField("shape") for info in piece.model.graph.output)


def replace_values(graph: Graph) -> Graph:
    return Graph(replace(graph.subject, values={}))


def test_small_constants_are_stored_and_large_ones_computed(workers: Workers) -> None:
    shape = numpy_helper.from_array(np.array([40, 40]), "shape")
    one = numpy_helper.from_array(np.array([1]), "one")
    nodes = [
        helper.make_node("Constant", [], ["shape"], value=shape),
        helper.make_node("Constant", [], ["one"], value=one),
        helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        helper.make_node("ConstantOfShape", ["one"], ["small"]),
        helper.make_node("ReduceMax", ["large"], ["m"], keepdims=0),
        helper.make_node("Add", ["x", "m"], ["s"]),
        helper.make_node("Mul", ["s", "small"], ["y"]),
    ]
    graph = Graph(subject(nodes, ["y"], workers))
    assert graph.constant == frozenset(range(5))
    piece = cut(graph, [6], closure=True)
    assert piece is not None
    assert [tensor.name for tensor in piece.model.graph.initializer] == ["small"]
    held = cut(graph, [4], closure=True)
    assert held is not None
    assert [node.op_type for node in held.model.graph.node] == ["Constant", "ConstantOfShape", "ReduceMax"]
    assert not held.inputs


def test_bodies_capture_names_of_the_graph_around_them() -> None:
    info = [helper.make_tensor_value_info("r", 1, [2])]
    then = helper.make_graph([helper.make_node("Add", ["outer", "k"], ["r"])], "t", [], info)
    then.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "k"))
    other = helper.make_graph([helper.make_node("Neg", ["another"], ["r"])], "e", [], info)
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    assert set(list_captured(node)) == {"c", "outer", "another"}


def test_producers_are_nearer_than_consumers(workers: Workers) -> None:
    graph = Graph(line(workers))
    assert graph.nearest([2], range(4)) == [2, 1, 0, 3]
    assert graph.nearest([2], [0, 2, 3]) == [2, 3, 0]


def test_names_in_a_message_come_before_operators(workers: Workers) -> None:
    graph = Graph(line(workers))
    assert hint(graph, "Node:'exp/SomeFusion/' failed") == Hint([2], True, [2])
    assert hint(graph, 'fused value ("b", "c") is wrong').exact is False  # one letter is no name
    found = hint(graph, "error in tanh_exp_fusion.cc TanhExpFusion::Apply")
    assert found.foci[0] in found.enough
    assert found.enough == [2, 3]
    assert hint(graph, "") == Hint([], False, [])


def test_single_steps_on_nodes(workers: Workers) -> None:
    start = line(workers, ("b", "d"))
    steps = {
        edit.label: edit.apply(start)
        for edit in (*NODES.edits(start), *OUTPUTS.edits(start), *BYPASS.edits(start))
    }
    shown = {label: operators(result) for label, result in steps.items() if result is not None}
    assert shown["drop output d"] == ["Abs", "Neg"]
    assert shown["drop output b"] == ["Abs", "Neg", "Exp", "Tanh"]
    assert shown["drop node 1 (Neg)"] == ["Abs", "Exp", "Tanh"]
    assert shown["bypass node 2 (Exp) by b"] == ["Abs", "Neg", "Tanh"]
    assert all(simpler(result, start) for result in steps.values() if result is not None)


def operators(piece: Subject) -> list[str]:
    return [node.op_type for node in piece.model.graph.node]


def test_the_order_is_total_and_begins_with_nodes(workers: Workers) -> None:
    whole = line(workers)
    part = cut(Graph(whole), [0])
    assert part is not None
    assert simpler(part, whole)
    assert not simpler(whole, part)
    assert not simpler(whole, whole)
    zeros, ones, mixed, odd = (np.array(item, np.float32) for item in ([0, 0], [1, 1], [0, 1], [0.3333, 7]))
    costs = [value_complexity(array) for array in (zeros, ones, mixed, odd)]
    assert costs[0] == 0
    assert costs == sorted(costs)
    assert costs[2] < costs[3]


def failing(kind: Kind, stage: str, message: str = "", what: str = "") -> tuple[Verdict, Observation]:
    mismatch = Mismatch("y", what) if what else None  # type: ignore[arg-type]
    outputs = {"y": np.zeros(1, np.float32)} if what else None
    outcome = "ok" if what else kind
    seen = Observation("onnxruntime", "1", outcome, stage, outputs, message=message)  # type: ignore[arg-type]
    return Verdict("fail", "", kind, seen.stage, message, mismatch=mismatch), seen


def test_what_counts_as_the_same_failure_at_each_level() -> None:
    verdict, seen = failing("error", "compile", "relu.cc:3 Relu::Apply bad type 11")
    failure = make_failure(verdict, seen, chain("Relu"))

    def levels(kind: Kind, stage: str, message: str = "", what: str = "") -> tuple[bool, bool]:
        other, observation = failing(kind, stage, message, what)
        return (
            failure.is_shown_by(other, observation, chain("Neg"), "loose"),
            failure.is_shown_by(other, observation, chain("Neg"), "fingerprint"),
        )

    assert levels("error", "compile", "relu.cc:3 Relu::Apply bad type 1") == (True, True)
    assert levels("error", "compile", "pad.cc:3 Pad::Apply negative") == (True, False)
    assert levels("error", "run", "relu.cc:3 Relu::Apply bad type 11") == (False, False)
    assert levels("crash", "compile") == (False, False)
    assert levels("mismatch", "run", "", "value") == (False, False)
    wrong, shown = failing("mismatch", "run", "", "shape")
    mismatch = make_failure(wrong, shown, chain("Relu"))
    value, got = failing("mismatch", "run", "", "value")
    assert not mismatch.is_shown_by(value, got, chain("Relu"), "loose")
    assert mismatch.is_shown_by(wrong, shown, chain("Neg", "Exp"), "fingerprint")


def test_other_builds_of_a_compiler_are_those_its_baseline_knows() -> None:
    names = [str(build) for build in other_builds(resolve("onnxruntime"))]
    assert names == [f"onnxruntime:level={level}" for level in ("layout", "extended", "basic", "disable_all")]
    assert other_builds(resolve("reference")) == ()


def test_a_model_with_large_weights_is_checked_by_their_types(workers: Workers) -> None:
    weights = numpy_helper.from_array(np.ones((600, 600), np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 600]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    start = Subject(model, {"x": np.ones((1, 600), np.float32)}, {})
    validator = OnnxValidator(workers, start)
    assert validator.strict
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    wrong.graph.initializer[0].dims[:] = [300, 1200]
    right, complaint = validator.complaints([start, replace(start, model=wrong)])
    assert right == ""
    assert "Incompatible" in complaint
