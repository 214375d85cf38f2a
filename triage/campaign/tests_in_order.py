"""Tests on their way from lanes to the store: in order, and asked of further targets where the schedule
decides so.
"""

from collections.abc import Iterator
from dataclasses import replace

from opsieve.triage.campaign.lane_messages import Done, Further
from opsieve.triage.campaign.schedule.schedule import Schedule
from opsieve.triage.store.finished_test import FinishedTest


class TestsInOrder:
    """The tests of a campaign from number `first` on. Decisions are made in the order of the tests, ahead of
    what is recorded.
    """

    __test__ = False  # pytest: not a test class

    def __init__(self, schedule: Schedule | None, first: int):
        self._schedule = schedule
        self._decided = self._recorded = first
        self._arrived: dict[int, Done] = {}
        self._open: set[int] = set()  # numbers that further targets are asked about
        self._changes: dict[int, dict[str, str]] = {}  # what was learnt when a test was decided on

    @property
    def recorded(self) -> int:
        """Tests below were given out by `ready`."""
        return self._recorded

    def arrive(self, done: Done) -> None:
        """A lane has done a test, or asked further targets about it."""
        number = done.test.number
        before = self._arrived.get(number)
        if done.further and before is not None:
            done = Done(_both(before.test, done.test))
            self._open.discard(number)
        self._arrived[number] = done

    def questions(self) -> Iterator[Further]:
        """What further targets are to be asked, as far as everything before has arrived."""
        while self._decided in self._arrived:
            done = self._arrived[self._decided]
            if self._schedule is not None:
                asked, self._changes[self._decided] = self._schedule.decide(done.test)
                if asked and done.case is not None:
                    self._open.add(self._decided)
                    yield Further(self._decided, done.case, asked, tuple(done.test.answers))
                self._arrived[self._decided] = replace(done, case=None)
            self._decided += 1

    def ready(self) -> tuple[list[FinishedTest], dict[str, str]]:
        """The next tests that are wholly done, and what is to be kept with them."""
        tests: list[FinishedTest] = []
        learnt: dict[str, str] = {}
        while self._recorded < self._decided and self._recorded not in self._open:
            test = self._arrived.pop(self._recorded).test
            tests.append(test)
            if self._schedule is not None:
                learnt |= self._changes.pop(self._recorded) | self._schedule.note(test)
            self._recorded += 1
        if self._schedule is not None and tests:
            learnt |= self._schedule.changes()
        return tests, learnt


def _both(first: FinishedTest, further: FinishedTest) -> FinishedTest:
    """A test that was done on some targets, and then on others."""
    return replace(
        first,
        case=first.case or further.case,
        answers={**first.answers, **further.answers},
        findings=(*first.findings, *further.findings),
        non_bugs=(*first.non_bugs, *further.non_bugs),
        reached=first.reached + further.reached,
    )
