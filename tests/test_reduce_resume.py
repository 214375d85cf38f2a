"""Interrupted, resumed, on several lanes: the result is the same, byte for byte."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.failing import host

from opsieve.backends.registry import resolve
from opsieve.backends.workers import Workers
from opsieve.backends.zygote import Limits
from opsieve.gen.case import Case
from opsieve.reducer import engine as engine_module
from opsieve.reducer.check import Answer, Check
from opsieve.reducer.check import program as serialised
from opsieve.reducer.discover import Premise, find
from opsieve.reducer.journal import NAME, Journal
from opsieve.reducer.reduction import Listeners, Reduction, reduce_by_check, reduce_failure
from opsieve.reducer.subject import Subject


@pytest.fixture(scope="module")
def second() -> Iterator[Workers]:
    with Workers(Limits(seconds=20.0)) as workers:
        yield workers


def start(case: Case) -> Subject:
    return Subject(case.program.proto, case.inputs, {})


def run(case: Case, premise: Premise, lanes: Sequence[Workers], folder: Path | None = None) -> Reduction:
    with Journal("question", folder) as journal:
        return reduce_failure(start(case), premise, lanes, "fingerprint", journal, Listeners())


def bytes_of(result: Reduction) -> bytes:
    values = b"".join(name.encode() + value.tobytes() for name, value in sorted(result.best.inputs.items()))
    return bytes(serialised(result.best).model) + values


@pytest.mark.parametrize("fault", ["wrong@Tanh>Exp", "crash@Tanh&Sin"])
def test_a_journal_cut_anywhere_leads_to_the_same_bytes(workers: Workers, tmp_path: Path, fault: str) -> None:
    case = host(7, 50, [["Tanh", "Exp"], ["Sin"]])
    premise = find(case, [resolve(f"fake:{fault}")], None, workers)
    whole = run(case, premise, [workers], tmp_path)
    lines = (tmp_path / NAME).read_bytes().split(b"\n")
    assert run(case, premise, [workers], tmp_path).checks == 0
    for parts in range(1, 8):
        kept = 1 + (len(lines) - 2) * parts // 8
        (tmp_path / NAME).write_bytes(b"\n".join(lines[:kept]) + b'\n{"digest": "cut off he')
        again = run(case, premise, [workers], tmp_path)
        assert bytes_of(again) == bytes_of(whole), kept
        assert again.certificate == whole.certificate
        assert again.checks < whole.checks


def test_lanes_change_no_byte(workers: Workers, second: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_SLOW", 0.0)  # checks that take any time at all are asked ahead
    ahead = 0
    for seed, fault in ((6, "crash@Tanh&Exp"), (7, "wrong@Sin"), (8, "error@Sin&Cos")):
        case = host(seed, 60, [["Tanh", "Exp"], ["Sin"], ["Cos"]])
        premise = find(case, [resolve(f"fake:{fault}")], None, workers)
        one = run(case, premise, [workers])
        two = run(case, premise, [workers, second])
        assert bytes_of(one) == bytes_of(two), fault
        assert one.certificate == two.certificate
        ahead += two.checks - one.checks
    assert ahead > 0


class Counting:
    """A check that counts what it was asked."""

    def __init__(self, needed: frozenset[str]):
        self.needed = needed
        self.asked: list[Subject] = []

    def ask(self, subjects: Sequence[Subject]) -> Iterator[Answer]:
        for subject in subjects:
            self.asked.append(subject)
            there = self.needed <= {node.op_type for node in subject.model.graph.node}
            yield Answer("same" if there else "gone")


def test_every_lane_of_slow_checks_is_asked(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    case = host(9, 60, [["Tanh"], ["Exp"]])

    def by(checks: Sequence[Check]) -> Reduction:
        return reduce_by_check(start(case), checks, workers, None, Journal(""), Listeners())

    lanes = [Counting(frozenset(["Tanh", "Exp"])) for _ in range(3)]
    alone = by(lanes[:1])
    assert by(lanes).checks == alone.checks  # quick checks are asked one by one
    assert not lanes[1].asked
    monkeypatch.setattr(engine_module, "_SLOW", 0.0)
    assert bytes_of(by(lanes)) == bytes_of(alone)
    assert lanes[1].asked
    assert lanes[2].asked
