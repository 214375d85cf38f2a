"""The opt-in oracles: slowdown and memory."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from in_process import TableLab

from opsieve.backends.judge.performance import (
    MEMORY_FLOOR,
    compute_sign_test,
    judge_memory,
    judge_slowdown,
    measure_memory,
    measure_slowdown,
)
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.gen.irs.onnx.program import OnnxProgram

FAKE, BASE = "fake", "fake:level=off"


def test_slower_by_more_than_the_margin_every_time_is_a_slowdown() -> None:
    verdict = judge_slowdown([0.2] * 15, [0.1] * 15)
    assert (verdict.verdict, verdict.kind, verdict.blame) == ("fail", "slowdown", "optimiser")
    assert "2.00 times" in verdict.reason
    assert judge_slowdown([0.14] * 15, [0.1] * 15).verdict == "pass"
    assert judge_slowdown([0.1] * 15, [0.2] * 15).verdict == "pass"


def test_a_few_slow_runs_are_not_enough() -> None:
    assert judge_slowdown([0.2] * 12 + [0.1] * 3, [0.1] * 15).verdict == "pass"
    assert judge_slowdown([0.2] * 13 + [0.1] * 2, [0.1] * 15).verdict == "fail"
    assert judge_slowdown([0.2] * 6, [0.1] * 6).verdict == "pass"
    # The cost of a call is no slowdown.
    assert judge_slowdown([4e-5] * 15, [1e-6] * 15).verdict == "pass"
    with pytest.raises(ValueError, match="as many"):
        judge_slowdown([0.1], [])


@given(st.integers(1, 40))
def test_the_sign_test_is_a_distribution(trials: int) -> None:
    chances = [compute_sign_test(k, trials) for k in range(trials + 1)]
    assert chances[0] == pytest.approx(1.0)
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] == 0.5**trials


def test_memory_needs_the_margin_and_the_floor() -> None:
    big = 10 * MEMORY_FLOOR
    assert judge_memory([3 * big], [big]).verdict == "fail"
    assert judge_memory([3 * big, big], [big]).verdict == "pass"
    assert judge_memory([3 << 10], [1 << 10]).verdict == "pass"


def runs(seconds: float = 0.0, peak: int = 0) -> Observation:
    return Observation(
        "", "1", "ok", outputs={"y": np.ones(1)}, seconds={"run": 9.0}, cpu_seconds=seconds, peak_memory=peak
    )


def test_measurements_alternate_and_look_at_cpu_time_only() -> None:
    lab = TableLab({FAKE: runs(0.4), BASE: runs(0.1)})
    assert measure_slowdown(OnnxProgram(b""), {}, resolve(FAKE), lab, rounds=8).verdict == "fail"
    assert lab.asked[:4] == [f"{FAKE} fresh", f"{BASE} fresh", f"{BASE} fresh", f"{FAKE} fresh"]
    lab = TableLab({FAKE: runs(peak=10 * MEMORY_FLOOR), BASE: runs(peak=MEMORY_FLOOR)})
    assert measure_memory(OnnxProgram(b""), {}, resolve(FAKE), lab).verdict == "fail"


def test_nothing_is_said_without_two_builds_that_run() -> None:
    assert (
        measure_slowdown(OnnxProgram(b""), {}, resolve(FAKE), TableLab({FAKE: runs()})).verdict == "undecided"
    )
    lab = TableLab({FAKE: runs(), BASE: Observation("", "1", "crash")})
    assert measure_slowdown(OnnxProgram(b""), {}, resolve(FAKE), lab).verdict == "undecided"
