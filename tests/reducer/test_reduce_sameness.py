"""What a reduction must not end in: another failure, values that ONNX defines nothing for; and failures that
show sometimes.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from failing import host
from models import program
from slow_params import keep_quick

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, save
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle import premise_test
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.premise_test import confirmed_by_judge, interestingness_of
from opsieve.reducer.oracle.target_test import TargetTest, finite
from opsieve.reducer.sessions import reduction
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_failure
from opsieve.triage.fingerprint.sameness import Level
from opsieve.tui.cli import SETTINGS
from opsieve.tui.commands.examine.reduce_command import command


def reduced(case: Case, target: str, workers: Workers, level: Level = "fingerprint") -> Reduction:
    premise = find(case, [resolve(target)], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    return reduce_failure(OnnxReduction(), start, premise, [workers], level, Journal(""), Listeners())


def test_scales_stay_positive(workers: Workers) -> None:
    text = """g (float[2, 3] x, float s) => (float[2, 3] y) <float k = {0.25}, uint8 p = {3}>
        { a = Neg(x)  q = QuantizeLinear(a, s, p)  d = DequantizeLinear(q, k, p)  y = Exp(d) }"""
    value = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    case = Case(program(text, opset=21, ir=10), {"x": value, "s": np.array(0.125, np.float32)})
    result = reduced(case, "fake:crash@QuantizeLinear>DequantizeLinear", workers)
    assert [node.op_type for node in result.best.model.graph.node] == ["QuantizeLinear", "DequantizeLinear"]
    scales = [item for item in result.best.inputs.values() if np.asarray(item).dtype == np.float32]
    scales += [
        onnx.numpy_helper.to_array(tensor)
        for tensor in result.best.model.graph.initializer
        if any(tensor.name == node.input[1] for node in result.best.model.graph.node)
    ]
    assert scales
    assert all((np.asarray(item) > 0).all() for item in scales if np.asarray(item).ndim == 0)
    assert result.minimal


LOG = """g (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1.5, 2.5, 3.5}>
    { a = Abs(x)  b = Log(w)  c = Add(a, b)  y = Neg(c) }"""


def test_right_outputs_stay_finite(workers: Workers) -> None:
    value = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
    result = reduced(Case(program(LOG), {"x": value}), "fake:wrong@Log", workers)
    right = workers.observe(resolve("reference"), result.best.program, result.best.inputs)
    assert right.outputs is not None
    assert finite(right.outputs.values())
    assert result.same
    assert not result.judged, "the judge had to bring it back"


def test_infinity_is_no_step_from_a_finite_failure_and_all_there_is_of_an_infinite_one(
    workers: Workers,
) -> None:
    value = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
    fed = {"x": value}
    plain, broken = program(LOG).proto, program(LOG.replace("3.5", "0")).proto  # Log(0) is -inf
    premise = find(Case(program(LOG), fed), [resolve("fake:wrong@Log")], None, workers)
    check = interestingness_of(premise, workers, "fingerprint", Subject(plain, fed, {}))
    answers = list(check.evaluate([Subject(plain, fed, {}), Subject(broken, fed, {})]))
    assert [answer.kind for answer in answers] == ["same", "gone"]
    assert "infinity" in answers[1].why
    check = interestingness_of(replace(premise, right=None), workers, "fingerprint", Subject(broken, fed, {}))
    assert next(iter(check.evaluate([Subject(broken, fed, {})]))).kind == "same"


def test_a_division_by_zero_that_would_be_plainer_is_taken_back(workers: Workers) -> None:
    text = """g (int32[4] x) => (int32[4] y) <int32[4] w = {3, 2, 5, 7}> { a = Abs(x)  b = Div(a, w)  y = Neg(b) }"""
    case = Case(program(text), {"x": np.array([9, 20, 31, 42], np.int32)})
    result = reduced(case, "fake:wrong@Div", workers)
    assert [node.op_type for node in result.best.model.graph.node] == ["Div"]
    assert result.same
    assert result.minimal


def test_when_the_judge_loses_the_failure_the_last_good_step_is_reduced_on(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = host(3, 30, [["Tanh", "Exp"]])
    asked: list[int] = []

    def judge(subject: Subject, premise: Premise, workers: Workers) -> bool:
        asked.append(len(subject.model.graph.node))
        return len(subject.model.graph.node) > 2  # a judge who does not believe in the smallest

    for module in (reduction, premise_test):
        monkeypatch.setattr(module, "still", judge)
    result = reduced(case, "fake:crash@Tanh>Exp", workers)
    assert result.same
    assert result.judged
    assert len(result.best.model.graph.node) == 3
    assert asked[0] == 2


def test_the_judge_confirms_a_batch_on_the_target_that_runs_it(workers: Workers) -> None:
    case = host(3, 6, [["Tanh", "Exp"]])
    premise = find(case, [resolve("fake:crash@Tanh>Exp")], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    test = confirmed_by_judge(premise, workers, "fingerprint", start, judged=True)
    assert [result.kind for result in test.evaluate([start, start])] == ["same", "same"]


def test_verify_asks_the_judge_where_the_reduction_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(subject: Subject, premise: Premise, workers: Workers) -> bool:
        return len(subject.model.graph.node) > 2

    for module in (reduction, premise_test):
        monkeypatch.setattr(module, "still", judge)
    save(host(3, 30, [["Tanh", "Exp"]]), tmp_path / "case")
    out = tmp_path / "out"
    arguments = [str(tmp_path / "case"), "-t", "fake:crash@Tanh>Exp", "-o", str(out), "--json"]
    done = CliRunner().invoke(command, arguments, standalone_mode=False, **SETTINGS)
    facts = json.loads(done.stdout)
    assert (facts["judged"], facts["level"], facts["nodes_after"], facts["minimal"]) == (
        True,
        "cure",
        3,
        True,
    )
    assert (
        CliRunner().invoke(command, [str(out), "--verify"], standalone_mode=False, **SETTINGS).return_value
        == 0
    )
    story = json.loads((out / "reduction.json").read_text())
    (out / "reduction.json").write_text(json.dumps({**story, "judged": False, "level": "fingerprint"}))
    assert (
        CliRunner().invoke(command, [str(out), "--verify"], standalone_mode=False, **SETTINGS).return_value
        == 1
    )


def test_cure_asks_the_builds_that_fail_and_those_that_are_well(workers: Workers) -> None:
    text = """g (float[1, 1, 3, 3] x) => (float[1, 1, 4, 4] y) <int64[8] c = {0, 0, 0, 0, 0, 0, 1, 1}>
        { p = Pad <mode: string = "constant"> (x, c)  y = MaxPool <kernel_shape: ints = [2, 2], pads: ints = [0, 0, 1, 1]> (p) }"""
    case = Case(program(text), {"x": np.ones((1, 1, 3, 3), np.float32)})
    premise = find(case, [resolve("onnxruntime")], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    check = interestingness_of(premise, workers, "cure", start)
    assert isinstance(check, TargetTest)
    assert resolve("onnxruntime:basic") in check.sick
    assert check.well == (resolve("onnxruntime:disable_all"),)
    assert next(iter(check.evaluate([start]))).kind == "same"
    turned = replace(check, sick=check.well, well=check.sick)
    assert next(iter(turned.evaluate([start]))).kind == "slippage"
    result = reduce_failure(OnnxReduction(), start, premise, [workers], "cure", Journal(""), Listeners())
    assert [node.op_type for node in result.best.model.graph.node] == ["Pad", "MaxPool"]
    assert result.same
    assert result.minimal


@pytest.mark.parametrize("seed", keep_quick([1, 2, 3], 1))
def test_a_flaky_failure_is_reduced_and_says_how_often_it_shows(tmp_path: Path, seed: int) -> None:
    save(host(seed, 20, [["Tanh", "Exp"]]), tmp_path / "case")
    target = f"fake:faults=error@Tanh>Exp%0.3,seed={seed}"
    arguments = [str(tmp_path / "case"), "-t", target, "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(command, [*arguments, "--json"], standalone_mode=False, **SETTINGS)
    assert done.exception is None
    facts = json.loads(done.stdout)
    assert facts["nodes_after"] == 2
    assert facts["same"]
    assert facts["replays"]["runs"] == 30
    assert 0 < facts["replays"]["failed"] < 30
    assert json.loads((tmp_path / "out" / "reduction.json").read_text())["replays"] == facts["replays"]
    if seed == 1:
        text = CliRunner().invoke(command, arguments, standalone_mode=False, **SETTINGS).stdout
        assert "of 30 runs" in text


def test_what_only_converts_the_wrong_value_goes(workers: Workers) -> None:
    """The type class of the output belongs to the fingerprint, and not to the bug: a Cast behind it was kept,
    and called minimal.
    """
    text = (
        "g (float[3] x) => (int64[3] y) { a = Abs (x)  b = Tanh (a)  c = Relu (b)  y = Cast <to: int = 7>"
        " (c) }"
    )
    case = Case(program(text), {"x": np.array([8, 90, 1000], np.float32)})
    result = reduced(case, "fake:wrong@Tanh", workers)
    assert [node.op_type for node in result.best.model.graph.node] == ["Tanh"]
    assert (result.same, result.minimal) == (True, True)
