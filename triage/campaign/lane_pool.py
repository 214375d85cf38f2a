"""The main process's side of lanes: which numbers each does, what comes back, and a new lane for one that
died.

The pool is an executor of threads, each of which asks one lane: a process of this machine, or a task of a
cluster. A question is answered piece by piece. A lane does batches of `mix.BATCH` seeds, since programs are
guided by those before them in their batch; of targets that are slow it has part of one. The first lane has
the cores to itself until its first answer: others would import the same compilers beside it, and a first test
would take as many times longer. Questions go only so far ahead of what is recorded, so that what waits here
is bounded.
"""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue

from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.strategies.mix import BATCH
from opsieve.triage.campaign.lane_messages import (
    Answer,
    Begin,
    Done,
    Failed,
    Finished,
    Further,
    NumberRange,
    Question,
    done_tests,
)
from opsieve.triage.campaign.lane_spawn import LaneClient, Spawn, spawn
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.schedule import Schedule
from opsieve.triage.store.finished_test import Campaign

AHEAD = 2  # batches for each lane that may be begun beyond what is recorded
_LEAST = 16  # tests that a fast lane is given, however many lanes there are
SLICE = 4.0  # seconds of work that a lane is given
DEATHS = 3  # lanes that die one after another on the same test
# Seconds of one wait: a signal that comes just before the main thread sleeps is seen only when it wakes.
_HEED = 0.5


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
        self._spawn, self._schedule = spawn, schedule
        quick = () if schedule is None else schedule.quick
        self._begin = Begin(campaign, plan.supports, limits, schedule is not None, quick)
        self._next, self._recorded, self._tests = first, first, tests
        self._further: list[Further] = []  # asked before anything else is begun
        self._rate = 0.0  # tests a second of one lane
        batches = lanes if schedule is None else schedule.back  # that lanes can be in at once
        # tests that a lane is given at a time
        self._most = min(BATCH, max(_LEAST, BATCH * batches // max(1, lanes)))
        self._deaths: dict[int, int] = {}  # by the first number that was not answered
        self._wanted, self._allowed, self._under_way = lanes, 1, 0
        # What lanes say, what ended a thread, and None for each question that is done with.
        self._said: SimpleQueue[Answer | BaseException | None] = SimpleQueue()
        self._threads = ThreadPoolExecutor(lanes, "lane")
        self._lock = threading.Lock()  # of the lanes and of the two fields below
        self._lanes: set[LaneClient] = set()
        self._idle: list[LaneClient] = []
        self._is_stopping = self._is_ended = False
        self._give()

    def __enter__(self) -> "LanePool":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_stopping = self._is_ended = True
            lanes = list(self._lanes)
        for lane in lanes:
            lane.end()
        self._threads.shutdown(cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether no lane does anything, or will."""
        return not self._under_way

    def stop(self) -> None:
        """Have lanes end with the piece that they are at."""
        with self._lock:
            self._is_stopping = True
            for lane in self._lanes:
                lane.stop()

    def recorded(self, upto: int) -> None:
        """Tests with numbers below are recorded; lanes may go on as far beyond."""
        self._recorded = upto
        self._give()

    def ask(self, questions: Iterable[Further]) -> None:
        """Have lanes do these as soon as one is free."""
        self._further += questions
        self._give()

    def wait(self, seconds: float) -> Iterator[Done]:
        """What a lane has done, as soon as one answers; nothing after some time. BadInput when a lane cannot
        go on.
        """
        try:
            said = self._said.get(timeout=max(0.0, min(seconds, _HEED)))
        except Empty:
            return
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, Failed):
            raise BadInput(said.sentence)
        if said is None:
            self._under_way -= 1
        else:
            self._allowed = self._wanted
            self._rate = said.tests_per_second if isinstance(said, Finished) else self._rate
        self._give()
        if said is not None:
            yield from done_tests(said)

    def _give(self) -> None:
        """Give threads that have nothing to do the next questions."""
        while self._under_way < self._allowed and not self._is_stopping:
            question = self._further.pop(0) if self._further else self._next_range()
            if question is None:
                return
            self._under_way += 1
            self._threads.submit(self._do, question)

    def _next_range(self) -> NumberRange | None:
        """The next numbers, None where that is too far ahead of what is recorded or decided."""
        decision = None if self._schedule is None else self._schedule.batch(self._next // BATCH)
        if self._schedule is not None and decision is None:
            return None
        most = max(1, min(self._most, int(SLICE * self._rate))) if self._rate else 1
        stop = min(self._next + most, self._next - self._next % BATCH + BATCH)
        stop = stop if self._tests is None else min(stop, self._tests)
        if stop <= self._next or self._next - self._recorded > AHEAD * BATCH * self._allowed:
            return None
        given, self._next = NumberRange(self._next, stop, decision), stop
        return given

    def _do(self, question: Question) -> None:
        """In a thread: have a question answered, whatever lanes die of it."""
        try:
            while (rest := self._ask_one(question)) is not None:
                question = rest
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._said.put(error)
        finally:
            self._said.put(None)

    def _ask_one(self, question: Question) -> Question | None:
        """In a thread: ask a lane; what it leaves when it dies, None for nothing."""
        lane = self._taken()
        try:
            for answer in lane.ask(question):
                if isinstance(answer, Finished) and isinstance(question, NumberRange):
                    question = NumberRange(answer.upto, question.stop, question.decision)
                self._said.put(answer)
        except (EOFError, OSError):
            return self._buried(lane, question)
        with self._lock:
            self._idle.append(lane)
        return None

    def _taken(self) -> LaneClient:
        """An idle lane, else a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            lane = self._spawn()
            self._lanes.add(lane)
            if self._is_stopping:
                lane.stop()
            if self._is_ended:
                lane.end()
        with suppress(OSError):  # it is dead: that is seen when it is asked
            lane.begin(self._begin)
        return lane

    def _buried(self, lane: LaneClient, question: Question) -> Question | None:
        """What a lane that died has not answered, for another one."""
        status = lane.end()
        with self._lock:
            self._lanes.discard(lane)
            first = question.start if isinstance(question, NumberRange) else question.number
            times = self._deaths[first] = self._deaths.get(first, 0) + 1
        if self._is_ended or (self._is_stopping and times < DEATHS):
            return None
        if times >= DEATHS:
            raise BadInput(
                f"the process that does the tests from {first} on ended {times} times (status {status});"
                f" what was recorded is kept, {shown('--resume')} goes on with it"
            )
        return question
