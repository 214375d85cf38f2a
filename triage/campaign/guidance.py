"""Campaigns whose programs depend on earlier coverage or on a corpus, and those whose coverage is recorded.

Their lanes are threads of this process, which share one coverage; programs are made here, in order. Without a
loop a program follows from the campaign's seed and its number alone.

In Tzer's loop (gen/irs/tir/fuzzing.py) a TIR function with its passes becomes a seed if it reached new native
code. The first seeds are functions that TVM makes of ONNX models and of Relax modules (Tzer, section 4.2,
takes those of TVM's model zoo). Relax modules are mutated from a corpus: those that TVM's importer makes of
ONNX models. For ONNX models coverage is only recorded, since building on models that reach something new did
not pay (docs/benchmarks/tir.md).

Probes that come and go between equal runs of a program do not count as new coverage; AFL calls this
calibration. Which blocks run depends on the addresses of a hash table's keys, on the state of a memory pool,
on a timer. A program is run several times in one worker, every probe planted anew: probes reached by some of
these runs but not all are unstable. The first run is left out, since it loads libraries once. Some code runs
by the clock: onnxruntime has a task of 180 functions that runs once a second. So the first calibration of a
build lasts some seconds, however fast its programs are.
"""

import threading
import time
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from opsieve.backends import observation, registry
from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.testing import run_tests
from opsieve.triage.store.finished_test import Campaign, FinishedTest, get_case
from opsieve.triage.store.store import Store


class Programs(Protocol):
    """A source of programs."""

    def make_case(self, number: int) -> Case:
        """Make the case of a test; called once for each, in order."""

    def is_lowered_only(self, number: int) -> bool:
        """Whether a target that can lower a program without generating code only does that if it succeeds."""

    def learn_result(self, number: int, case: Case, new: int, verdicts: Collection[str]) -> None:
        """Take in how many probes a test was the first to reach, and its verdicts; called in the order of
        the tests.
        """


class Planned:
    """Programs that follow from a plan and a seed alone."""

    def __init__(self, plan: CampaignPlan, seed: int):
        self._plan, self._seed = plan, seed

    def make_case(self, number: int) -> Case:
        """Make the case of a test."""
        return self._plan.make_case(self._seed, number)

    def is_lowered_only(self, number: int) -> bool:
        """Return False: every program runs."""
        return False

    def learn_result(self, number: int, case: Case, new: int, verdicts: Collection[str]) -> None:
        """Ignore the result."""


_NO_CHOICE = OracleChoice()
# The limit on tests of a chunk; a killed process repeats its chunk.
CHUNK = 16
# The target duration of a chunk in seconds: slow targets have fewer tests per chunk.
SLICE = 2.0
# Seconds that chunks under way have to end when the time is up; what has not is dropped, as by a kill.
GRACE = 2 * SLICE


class LaneStopped(Exception):
    """A lane has to stop."""


class LaneWorkers(Workers):
    """Workers that stop between two answers on request."""

    def __init__(self, limits: Limits, stop: threading.Event, coverage: Coverage | None = None):
        super().__init__(limits, coverage=coverage)
        self._stop = stop

    def observe_many(
        self, target: registry.ResolvedTarget, tests: Sequence[Test], *, fresh: bool = False, repeat: int = 0
    ) -> Iterator[observation.Observation]:
        """Observe as `Workers.observe_many` does; raise LaneStopped when it is time to stop."""
        answered = super().observe_many(target, tests, fresh=fresh, repeat=repeat)
        # Closing at once frees the worker's lock; the garbage collector would do so at some later time.
        with closing(answered) as answers:  # type: ignore[type-var]
            for answer in answers:
                if self._stop.is_set():
                    raise LaneStopped
                yield answer


