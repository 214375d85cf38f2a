"""Oracles that run a build that passes again: chosen by name, for one program or for those of a campaign."""

import numpy as np
import pytest
from in_process import TableLab

from opsieve.backends.judge import oracles
from opsieve.backends.judge.further_runs import run_optional_oracles
from opsieve.backends.judge.oracle_names import choose_oracles
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.registry import resolve
from opsieve.gen.declarations.properties import RANDOM
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.strategies.registry import generate

FAKE, BASE, FLOAT64 = "fake", "fake:level=off", str(oracles.FLOAT64)
PROGRAM = generate("isra", 1, GenRequest(nodes=2)).program
NAME = next(iter(PROGRAM.outputs()))


def gives(value: float = 1.0, seconds: float = 0.1, **more: object) -> Observation:
    return Observation("", "1", "ok", outputs={NAME: np.float32([value])}, cpu_seconds=seconds, **more)


def kind_of(lab: TableLab, *names: str, glance: bool = False) -> str | None:
    found = run_optional_oracles(choose_oracles(names), PROGRAM, {}, resolve(FAKE), lab, glance)
    return None if found is None else found.kind


def test_nothing_is_asked_that_was_not_chosen() -> None:
    lab = TableLab({FAKE: gives(seconds=9), BASE: gives()})
    assert kind_of(lab) is None
    assert kind_of(lab, "pipelines", "metamorphic") is None
    assert lab.asked == []


def test_a_build_that_is_not_slower_is_let_go_after_three_pairs_and_in_a_campaign_after_a_glance() -> None:
    lab = TableLab({FAKE: gives(), BASE: gives()})
    assert kind_of(lab, "slowdown") is None
    assert len(lab.asked) == 6
    lab.asked.clear()
    assert kind_of(lab, "slowdown", glance=True) is None
    assert lab.asked == [FAKE, BASE]


@pytest.mark.parametrize("glance", [False, True])
def test_a_slow_build_is_measured_to_the_end(glance: bool) -> None:
    lab = TableLab({FAKE: gives(seconds=0.4), BASE: gives()})
    assert kind_of(lab, "slowdown", glance=glance) == "slowdown"
    assert sum(name.endswith("fresh") for name in lab.asked) == 30


def test_another_result_in_another_process_is_nondeterminism_unless_the_program_leaves_it_open() -> None:
    varying = {FAKE: lambda turn: gives(1.0 + (turn == 2))}
    assert kind_of(TableLab({**varying, FLOAT64: gives()}), "nondeterminism") == "nondeterminism"
    assert kind_of(TableLab({FAKE: gives(), FLOAT64: gives()}), "nondeterminism") is None
    open_ = gives(hazards=(Hazard(RANDOM, NAME, "RandomNormal", (NAME,)),))
    assert kind_of(TableLab({**varying, FLOAT64: open_}), "nondeterminism") is None


def test_memory_is_well_after_one_pair() -> None:
    lab = TableLab({FAKE: gives(), BASE: gives()})
    assert kind_of(lab, "memory") is None
    assert len(lab.asked) == 2
