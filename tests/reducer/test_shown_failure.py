"""What `run` calls a failure, `reduce` and `export` work on: one definition for all of them (backends/judge/shown_failure.py)."""

from pathlib import Path

import numpy as np
import pytest
from models import X, chain

from opsieve.backends.judge.judge import judge
from opsieve.backends.judge.oracles import SECOND_ORACLES
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.verdict import Verdict
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.model.bad_input import Unjudged
from opsieve.gen.model.program import Program
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.onnx_reduction import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.problem.subject import Subject
from opsieve.reducer.reduction import Listeners, reduce_failure
from opsieve.reducer.reproduce import reproduced
from opsieve.triage.fingerprint.sameness import LEVELS, Level

HOST = chain("Abs", "Neg", "Relu", "Clip", "Sqrt")


def verdict_on(target: str, case: Case, workers: Workers) -> Verdict:
    resolved = resolve(target)
    oracles = [oracle for oracle in SECOND_ORACLES if oracle != resolved]
    return judge(case.program, case.inputs, resolved, ObservationCache(workers), oracles=oracles).verdict


@pytest.mark.parametrize(
    ("fault", "level"),
    [("unsupported", level) for level in LEVELS]
    + [(fault, "fingerprint") for fault in ("unsupported@/run", "rejected", "crash", "shape")],
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
    start = Subject(case.program.proto, case.inputs, {})
    result = reduce_failure(OnnxReduction(), start, premise, [workers], level, Journal(""), Listeners())
    assert [node.op_type for node in result.best.model.graph.node] == ["Relu", "Clip"]
    assert (result.same, result.minimal) == (True, True)
    exported = reproduced(case, target, tmp_path, workers, 30)
    assert (exported.verdict.kind, exported.shows) == (run.kind, None)


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
        reproduced(case, target, tmp_path, workers, 30)


class Table:
    """A lab that gives what a table says, by level."""

    def __init__(self, baseline: str):
        self.baseline = baseline

    def observe(self, target: object, program: Program, inputs: object, *, fresh: bool = False) -> Observation:
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
        judge_run(HOST, X, target, gives(1), lab, right=Observation("reference", "1", "error")).verdict == "undecided"
    )
    rewritten = resolve("fake:rewrite=duplicate")
    assert judge_run(HOST, X, rewritten, gives(1), lab, right=gives(2, "fake")).kind == "metamorphic"
