"""Campaigns whose programs hang on what the ones before reached: lanes are threads of this process, which all
look at one coverage.
"""

import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass
from queue import SimpleQueue

from opsieve.backends.coverage.coverage import Coverage
from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case
from opsieve.triage.campaign.guidance import Programs
from opsieve.triage.campaign.testing import do_tests
from opsieve.triage.store.finished_test import Campaign, FinishedTest, case_of
from opsieve.triage.store.store import Store

_NO_CHOICE = OracleChoice()
CHUNK = 16  # tests that a lane does at a time, at most; what is lost when the process is killed is done again
SLICE = 2.0  # seconds that a lane's chunk should take: slow targets have fewer tests in one
# Seconds that chunks under way have to end when the time is up; what has not is dropped, as by a kill.
GRACE = 2 * SLICE


class LaneStopped(Exception):
    """A lane was asked to stop."""


class LaneWorkers(Workers):
    """Workers that stop between two answers once they are asked to."""

    def __init__(self, limits: Limits, stop: threading.Event, coverage: Coverage | None = None):
        super().__init__(limits, coverage=coverage)
        self._stop = stop

    def observe_many(
        self, target: ResolvedTarget, tests: Sequence[Test], *, fresh: bool = False, repeat: int = 0
    ) -> Iterator[Observation]:
        """As `Workers.observe_many`; LaneStopped when this is the time to."""
        with closing(super().observe_many(target, tests, fresh=fresh, repeat=repeat)) as answers:  # type: ignore[type-var]
            for answer in answers:
                if self._stop.is_set():
                    raise LaneStopped
                yield answer


@dataclass(slots=True)
class _Chunks:
    """Tests that a lane does at a time; `size` is how many the next chunk should have, for all lanes."""

    campaign: Campaign
    programs: Programs
    end: float  # of the campaign, in seconds of the monotonic clock
    idle: SimpleQueue[ObservationCache]  # those of the lanes that wait for work
    metamorphic: bool
    further: OracleChoice
    size: int = 1  # until it is known how long a test takes

    def do(self, cases: dict[int, Case]) -> list[FinishedTest]:
        """Do one chunk, on a lane that is idle; LaneStopped when it would begin after the end."""
        lab, started = self.idle.get(), time.monotonic()
        try:
            if started > self.end:
                raise LaneStopped
            lowered_only = {number for number in cases if self.programs.lowered_only(number)}
            done = do_tests(self.campaign, cases, lab, lowered_only, self.metamorphic, self.further)
            taken = time.monotonic() - started + 1e-9
            self.size = max(1, min(CHUNK, 2 * len(cases), int(SLICE * len(cases) / taken)))
            return done
        finally:
            lab.forget()
            self.idle.put(lab)


def run_guided(
    store: Store,
    campaign: Campaign,
    limits: Limits,
    *,
    lanes: int = 1,
    tests: int | None = None,
    seconds: float = 0,
    programs: Programs,
    coverage: Coverage | None = None,
    metamorphic: bool = False,
    further: OracleChoice = _NO_CHOICE,
) -> Generator[int, None, None]:
    """As `campaign.run`, with programs that hang on what was recorded, and `coverage` by which is recorded
    what was reached.

    Each of the `lanes` is a thread with workers of its own; programs are made here, in order.
    """
    stop = threading.Event()
    end = time.monotonic() + seconds if seconds else float("inf")
    first = begun = store.done(campaign)
    with ExitStack() as stack:
        idle: SimpleQueue[ObservationCache] = SimpleQueue()
        for _ in range(lanes):
            idle.put(ObservationCache(stack.enter_context(LaneWorkers(limits, stop, coverage))))
        pool = stack.enter_context(ThreadPoolExecutor(lanes, "lane"))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        stack.callback(stop.set)  # called first, before the pool waits for its threads
        waiting: deque[Future[list[FinishedTest]]] = deque()
        chunks = _Chunks(campaign, programs, end, idle, metamorphic, further)

        while True:
            while len(waiting) <= lanes and time.monotonic() < end and (tests is None or begun < tests):
                numbers = range(
                    begun, begun + chunks.size if tests is None else min(begun + chunks.size, tests)
                )
                # Made here, in order: strategies that are guided by what came before need no second go.
                waiting.append(pool.submit(chunks.do, {number: programs.case(number) for number in numbers}))
                begun = numbers.stop
            if not waiting:
                return
            left = None if end == float("inf") else max(0.0, end + GRACE - time.monotonic())
            if not wait([waiting[0]], left).done:
                return
            try:
                done = waiting.popleft().result()
            except LaneStopped:  # it was to begin after the end
                return
            store.record(campaign, done)
            for test in done:
                failed = any(verdict != "pass" for verdict, _ in test.answers.values())
                programs.learn(test.number, case_of(test), test.reached, failed)
            first += len(done)
            yield first
