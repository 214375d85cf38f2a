"""The main process's side of lanes: which numbers each does, what comes back, and a new lane for one that
died.

A lane does batches of `mix.BATCH` seeds, since programs are guided by those before them in their batch; of
targets that are slow it has part of one. It answers piece by piece. The first lane has the cores to itself
until its first answer: others would import the same compilers beside it, and a first test would take as many
times longer. Lanes are given work only so far ahead of what is recorded, so that what waits here is bounded.
"""

import selectors
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.strategies.mix import BATCH
from opsieve.triage.campaign import lane_messages
from opsieve.triage.campaign.lane_messages import (
    Answered,
    Begin,
    Done,
    Failed,
    Finished,
    Further,
    NumberRange,
    Stop,
)
from opsieve.triage.campaign.lane_spawn import LaneProcess, Spawn, spawn
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.schedule import Schedule
from opsieve.triage.store.finished_test import Campaign

AHEAD = 2  # batches for each lane that may be begun beyond what is recorded
_LEAST = 16  # tests that a fast lane is given, however many lanes there are
SLICE = 4.0  # seconds of work that a lane is given
DEATHS = 3  # lanes that die one after another on the same test


@dataclass(eq=False)
class _Lane:
    """A lane process, the numbers that it has yet to answer, and whether it was asked to stop."""

    process: LaneProcess
    connection: socket.socket
    left: range = field(default_factory=lambda: range(0))
    further: Further | None = None
    stopped: bool = False

    @property
    def busy(self) -> bool:
        """Whether it has yet to answer something."""
        return bool(self.left) or self.further is not None

    @property
    def first(self) -> int:
        """The first number that it has yet to answer."""
        return self.left.start if self.further is None else self.further.number


class LanePool:
    """Lanes that do the tests of a campaign from `first` on, up to `tests`; use it as a context manager."""

    def __init__(
        self,
        campaign: Campaign,
        plan: CampaignPlan,
        limits: Limits,
        lanes: int,
        first: int,
        tests: int | None,
        spawn: Spawn = spawn,
        schedule: Schedule | None = None,
    ) -> None:
        self._spawn = spawn
        self._schedule = schedule
        quick = () if schedule is None else schedule.quick
        self._begin = Begin(campaign, plan.supports, limits, schedule is not None, quick)
        self._next, self._recorded = first, first
        self._tests = tests
        self._returned: list[range] = []  # numbers of lanes that died
        self._further: list[Further] = []  # asked before anything else is begun
        self._rate = 0.0  # tests a second of one lane
        batches = lanes if schedule is None else schedule.back  # that lanes can be in at once
        # tests that a lane is given at a time
        self._most = min(BATCH, max(_LEAST, BATCH * batches // max(1, lanes)))
        self._deaths: dict[int, int] = {}  # by the first number that was not answered
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._lanes: set[_Lane] = set()
        self._wanted = lanes
        self._start()

    def __enter__(self) -> "LanePool":
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.connection.close()
            lane.process.kill()  # its workers see that it is gone, and end
        for lane in self._lanes:
            lane.process.wait()
        self._selector.close()

    @property
    def idle(self) -> bool:
        """Whether nobody does anything, or will."""
        return not any(lane.busy for lane in self._lanes)

    def stop(self) -> None:
        """Have lanes end with the piece that they are at."""
        self._stopping = True
        for lane in self._lanes:
            if lane.busy and not lane.stopped:
                lane.stopped = True
                with suppress(OSError):  # it is dead: that is seen when it is waited for
                    lane_messages.send(lane.connection, Stop())

    def recorded(self, upto: int) -> None:
        """Tests with numbers below are recorded; lanes may go on as far beyond."""
        self._recorded = upto
        for lane in self._lanes:
            self._give(lane)

    def ask(self, questions: Iterable[Further]) -> None:
        """Have lanes do these as soon as one is free."""
        self._further += questions
        for lane in self._lanes:
            self._give(lane)

    def wait(self, seconds: float) -> Iterator[Done]:
        """What lanes have done, as soon as one of them answers; nothing after `seconds`. BadInput when a lane
        cannot go on.
        """
        for key, _ in self._selector.select(None if seconds == float("inf") else max(0.0, seconds)):
            lane: _Lane = key.data
            try:
                message = lane_messages.receive(lane.connection)
            except (EOFError, OSError):
                self._bury(lane)
                continue
            if isinstance(message, Failed):
                raise BadInput(message.sentence)
            assert isinstance(message, (Finished, Answered))
            while len(self._lanes) < self._wanted and not self._stopping:
                self._start()
            yield from lane_messages.done_tests(message)
            if isinstance(message, Answered):
                lane.further = None
                self._give(lane)
                continue
            lane.left = range(message.upto, lane.left.stop)
            self._rate = message.tests_per_second
            if message.stopped:
                lane.left = range(0)
            if not lane.left:
                self._give(lane)

    def _start(self) -> None:
        process, ours = self._spawn()
        lane = _Lane(process, ours)
        self._lanes.add(lane)
        self._selector.register(ours, selectors.EVENT_READ, lane)
        with suppress(OSError):
            lane_messages.send(ours, self._begin)
        self._give(lane)

    def _give(self, lane: _Lane) -> None:
        """Give a lane that has nothing to do the next numbers, unless that is too far ahead."""
        if lane.busy or self._stopping:
            return
        if self._further:
            lane.further = self._further.pop(0)
            with suppress(OSError):
                lane_messages.send(lane.connection, lane.further)
            return
        if self._returned:
            lane.left = self._returned.pop(0)
        elif self._schedule is not None and self._schedule.batch(self._next // BATCH) is None:
            return  # until more is recorded
        else:
            most = max(1, min(self._most, int(SLICE * self._rate))) if self._rate else 1
            stop = min(self._next + most, self._next - self._next % BATCH + BATCH)
            stop = stop if self._tests is None else min(stop, self._tests)
            if stop <= self._next or self._next - self._recorded > AHEAD * BATCH * len(self._lanes):
                return
            lane.left, self._next = range(self._next, stop), stop
        with suppress(OSError):
            decision = None if self._schedule is None else self._schedule.batch(lane.left.start // BATCH)
            lane_messages.send(lane.connection, NumberRange(lane.left.start, lane.left.stop, decision))

    def _bury(self, lane: _Lane) -> None:
        """What a dead lane has not answered goes to a new one."""
        self._selector.unregister(lane.connection)
        lane.connection.close()
        lane.process.kill()
        status = lane.process.wait()
        self._lanes.discard(lane)
        if lane.further is not None:
            self._further.insert(0, lane.further)
        elif lane.left:
            self._returned.append(lane.left)
        times = self._deaths[lane.first] = self._deaths.get(lane.first, 0) + 1
        if times >= DEATHS:
            raise BadInput(
                f"the process that does the tests from {lane.first} on ended {times} times (status {status});"
                f" what was recorded is kept, {shown('--resume')} goes on with it"
            )
        if not self._stopping:
            self._start()
