"""Budgets, the best so far at any moment, progress, and the noise of a check."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import opsieve
from failing import host

from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import load, save
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.form import Budget, Progress, Validator
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.sessions import session
from opsieve.reducer.sessions.reduction import Listeners, Noise, Reduction, reduce_by_check
from opsieve.reducer.sessions.session import ReductionRequest


@dataclass
class Needs:
    """The failure needs these operators; every run is kept. `odd` gives the place of a run that says the
    opposite, in each hundred of them.
    """

    operators: frozenset[str]
    odd: frozenset[int] = frozenset()
    asked: list[Subject] = field(default_factory=list)

    def shows(self, subject: Subject) -> bool:
        return self.operators <= {node.op_type for node in subject.model.graph.node}

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        for subject in subjects:
            self.asked.append(subject)
            turned = len(self.asked) % 100 in self.odd
            yield CheckResult("same" if self.shows(subject) != turned else "gone")


def reduced(
    test: Needs,
    workers: Workers,
    listeners: Listeners[Subject] | None = None,
    budget: Budget | None = None,
    folder: Path | None = None,
) -> Reduction[Subject]:
    case = host(7, 60, [["Tanh", "Exp"], ["Sin"]])
    with Journal("question", folder) as journal:
        return reduce_by_check(
            OnnxReduction(),
            Subject(case.program.proto, case.inputs, {}),
            [test],
            workers,
            None,
            journal,
            listeners or Listeners(),
            budget=budget or Budget(),
        )


def test_a_budget_of_checks_ends_with_the_simplest_so_far_and_the_journal_goes_on_from_it(
    workers: Workers, tmp_path: Path
) -> None:
    needed = frozenset(["Tanh", "Sin"])
    whole = reduced(Needs(needed), workers)
    assert whole.certificate.complete
    sizes = []
    for checks in (1, 4, 9, 20):
        test = Needs(needed)
        found = reduced(test, workers, budget=Budget(checks), folder=tmp_path / str(checks))
        assert found.checks == checks
        assert test.shows(found.best)
        assert (found.minimal, found.certificate.complete) == (False, False)
        sizes.append(len(found.best.model.graph.node))
        again = reduced(Needs(needed), workers, folder=tmp_path / str(checks))
        assert again.best.program.model == whole.best.program.model
        assert again.checks == whole.checks - checks
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_no_time_is_left_for_a_single_check(workers: Workers) -> None:
    found = reduced(Needs(frozenset(["Tanh"])), workers, budget=Budget(until=time.monotonic()))
    assert found.best.program.model == found.start.program.model
    assert found.checks <= 1  # of the replays
    assert found.same
    assert not found.minimal


def test_what_a_search_has_seen_fail_is_shown_before_it_ends_and_progress_says_what_is_left(
    workers: Workers,
) -> None:
    shown: list[Subject] = []
    heard: list[Progress] = []
    test = Needs(frozenset(["Tanh", "Sin"]))
    found = reduced(test, workers, Listeners(heard.append, shown.append))
    assert all(map(test.shows, shown))
    assert all(OnnxReduction().simpler(after, before) for before, after in pairwise(shown))
    assert shown[-1].program.model == found.best.program.model
    # the search for nodes alone shows more than its end
    assert sum(len(each.model.graph.node) > len(found.best.model.graph.node) for each in shown) > 2
    searching = [at for at in heard if at.dimension == "nodes" and at.checks <= found.node_checks]
    assert searching
    assert all(0 <= at.left <= 60 for at in heard)
    assert heard[-1].refused["gone"] > 5


def check_script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_the_command_stops_at_its_budget_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(host(7, 60, [["Tanh", "Exp"]]).program.proto, tmp_path / "m.onnx")
    check = check_script(tmp_path / "check", 'grep -q Tanh "$1"\n')
    options = ("reduce", "m.onnx", "--check", check, "-o", "out")
    code, printed, _ = opsieve(*options, "--checks", "4", "--json", capsys=capsys)
    facts = json.loads(printed)
    assert (code, facts["finished"], facts["same"], facts["minimal"]) == (0, False, True, False)
    assert (facts["checks"], "continues" in facts["message"]) == (4, True)
    assert "Tanh" in load(tmp_path / "out").program.operators()
    code, printed, _ = opsieve(*options, "--minutes", "5", capsys=capsys)
    assert (code, "1-minimal" in printed) == (0, True)
    assert load(tmp_path / "out").program.operators() == ["Tanh"]
    assert "budget" in opsieve(*options[:-1], "other", "--minutes", "0.0001", capsys=capsys)[1]


def test_the_noise_of_a_check_is_measured_and_chance_is_not_taken_for_the_failure(workers: Workers) -> None:
    """One run in ten says the opposite, of the failing model and of any other."""
    test = Needs(frozenset(["Tanh"]), frozenset(range(3, 100, 10)))
    found = reduced(test, workers)
    assert test.shows(found.best)
    assert isinstance(found.noise, Noise)
    seen, runs = found.noise.start
    assert 0 < runs - seen < runs / 3
    assert found.noise.rest is not None
    assert 0 < found.noise.rest[0] < found.noise.rest[1] / 3
    assert reduced(Needs(frozenset(["Tanh"])), workers).noise is None


def test_what_validates_candidates_starts_while_the_failure_is_sought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer would wait for the checker's start otherwise."""
    started = threading.Event()
    make, seek = OnnxReduction.validator, session.find

    def validator(self: OnnxReduction, workers: Workers, start: Subject) -> Validator[Subject]:
        started.set()
        return make(self, workers, start)

    def find(*given: Any) -> Premise:
        assert started.wait(60)
        return seek(*given)

    monkeypatch.setattr(OnnxReduction, "validator", validator)
    monkeypatch.setattr(session, "find", find)
    save(host(3, 12, [["Tanh", "Exp"]]), tmp_path / "case")
    request = ReductionRequest(tmp_path / "case", targets=("fake:crash@Tanh>Exp",), output=tmp_path / "out")
    with Workers() as workers, session.Session(request, [workers], Silent()) as running:
        assert running.reduce().facts["nodes_after"] == 2


class Silent:
    def say(self, sentence: str) -> None:
        pass

    def progress(self, at: Progress) -> None:
        pass
