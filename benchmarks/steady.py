"""What a test costs a campaign that has begun: imports and the first tests are left out."""

import os
import time
from pathlib import Path

from process_tree import samples

from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.campaign import run_campaign
from opsieve.triage.campaign.lane_spawn import Spawn, spawn_lane
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.store import Store

WARM = 256  # tests before the measurement


def steady(
    folder: Path, campaign: Campaign, plan: CampaignPlan, lanes: int, tests: int, start: Spawn = spawn_lane
) -> tuple[float, float]:
    """Milliseconds of CPU a test of everything that runs, and tests a second on the wall's clock, in a new
    store.
    """
    with Store(folder) as store:
        store.begin_campaign(campaign)
        begun: tuple[float, float, int] | None = None
        total = WARM + tests
        for done in run_campaign(
            store, campaign, plan, Limits(seconds=20), lanes=lanes, tests=total, start=start
        ):
            if done < WARM or (begun and done < total):
                continue
            now = (sum(sample.cpu for sample in samples(os.getpid())), time.perf_counter(), done)
            begun = begun or now
        assert begun is not None
        cpu, wall, count = (b - a for a, b in zip(begun, now, strict=True))
        return 1000 * cpu / count, count / wall
