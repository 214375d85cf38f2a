"""A campaign: programs are generated, run on every target, judged, and what fails is stored.

Tests are numbered, and the number gives the seed: what is done is known by one number, whatever the order in
which lanes finish, because results are recorded in order. Lanes are processes that make, run and judge by
themselves (triage/campaign/lane_process.py); this one gives them numbers and writes what comes back. Where
the schedule decides so, further targets are asked about a test before it is recorded.
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from opsieve.backends.coverage.coverage import Coverage
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.guidance import GRACE, Planned, Programs, run_guided
from opsieve.triage.campaign.lane_messages import Done, Further
from opsieve.triage.campaign.lane_pool import LanePool
from opsieve.triage.campaign.lane_spawn import Spawn, spawn
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.schedule import Schedule, resumed
from opsieve.triage.store.finished_test import Campaign, FinishedTest
from opsieve.triage.store.index.index_file import DiskFull
from opsieve.triage.store.store import Store

# seconds beyond the end that the first test of a run may take: on a busy machine imports alone outlast a
# short run
_FIRST = 60.0


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


def new_campaign(seed: int, targets: Sequence[ResolvedTarget], plan: CampaignPlan) -> Campaign:
    """The campaign of a seed and a plan on targets; the same ones have the same id."""
    names = tuple(dict.fromkeys(target.display for target in targets))
    text = json.dumps([plan.generator, seed, names])
    return Campaign(hashlib.sha256(text.encode()).hexdigest()[:10], plan.generator, seed, names)


def run(
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
    start: Spawn = spawn,
) -> Generator[int, None, None]:
    """Go on with a campaign until `tests` of it are done in all, or `seconds` of wall time are over (0: no
    end).

    No tests are begun after that, and those under way that do not end soon are dropped: a resumed campaign
    does them again. The first one is waited for longer.

    `programs` are those of the plan unless others are given (triage/campaign/guidance.py); with `coverage`
    what the targets' native code was reached of is recorded by it, and given to `programs`. Where the disk is
    `full` that is asked whether to try again. `start` starts a lane: a process here, unless it is another
    machine's.

    Yields how many tests are done, each time some were recorded. When the generator is closed, or is
    interrupted, all lanes and workers end; what was recorded stays, nothing else does. BadInput from the
    store, or when lanes die again and again.
    """
    if coverage is not None or (programs is not None and type(programs) is not Planned):
        programs = programs or Planned(plan, campaign.seed)
        yield from run_guided(
            store, campaign, limits, lanes=lanes, tests=tests, seconds=seconds, programs=programs,
            coverage=coverage, metamorphic=plan.metamorphic, further=plan.further,
        )  # fmt: skip
        return
    end = time.monotonic() + seconds if seconds else float("inf")
    recorded = store.done(campaign)
    schedule = resumed(store, campaign, plan) if plan.costs else None
    order = TestsInOrder(schedule, recorded)
    with LanePool(campaign, plan, limits, lanes, recorded, tests, start, schedule) as pool:
        while tests is None or order.recorded < tests:
            now = time.monotonic()
            if now >= end:
                pool.stop()
            grace = GRACE if order.recorded > recorded else _FIRST
            if pool.idle or now >= end + grace:
                return
            for done in pool.wait((end if now < end else end + grace) - now):
                order.arrive(done)
            pool.ask(order.questions())
            ready, learnt = order.ready()
            if ready:
                while not _recorded(store, campaign, ready, learnt, full):
                    pass
                pool.recorded(order.recorded)
                yield order.recorded


def _recorded(
    store: Store,
    campaign: Campaign,
    tests: Sequence[FinishedTest],
    learnt: Mapping[str, str],
    full: Callable[[DiskFull], bool],
) -> bool:
    """Record tests; whether that was done. DiskFull when nobody wants to try again."""
    try:
        store.record(campaign, tests, learnt)
    except DiskFull as error:
        if not full(error):
            raise
        return False
    return True
