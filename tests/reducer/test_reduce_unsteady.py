"""Failures that one run does not tell: results that vary, builds that are slow, wrong results that are wrong
sometimes.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from models import X, chain, program

from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.engine.subset_search import MOST, Trials
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find, still
from opsieve.reducer.oracle.nondeterminism_test import spread_of
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_failure

HOST = chain("Abs", "Neg", "Sigmoid", "Relu", "Clip", "Sqrt", "Neg", "Abs")


def reduced(target: str, workers: Workers, case: Case | None = None) -> tuple[str, Reduction]:
    case = case or Case(HOST, X)
    premise = find(case, [resolve(target)], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    result = reduce_failure(
        OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    return (result.premise or premise).failure.verdict.kind or "", result


def operators(result: Reduction) -> list[str]:
    return [node.op_type for node in result.best.model.graph.node]


@pytest.mark.parametrize("chance", ["0.5", "0.25"])
def test_a_result_that_varies_is_reduced(workers: Workers, chance: str) -> None:
    kind, result = reduced(f"fake:wrong@Relu>Clip%{chance},seed=1", workers)
    assert (kind, operators(result)) == ("nondeterminism", ["Relu", "Clip"])
    assert (result.same, result.minimal) == (True, True)
    assert result.replays is not None
    assert 0 < result.replays[0] < result.replays[1] == 30


def test_what_varies_is_found_and_seen_again(workers: Workers) -> None:
    premise = find(Case(HOST, X), [resolve("fake:wrong@Relu>Clip%0.5,seed=2")], None, workers)
    assert premise.failure.verdict.kind == "nondeterminism"
    assert premise.describe_level("fingerprint").endswith(f"seen in {premise.replays[0]} of 30 runs")  # type: ignore[index]
    assert still(Subject(HOST.proto, X, {}), premise, workers)
    assert not still(Subject(chain("Relu", "Abs").proto, X, {}), premise, workers)


def test_a_random_operator_is_no_failure(workers: Workers) -> None:
    text = "g (float[2, 3] x) => (float[2, 3] y) { a = RandomNormalLike (x) y = Add (a, x) }"
    with pytest.raises(NoFailure, match="ONNX"):
        find(Case(program(text), X), [resolve("onnxruntime")], None, workers)


def test_a_slow_build_is_reduced(workers: Workers) -> None:
    kind, result = reduced("fake:drag@Relu>Clip/run", workers)
    assert (kind, operators(result)) == ("slowdown", ["Relu", "Clip"])
    assert (result.same, result.minimal) == (True, True)


def test_a_build_that_is_as_fast_is_no_failure(workers: Workers) -> None:
    with pytest.raises(NoFailure, match=r"^no failure to work on: "):
        find(Case(chain("Abs", "Neg"), X), [resolve("fake:drag@Relu>Clip/run")], None, workers)


def observations(values: Sequence[float]) -> list[Observation]:
    return [Observation("fake", "1", "ok", outputs={"y": np.array([value])}) for value in values]


@given(st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=1, max_size=12))
def test_most_runs_are_the_usual_ones(values: list[float]) -> None:
    found = spread_of(observations(values))
    most = max(values.count(value) for value in values)
    assert (found.runs, found.differing) == (len(values), len(values) - most)
    assert (found.worst is None) == (len(set(values)) == 1)
    assert found.names == (("y",) if len(set(values)) > 1 else ())


def test_rounding_is_no_variation() -> None:
    assert spread_of(observations([1.0, 1.0 + 1e-15])).differing == 0


def test_a_run_that_dies_hides_what_the_others_gave() -> None:
    died = Observation("fake", "1", "crash")
    found = spread_of([*observations([1.0, 2.0]), died])
    assert (found.ended, found.differing) == (died, 0)


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=MOST, max_size=MOST))
def test_a_sequential_test_decides_and_stays_decided(outcomes: list[bool]) -> None:
    trials, decided = Trials(), []
    for outcome in outcomes:
        trials = trials.with_one(outcome)
        decided.append(trials.decision)
        if decided[-1] != "open":
            break
    assert decided[-1] != "open"
    assert (decided[-1] == "yes") <= (trials.successes > trials.failures)


def test_how_many_trials_a_clear_answer_takes() -> None:
    yes, no = Trials(), Trials()
    for _ in range(8):
        yes = yes.with_one(True)
    for _ in range(3):
        no = no.with_one(False)
    assert (yes.decision, no.decision) == ("yes", "no")
    assert Trials(7, 0).decision == Trials(0, 2).decision == "open"
