"""The main process's side of lanes: assign numbers, receive results, and replace lanes that die.

The pool is an executor of threads. Each thread talks to one lane: a process of this machine, or a task of a
cluster. A question is answered piece by piece. A lane gets batches of `mix.BATCH` seeds, since programs are
guided by earlier ones in their batch; with slow targets it gets part of a batch. The first lane has the cores
to itself until its first answer: other lanes would import the same compilers at the same time and delay the
first test. Questions go only a bounded distance ahead of the recorded tests, so that the results waiting here
are bounded.
"""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue

from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.strategies.mix import BATCH
from opsieve.triage.campaign import lane_messages, lane_spawn
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.schedule import Schedule
from opsieve.triage.store.finished_test import Campaign

# The limit on batches per lane beyond the recorded ones.
AHEAD = 2
# Tests that a fast lane is given, however many lanes there are
_LEAST = 16
# Seconds of work that a lane is given
SLICE = 4.0
# Lanes that die one after another on the same test
DEATHS = 3
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
        spawn: lane_spawn.Spawn = lane_spawn.spawn_lane,
        schedule: Schedule | None = None,
    ) -> None:
        self._spawn, self._schedule = spawn, schedule
        quick = () if schedule is None else schedule.quick
        self._begin = lane_messages.Begin(campaign, plan.supports, limits, schedule is not None, quick)
        self._next, self._recorded, self._tests = first, first, tests
        # These run before other work begins.
        self._further: list[lane_messages.Further] = []
        # Tests a second of one lane
        self._rate = 0.0
        # That lanes can be in at once
        batches = lanes if schedule is None else schedule.back
        # tests that a lane is given at a time
        self._most = min(BATCH, max(_LEAST, BATCH * batches // max(1, lanes)))
        # By the first number that was not answered
        self._deaths: dict[int, int] = {}
        self._wanted, self._allowed, self._under_way = lanes, 1, 0
        # What lanes say, what ended a thread, and None for each question that is done with.
        self._said: SimpleQueue[lane_messages.Answer | BaseException | None] = SimpleQueue()
        self._threads = ThreadPoolExecutor(lanes, "lane")
        # Of the lanes and of the two fields below
        self._lock = threading.Lock()
        self._lanes: set[lane_spawn.LaneClient] = set()
        self._idle: list[lane_spawn.LaneClient] = []
        self._is_stopping = self._is_ended = False
        self._submit_questions()

    def __enter__(self) -> "LanePool":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_stopping = self._is_ended = True
            lanes = list(self._lanes)
        # Outside of the lock, since ending one waits for its process.
        for lane in lanes:
            lane.end_lane()
        self._threads.shutdown(cancel_futures=True)

    @property
    def is_idle(self) -> bool:
        """Whether every lane is idle, without pending questions."""
        return not self._under_way

    def stop_lanes(self) -> None:
        """Tell lanes to end with their current piece."""
        with self._lock:
            self._is_stopping = True
            for lane in self._lanes:
                lane.send_stop()

    def note_recorded(self, upto: int) -> None:
        """Note that tests below `upto` are recorded, so that lanes may proceed further."""
        self._recorded = upto
        self._submit_questions()

    def add_requests(self, questions: Iterable[lane_messages.Further]) -> None:
        """Queue these requests for the next free lanes."""
        self._further += questions
        self._submit_questions()

    def iter_results(self, seconds: float) -> Iterator[lane_messages.Done]:
        """Yield the results of the next answer, or nothing after some time.

        Raises:
            BadInput: If a lane cannot continue.
        """
        try:
            said = self._said.get(timeout=max(0.0, min(seconds, _HEED)))
        except Empty:
            return
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, lane_messages.Failed):
            raise BadInput(said.sentence)
        if said is None:
            self._under_way -= 1
        else:
            self._allowed = self._wanted
            # Tests on further targets say nothing about the speed of a range.
            self._rate = said.tests_per_second if isinstance(said, lane_messages.Finished) else self._rate
        self._submit_questions()
        if said is not None:
            yield from lane_messages.iter_tests(said)

    def _submit_questions(self) -> None:
        """Submit the next questions to idle threads."""
        while self._under_way < self._allowed and not self._is_stopping:
            question = self._further.pop(0) if self._further else self._choose_range()
            if question is None:
                return
            self._under_way += 1
            self._threads.submit(self._run_question, question)

    def _choose_range(self) -> lane_messages.NumberRange | None:
        """Choose the next numbers; None if they are too far ahead of the recorded or decided tests."""
        decision = None if self._schedule is None else self._schedule.get_decision(self._next // BATCH)
        if self._schedule is not None and decision is None:
            return None
        most = max(1, min(self._most, int(SLICE * self._rate))) if self._rate else 1
        # Never across two batches: each has a decision of its own.
        stop = min(self._next + most, self._next - self._next % BATCH + BATCH)
        stop = stop if self._tests is None else min(stop, self._tests)
        # Finished tests wait in memory for an earlier one that is slow.
        if stop <= self._next or self._next - self._recorded > AHEAD * BATCH * self._allowed:
            return None
        given, self._next = lane_messages.NumberRange(self._next, stop, decision), stop
        return given

    def _run_question(self, question: lane_messages.Question) -> None:
        """Get a question answered in a thread, even if lanes die from it."""
        try:
            while (rest := self._ask_lane(question)) is not None:
                question = rest
        except BaseException as error:  # noqa: BLE001
            # The main thread raises it
            self._said.put(error)
        finally:
            self._said.put(None)

    def _ask_lane(self, question: lane_messages.Question) -> lane_messages.Question | None:
        """Pass a question to a lane in a thread, and return the part it leaves when it dies, if any."""
        lane = self._take_lane()
        try:
            for answer in lane.iter_answers(question):
                if isinstance(answer, lane_messages.Finished) and isinstance(
                    question, lane_messages.NumberRange
                ):
                    # If the lane dies now, another one goes on behind what was answered.
                    question = lane_messages.NumberRange(answer.upto, question.stop, question.decision)
                self._said.put(answer)
        except (EOFError, OSError):
            return self._bury_lane(lane, question)
        with self._lock:
            self._idle.append(lane)
        return None

    def _take_lane(self) -> lane_spawn.LaneClient:
        """Take an idle lane, or start a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            lane = self._spawn()
            self._lanes.add(lane)
            # The request to stop was sent before this lane was in the list.
            if self._is_stopping:
                lane.send_stop()
            if self._is_ended:
                lane.end_lane()
        # It is dead, which the next call reports.
        with suppress(OSError):
            lane.send_begin(self._begin)
        return lane

    def _bury_lane(
        self, lane: lane_spawn.LaneClient, question: lane_messages.Question
    ) -> lane_messages.Question | None:
        """Remove a dead lane and return the unanswered part of its question for another lane."""
        status = lane.end_lane()
        with self._lock:
            self._lanes.discard(lane)
            first = question.start if isinstance(question, lane_messages.NumberRange) else question.number
            # By the first unanswered test, since that is most likely what kills the lane.
            times = self._deaths[first] = self._deaths.get(first, 0) + 1
        if self._is_ended or (self._is_stopping and times < DEATHS):
            return None
        if times >= DEATHS:
            raise BadInput(
                f"the process that runs the tests from {first} on ended {times} times (status {status});"
                f" finished tests are kept; continue with {shown('--resume')}"
            )
        return question