@dataclass(slots=True)
class _Chunks:
    """Tests that a lane does at a time.

    `end` is that of the campaign in seconds of the monotonic clock, `idle` are the caches of waiting lanes,
    `size` is the size of the next chunk for all lanes (1 until the time of a test is known).
    """

    campaign: Campaign
    programs: Programs
    # Of the campaign, in seconds of the monotonic clock
    end: float
    # Those of the lanes that wait for work
    idle: SimpleQueue[ObservationCache]
    metamorphic: bool
    further: OracleChoice
    # Until it is known how long a test takes
    size: int = 1

    def run_chunk(self, cases: dict[int, Case]) -> list[FinishedTest]:
        """Run one chunk on an idle lane; raise LaneStopped if it would begin after the end."""
        lab, started = self.idle.get(), time.monotonic()
        try:
            if started > self.end:
                raise LaneStopped
            lowered_only = {number for number in cases if self.programs.is_lowered_only(number)}
            done = run_tests(self.campaign, cases, lab, lowered_only, self.metamorphic, self.further)
            # Not zero: it is divided by.
            taken = time.monotonic() - started + 1e-9
            # At most doubled, since the first tests are slow to start and later ones may be slower.
            self.size = max(1, min(CHUNK, 2 * len(cases), int(SLICE * len(cases) / taken)))
            return done
        finally:
            lab.forget_all()
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
    """Run a campaign as `campaign.run_campaign` does, with programs that depend on recorded results, and with
    `coverage`.

    Each of the `lanes` is a thread with workers of its own; programs are made here, in order.
    """
    stop = threading.Event()
    end = time.monotonic() + seconds if seconds else float("inf")
    first = begun = store.count_done(campaign)
    with ExitStack() as stack:
        idle: SimpleQueue[ObservationCache] = SimpleQueue()
        for _ in range(lanes):
            idle.put(ObservationCache(stack.enter_context(LaneWorkers(limits, stop, coverage))))
        pool = stack.enter_context(ThreadPoolExecutor(lanes, "lane"))
        # Without waiting: threads notice `stop` after their current answer.
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        # Called first, before the pool waits for its threads
        stack.callback(stop.set)
        waiting: deque[Future[list[FinishedTest]]] = deque()
        chunks = _Chunks(campaign, programs, end, idle, metamorphic, further)

        while True:
            while len(waiting) <= lanes and time.monotonic() < end and (tests is None or begun < tests):
                numbers = range(
                    begun, begun + chunks.size if tests is None else min(begun + chunks.size, tests)
                )
                # Made here, in order: strategies that are guided by what came before need no second go.
                waiting.append(
                    pool.submit(chunks.run_chunk, {number: programs.make_case(number) for number in numbers})
                )
                begun = numbers.stop
            if not waiting:
                return
            left = None if end == float("inf") else max(0.0, end + GRACE - time.monotonic())
            # The oldest chunk only, because results are recorded in order.
            if not wait([waiting[0]], left).done:
                return
            try:
                done = waiting.popleft().result()
            except LaneStopped:
                # It was to begin after the end
                return
            store.record_tests(campaign, done)
            for test in done:
                verdicts = [verdict for verdict, _ in test.answers.values()]
                programs.learn_result(test.number, get_case(test), test.reached, verdicts)
            first += len(done)
            yield first


PROGRAMS = 4
# Of each, after the first
RUNS = 8
# That the first program of a build is run for
SECONDS = 2.5


def find_unstable(runs: Iterable[frozenset[int]]) -> frozenset[int]:
    """Return the probes that are in some of these sets but not in all."""
    found = list(runs)
    return frozenset().union(*found) - frozenset.intersection(*found) if found else frozenset()


def exclude_unstable(
    workers: Workers,
    coverage: Coverage,
    targets: Sequence[registry.ResolvedTarget],
    cases: Sequence[Case],
    seconds: float = SECONDS,
) -> int:
    """Exclude the probes that come and go while these programs are run repeatedly, and return their number.

    They stay excluded by build-id. Programs that a target rejects or fails are skipped.
    """
    count = 0
    for target in targets:
        if not coverage.traces(target.name):
            continue
        # From here on it has probes
        workers.version(target)
        probes = coverage.maps().get(target.zygote)
        if not isinstance(probes, Probes):
            continue
        left = 0.0 if probes.is_calibrated else seconds
        moving: set[int] = set()
        for case in cases:
            begun, runs = time.monotonic(), _observe_runs(workers, target, case)
            while runs and time.monotonic() - begun < left:
                runs += _observe_runs(workers, target, case)
            if runs:
                left = 0.0
            moving |= find_unstable(runs)
        fresh = probes.stable(sorted(moving))
        probes.disregard(fresh)
        count += len(fresh)
    return count


def _observe_runs(workers: Workers, target: registry.ResolvedTarget, case: Case) -> list[frozenset[int]]:
    """Return the probes reached by each of several runs of a program; empty unless the runs end well."""
    answers = list(workers.observe_many(target, [Test(case.program, case.inputs, again=True)] * (1 + RUNS)))[
        1:
    ]
    return [frozenset(item.reached) for item in answers if item.outcome == "ok" and item.reached is not None]
