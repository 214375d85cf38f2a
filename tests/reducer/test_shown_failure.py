"""What `run` calls a failure, `reduce` and `export` work on: one definition for all of them
(backends/judge/shown_failure.py).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import X, chain, program

from opsieve.backends.judge.judge import judge_case
from opsieve.backends.judge.oracle_names import ORACLE, name_optional_oracle
from opsieve.backends.judge.oracles import EXPECTED
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.verdict import Kind, Verdict
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import Unjudged
from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.program import Program
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find, still
from opsieve.reducer.sessions.export import reproduce_failure
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure
from opsieve.triage.fingerprint.sameness import LEVELS, Level

HOST = chain("Abs", "Neg", "Relu", "Clip", "Sqrt")


def verdict_on(target: str, case: Case, workers: Workers) -> Verdict:
    return judge_case(case, resolve(target), ObservationCache(workers)).verdict


@pytest.mark.parametrize(
    ("fault", "level"),
    [
        ("unsupported", "fingerprint"),
        ("shape", "fingerprint"),
        # The chain reduces and exports these kinds; the levels are one comparison (triage/test_sameness.py).
        *(
            pytest.param(fault, level, marks=pytest.mark.slow)
            for fault, level in [
                *(("unsupported", level) for level in LEVELS if level != "fingerprint"),
                *((fault, "fingerprint") for fault in ("unsupported@/run", "rejected", "crash")),
            ]
        ),
    ],
)
def test_what_run_calls_a_failure_is_reduced_and_exported(
    fault: str, level: Level, workers: Workers, tmp_path: Path
) -> None:
    kind, _, stage = fault.partition("@")
    target, case = f"fake:{kind}@Relu>Clip{stage}", Case(HOST, X)
    run = verdict_on(target, case, workers)
    assert run.verdict == "fail"
    premise = find(case, [resolve(target)], None, workers)
    assert premise.failure.verdict.kind == run.kind
    assert premise.chance == 1, "it always fails"
    start = Subject(HOST.proto, X, {})
    result = reduce_failure(OnnxReduction(), start, premise, [workers], level, Journal(""), Listeners())
    assert [node.op_type for node in result.best.model.graph.node] == ["Relu", "Clip"]
    assert (result.same, result.minimal) == (True, True)
    exported = reproduce_failure(case, target, tmp_path, workers)
    assert (exported.verdict.kind, exported.shows) == (run.kind, None)


def test_the_judge_sees_a_wrong_result_in_a_part_of_a_case_with_expected_outputs(workers: Workers) -> None:
    expected = workers.observe(resolve("reference"), HOST, X).outputs
    premise = find(Case(HOST, X, expected), [resolve("fake:wrong@Relu>Clip")], None, workers)
    assert EXPECTED in premise.failure.verdict.oracles
    assert still(Subject(chain("Relu", "Clip").proto, X, {}), premise, workers)
    assert not still(Subject(chain("Relu", "Sqrt").proto, X, {}), premise, workers)


@pytest.mark.parametrize("fault", ["unsupported", "crash", "wrong"])
def test_a_failure_that_shows_in_some_runs_is_replayed_as_what_it_is(fault: str, workers: Workers) -> None:
    premise = find(Case(HOST, X), [resolve(f"fake:{fault}@Relu>Clip%0.5,seed=3")], None, workers)
    wanted = {"unsupported": "error", "wrong": "nondeterminism"}.get(fault, fault)
    assert premise.failure.verdict.kind == wanted
    assert premise.chance < 1


def test_a_lack_of_the_program_s_own_operator_is_no_failure(workers: Workers, tmp_path: Path) -> None:
    target, case = "fake:unsupported@Clip", Case(HOST, X)
    assert verdict_on(target, case, workers).verdict == "unsupported"
    with pytest.raises(Unjudged, match="unsupported"):
        find(case, [resolve(target)], None, workers)
    with pytest.raises(Unjudged, match="unsupported"):
        reproduce_failure(case, target, tmp_path, workers)


def reduced(case: Case, target: str, workers: Workers) -> tuple[str | None, list[str]]:
    """The kind of the failure that is reduced, and the operators of the result."""
    premise = find(case, [resolve(target)], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    result = reduce_failure(
        OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    assert (result.same, result.minimal) == (True, True)
    return premise.failure.verdict.kind, [node.op_type for node in result.best.model.graph.node]


def test_a_compiler_without_an_unoptimised_build_is_asked_operator_by_operator(workers: Workers) -> None:
    """The same worker is asked about a candidate and about its operators: one after the other."""
    target = "fake:unsupported@Relu&Clip,level=off"
    assert resolve(target).baseline is None
    assert verdict_on(target, Case(HOST, X), workers).verdict == "fail"
    assert reduced(Case(HOST, X), target, workers) == ("error", ["Relu", "Clip"])


def test_a_program_that_its_values_make_invalid_is_reduced_where_it_is_run(workers: Workers) -> None:
    text = (
        "g (float[2, 3] x, float r) => (float[2, 3] y) { a = Relu (x)  b = Abs (a)  c = Dropout (b, r)  y ="
        " Neg (c) }"
    )
    case = Case(program(text, 18, 9), {**X, "r": np.array(1.5, np.float32)})
    assert verdict_on("fake", case, workers).verdict == "invalid"
    case = replace(case, parameters={ORACLE: "accepts-invalid"})
    run = judge_case(case, resolve("fake"), ObservationCache(workers)).verdict
    assert (run.verdict, run.kind) == ("fail", "accepts-invalid")
    assert reduced(case, "fake", workers) == ("accepts-invalid", ["Dropout"])


@pytest.mark.parametrize(
    ("kind", "rules", "oracle"),
    [
        ("slowdown", ("slowdown",), "slowdown"),
        ("nondeterminism", (), "nondeterminism"),
        ("memory", ("memory",), "memory"),
        ("memory", (), ""),  # the limit was reached, which any run shows
        ("accepts-invalid", (), "accepts-invalid"),
        ("mismatch", (), ""),
    ],
)
def test_oracles_that_have_to_be_chosen_are_noted(kind: Kind, rules: tuple[str, ...], oracle: str) -> None:
    assert name_optional_oracle(Verdict("fail", "", kind, rules=rules), HOST) == oracle


class Table:
    """A lab that gives what a table says, by level."""

    def __init__(self, baseline: str):
        self.baseline = baseline

    def observe(
        self, target: object, program: Program, inputs: object, *, fresh: bool = False, repeat: int = 0
    ) -> Observation:
        return Observation(str(target), "1", self.baseline)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "baseline", "verdict", "kind"),
    [
        ("unsupported", "ok", "fail", "error"),
        ("unsupported", "unsupported", "unsupported", None),
        ("environment", "ok", "environment", None),
        ("rejected", "ok", "fail", "error"),
        ("error", "error", "fail", "error"),
        ("crash", "ok", "fail", "crash"),
        ("hang", "ok", "fail", "hang"),
        ("out-of-memory", "ok", "fail", "memory"),
        ("ok", "ok", "pass", None),
    ],
)
def test_the_verdict_on_one_run(outcome: str, baseline: str, verdict: str, kind: str | None) -> None:
    run = Observation("fake", "1", outcome, outputs={} if outcome == "ok" else None)  # type: ignore[arg-type]
    found = judge_run(HOST, X, resolve("fake"), run, Table(baseline))
    assert (found.verdict, found.kind) == (verdict, kind)


def test_outputs_are_compared_with_those_of_the_arbiter() -> None:
    def gives(value: float, target: str = "fake") -> Observation:
        return Observation(target, "1", "ok", outputs={"y": np.array([value], np.float32)})

    target, lab = resolve("fake"), Table("ok")
    assert judge_run(HOST, X, target, gives(1), lab, right=gives(1)).verdict == "pass"
    found = judge_run(HOST, X, target, gives(1), lab, right=gives(2))
    assert (found.verdict, found.kind) == ("fail", "mismatch")
    assert (
        judge_run(HOST, X, target, gives(1), lab, right=Observation("reference", "1", "error")).verdict
        == "undecided"
    )
    rewritten = resolve("fake:rewrite=duplicate")
    assert judge_run(HOST, X, rewritten, gives(1), lab, right=gives(2, "fake")).kind == "metamorphic"
