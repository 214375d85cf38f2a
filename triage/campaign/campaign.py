"""A campaign: generate programs, run them on every target, judge them, and store the failures.

Tests are numbered, and the number gives the seed: one number describes the finished tests, whatever the order
in which workers finish, because results are recorded in order. Lanes are worker processes that generate, run
and judge (triage/campaign/lane_process.py); this process assigns numbers and records the results. If the
schedule decides so, further targets run a test before it is recorded.
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from opsieve.backends.coverage.coverage import Coverage
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign import lane_messages, lane_pool, lane_spawn
from opsieve.triage.campaign.guidance import GRACE, Planned, Programs, run_guided
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.schedule import Schedule, resume_schedule
from opsieve.triage.store.finished_test import Campaign, FinishedTest
from opsieve.triage.store.index.index_file import DiskFull
from opsieve.triage.store.store import Store

# seconds beyond the end that the first test of a run may take: on a busy machine imports alone outlast a
# short run
_FIRST = 60.0


class TestsInOrder:
    """The tests of a campaign from number `first` on.

    Decisions are made in the order of the tests, ahead of the recording.
    """

    # pytest: not a test class
    __test__ = False

    def __init__(self, schedule: Schedule | None, first: int):
        self._schedule = schedule
        self._decided = self._recorded = first
        self._arrived: dict[int, lane_messages.Done] = {}
        # The numbers of tests that further targets run.
        self._open: set[int] = set()
        # The state learnt when a test was chosen.
        self._changes: dict[int, dict[str, str]] = {}

    @property
    def recorded_count(self) -> int:
        """`take_finished` has returned the tests below this number."""
        return self._recorded

    def add_result(self, done: lane_messages.Done) -> None:
        """Add a test that a lane finished, on the first or on further targets."""
        number = done.test.number
        before = self._arrived.get(number)
        if done.further and before is not None:
            done = lane_messages.Done(
                replace(
                    before.test,
                    case=before.test.case or done.test.case,
                    answers={**before.test.answers, **done.test.answers},
                    findings=(*before.test.findings, *done.test.findings),
                    non_bugs=(*before.test.non_bugs, *done.test.non_bugs),
                    reached=before.test.reached + done.test.reached,
                )
            )
            self._open.discard(number)
        self._arrived[number] = done

    def iter_requests(self) -> Iterator[lane_messages.Further]:
        """Yield requests for further targets, as far as all earlier tests have arrived."""
        while self._decided in self._arrived:
            done = self._arrived[self._decided]
            if self._schedule is not None:
                asked, self._changes[self._decided] = self._schedule.choose_further(done.test)
                if asked and done.case is not None:
                    self._open.add(self._decided)
                    yield lane_messages.Further(self._decided, done.case, asked, tuple(done.test.answers))
                # The model is needed only to ask further targets; waiting tests would hold all models in
                # memory.
                self._arrived[self._decided] = replace(done, case=None)
            self._decided += 1

    def take_finished(self) -> tuple[list[FinishedTest], dict[str, str]]:
        """Return the next completely finished tests, and the schedule's state to store with them."""
        tests: list[FinishedTest] = []
        learnt: dict[str, str] = {}
        while self._recorded < self._decided and self._recorded not in self._open:
            test = self._arrived.pop(self._recorded).test
            tests.append(test)
            if self._schedule is not None:
                learnt |= self._changes.pop(self._recorded) | self._schedule.note_test(test)
            self._recorded += 1
        if self._schedule is not None and tests:
            learnt |= self._schedule.take_changes()
        return tests, learnt


def make_campaign(seed: int, targets: Sequence[ResolvedTarget], plan: CampaignPlan) -> Campaign:
    """Make the campaign of a seed and a plan on targets; equal arguments give the same id."""
    names = tuple(dict.fromkeys(target.display for target in targets))
    # Neither the time nor the machine: a resumed campaign must find its own id again.
    text = json.dumps([plan.generator, seed, names])
    return Campaign(hashlib.sha256(text.encode()).hexdigest()[:10], plan.generator, seed, names)


def run_campaign(
    store: Store,
    campaign: Campaign,
    plan: CampaignPlan,
    limits: Limits,
    *,
    lanes: int = 1,
    tests: int | None = None,
    seconds: float = 0,
    programs: Programs | None = None,
    coverage: Coverage | None = None,
    full: Callable[[DiskFull], bool] = lambda error: False,
    start: lane_spawn.Spawn = lane_spawn.spawn_lane,
) -> Generator[int, None, None]:
    """Continue a campaign until `tests` are finished in total, or for `seconds` of wall time (0: no end).

    After that no tests start, and running ones that do not end soon are dropped: a resumed campaign repeats
    them. The first test is waited for longer. `programs` default to those of the plan
    (triage/campaign/guidance.py); with `coverage` the reached native code of the targets is recorded and
    passed to `programs`. If the disk is `full`, that function decides whether to try again. `start` starts a
    lane: a process here, unless it runs on another machine. Yields the number of finished tests each time
    some were recorded. When the generator is closed or interrupted, all lanes and workers end; recorded tests
    are kept, others are lost.

    Raises:
        BadInput: From the store, or if lanes die repeatedly.
    """
    if coverage is not None or (programs is not None and type(programs) is not Planned):
        programs = programs or Planned(plan, campaign.seed)
        yield from run_guided(
            store, campaign, limits, lanes=lanes, tests=tests, seconds=seconds, programs=programs,
            coverage=coverage, metamorphic=plan.metamorphic, further=plan.further,
        )  # fmt: skip
        return
    end = time.monotonic() + seconds if seconds else float("inf")
    recorded = store.count_done(campaign)
    schedule = resume_schedule(store, campaign, plan) if plan.costs else None
    order = TestsInOrder(schedule, recorded)
    with lane_pool.LanePool(campaign, plan, limits, lanes, recorded, tests, start, schedule) as pool:
        while tests is None or order.recorded_count < tests:
            now = time.monotonic()
            if now >= end:
                pool.stop_lanes()
            grace = GRACE if order.recorded_count > recorded else _FIRST
            if pool.is_idle or now >= end + grace:
                return
            for done in pool.iter_results((end if now < end else end + grace) - now):
                order.add_result(done)
            pool.add_requests(order.iter_requests())
            ready, learnt = order.take_finished()
            if ready:
                # The caller may have freed space or asked the user; finished tests are too dear to lose.
                while not _try_recording(store, campaign, ready, learnt, full):
                    pass
                pool.note_recorded(order.recorded_count)
                yield order.recorded_count


def _try_recording(
    store: Store,
    campaign: Campaign,
    tests: Sequence[FinishedTest],
    learnt: Mapping[str, str],
    full: Callable[[DiskFull], bool],
) -> bool:
    """Record tests; returns whether it succeeded, and raises DiskFull if there shall be no further
    attempt.
    """
    try:
        store.record_tests(campaign, tests, learnt)
    except DiskFull as error:
        if not full(error):
            raise
        return False
    return True
