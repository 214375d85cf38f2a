"""Programs that were broken on purpose: what is reduced is that somebody runs them, or dies of them."""

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from onnx import TensorProto, helper

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, load, save
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.onnx.program import OnnxProgram, read_broken_mark
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_failure
from opsieve.tui.cli import SETTINGS
from opsieve.tui.commands.examine.reduce_command import command


def mixed() -> Case:
    """Nine nodes, one of which joins integers and floats: onnx's checker objects, its reference evaluator
    does not mind.
    """
    names = ["x", "a", "b", "c"]
    nodes = [
        helper.make_node(op, [names[at]], [names[at + 1]]) for at, op in enumerate(("Relu", "Abs", "Neg"))
    ]
    nodes += [helper.make_node("Concat", ["c", "k"], ["d"], axis=0), helper.make_node("Tanh", ["d"], ["y"])]
    nodes += [helper.make_node(op, ["b"], [name]) for op, name in (("Exp", "p"), ("Sigmoid", "q"))]
    nodes += [helper.make_node("Mul", ["p", "q"], ["r"]), helper.make_node("Sub", ["r", "p"], ["z"])]
    ins = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("k", TensorProto.INT64, [1, 3]),
    ]
    outs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3])
        for name, rows in (("y", 3), ("z", 2))
    ]
    graph = helper.make_graph(nodes, "disruptive Concat mixed-dtypes: T", ins, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    values = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "k": np.array([[1, 2, 3]])}
    return Case(OnnxProgram(model.SerializeToString()), values)


def reduced(case: Case, target: str, workers: Workers) -> Reduction:
    premise = find(case, [resolve(target)], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    return reduce_failure(OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners())


def test_an_invalid_program_that_is_run_is_reduced_to_its_fault(workers: Workers) -> None:
    result = reduced(mixed(), "fake", workers)
    assert [node.op_type for node in result.best.model.graph.node] == ["Concat"]
    assert str(read_broken_mark(result.best.model)) == "disruptive Concat mixed-dtypes: T"
    assert (result.same, result.minimal) == (True, True)
    premise = find(mixed(), [resolve("fake")], None, workers)
    assert premise.describe_level("fingerprint").endswith("; seen in 6 of 6 runs")
    small = OnnxProgram(result.best.model.SerializeToString())
    verdict = judge_program(small, result.best.inputs, resolve("fake"), ObservationCache(workers)).verdict
    assert (verdict.verdict, verdict.kind) == ("fail", "accepts-invalid")


def test_a_death_of_an_invalid_program_is_reduced(workers: Workers) -> None:
    result = reduced(mixed(), "fake:crash@Concat>Tanh", workers)
    assert [node.op_type for node in result.best.model.graph.node] == ["Concat", "Tanh"]
    assert (result.same, result.minimal) == (True, True)


def test_what_is_refused_as_it_should_be_is_not_reduced(tmp_path: Path) -> None:
    save(mixed(), tmp_path / "case")
    arguments = [str(tmp_path / "case"), "-t", "fake:error@Concat", "-o", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(command, arguments, standalone_mode=False, **SETTINGS)
    assert isinstance(done.exception, NoFailure)
    assert "correctly refuses the program" in str(done.exception)


def test_the_result_has_a_script_that_fails_while_the_program_is_accepted(tmp_path: Path) -> None:
    save(mixed(), tmp_path / "case")
    arguments = [str(tmp_path / "case"), "-t", "fake", "-o", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(command, arguments, standalone_mode=False, **SETTINGS)
    assert done.exception is None
    facts = json.loads(done.stdout)
    assert (facts["kind"], facts["nodes_after"], facts["same"]) == ("accepts-invalid", 1, True)
    assert read_broken_mark(load(tmp_path / "out").program.proto) is not None
    source = (tmp_path / "out" / "repro.py").read_text()
    for answer, wrong in (("return {}", True), ("raise RuntimeError('no')", False)):
        space: dict[str, object] = {"__name__": "repro"}
        altered = source.replace("def failure(", f"def run(*_): {answer}\n\n\ndef failure(")
        exec(compile(altered, "repro.py", "exec"), space)  # noqa: S102  written by the code under test
        assert bool(space["failure"]()) is wrong  # type: ignore[operator]
