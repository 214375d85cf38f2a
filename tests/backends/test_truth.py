"""A slice of the programs whose verdict is known: the first of each class. `python benchmarks/truth.py` asks
all.
"""

import pytest
from truth import Known, known

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import SECOND_ORACLES
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers

FIRST = {each.kind_of_truth: each for each in reversed(known())}


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST.keys())
def test_a_known_verdict(workers: Workers, case: Known) -> None:
    target = resolve(case.target)
    oracles = [oracle for oracle in SECOND_ORACLES if oracle not in (target, resolve("tvm"))]
    verdict = judge_program(
        case.program, case.inputs, target, ObservationCache(workers), oracles=oracles
    ).verdict
    if case.kind_of_truth != "unoptimised-bug":  # one that only TVM or torch confirm
        assert verdict.verdict == case.verdict, verdict.reason
        assert not case.kind or verdict.kind == case.kind


def test_names_are_unique_and_every_program_has_a_reason() -> None:
    names = [each.name for each in known()]
    assert len(set(names)) == len(names)
    assert all(each.why for each in known())
