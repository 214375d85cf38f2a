"""A campaign: programs are generated, run on every target, judged, and what fails is stored.

Tests are numbered, and the number gives the seed: what is done is known by one number, whatever the order in
which lanes finish, because results are recorded in order. Lanes are processes that make, run and judge by
themselves (triage/campaign/lane_process.py); this one gives them numbers and writes what comes back.
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence

from opsieve.backends.coverage.coverage import Coverage
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.guidance import Planned, Programs
from opsieve.triage.campaign.guided_run import GRACE, run_guided
from opsieve.triage.campaign.lane_pool import LanePool
from opsieve.triage.campaign.lane_spawn import Spawn, spawn
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.schedule import resumed
from opsieve.triage.campaign.tests_in_order import TestsInOrder
from opsieve.triage.store.finished_test import Campaign, FinishedTest
from opsieve.triage.store.index.index_file import DiskFull
from opsieve.triage.store.store import Store

# seconds beyond the end that the first test of a run may take: on a busy machine imports alone outlast a
# short run
_FIRST = 60.0


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
            store, campaign, limits, lanes=lanes, tests=tests, seconds=seconds, programs=programs, coverage=coverage,
            metamorphic=plan.metamorphic, further=plan.further,
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
