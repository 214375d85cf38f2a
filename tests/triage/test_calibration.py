"""Probes that come and go between equal runs are found and set aside."""

import platform
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st
from models import X, chain

from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case, Origin
from opsieve.triage.campaign import guidance
from opsieve.triage.campaign.guidance import exclude_unstable, find_unstable


@given(st.lists(st.frozensets(st.integers(0, 20)), max_size=5))
def test_what_every_run_reached_or_none_is_stable(sets: list[frozenset[int]]) -> None:
    moving = find_unstable(sets)
    for number in range(21):
        held = sum(number in item for item in sets)
        assert (number in moving) == (0 < held < len(sets))


class Wavering:
    """In place of a worker: its first run loads something, and later ones reach one probe in turn; the
    `rare`th batch reaches one more.
    """

    def __init__(self, rare: int = 0) -> None:
        self.rare, self.batches = rare, 0

    def version(self, target: ResolvedTarget) -> str:
        return ""

    def observe_many(self, target: ResolvedTarget, tests: Sequence[Test]) -> Iterator[Observation]:
        self.batches += 1
        for at, test in enumerate(tests):
            assert test.again
            reached = (1, 2, 3, 90) if at == 0 else (1, 2, 3, 10 + at % 3)
            reached += (50,) * (at == 4 and self.batches == self.rare)
            yield Observation("onnxruntime", "", "ok", "run", reached=reached)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="traps are for Linux on x86-64"
)
def test_a_compiler_is_calibrated_and_the_next_campaign_knows(tmp_path: Path) -> None:
    ort = resolve("onnxruntime")
    coverage = Coverage("functions", ["onnxruntime"], tmp_path)
    with Workers(coverage=coverage) as workers:
        workers.version(ort)
    probes = coverage.maps()["onnxruntime", ""]
    assert isinstance(probes, Probes)
    case = Case(chain("Relu"), X, origin=Origin("test", 0))
    wavering: Any = cast("Workers", Wavering())
    assert not probes.is_calibrated
    assert exclude_unstable(wavering, coverage, [ort], [case], seconds=0) == 3
    assert exclude_unstable(wavering, coverage, [ort], [case], seconds=0) == 0  # known already
    assert probes.is_calibrated
    later = Probes(probes.points)
    assert later.stable((1, 3, 10, 11, 12, 90)) == (1, 3, 90)
    assert later.reached()[0].probes == later.total - 3


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="traps are for Linux on x86-64"
)
def test_a_build_is_first_calibrated_for_some_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ort = resolve("onnxruntime")
    coverage = Coverage("functions", ["onnxruntime"], tmp_path)
    with Workers(coverage=coverage) as workers:
        workers.version(ort)
    case = Case(chain("Relu"), X, origin=Origin("test", 0))
    clock = count(0.0, 0.25)  # seconds between two looks at it
    monkeypatch.setattr(guidance, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    for rare, batches in ((7, 10), (2, 1)):
        wavering = Wavering(rare)
        found = exclude_unstable(cast("Workers", wavering), coverage, [ort], [case])
        assert found == (4 if rare == 7 else 0)
        assert wavering.batches == batches
