"""Whether a slow target leaves a quick one its share of the time: onnxruntime alone, and with TVM in the campaign.

    python benchmarks/campaign_pace.py [--seconds S] [--jobs J] [--slow TARGET]

Both campaigns run for S seconds of CPU of everything that they start, counted from the 64th test on (imports are left out). Of two targets
each has half of the time, so onnxruntime's tests in a second of CPU, with the slow target beside it, are to be compared with half of those without.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from campaign_rate import children_cpu

from opsieve.backends.probing.prober import Prober
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygote import Limits
from opsieve.triage.campaign.campaign import new_campaign, run
from opsieve.triage.campaign.campaign_tables import support
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.costs import stated
from opsieve.triage.store.store import Store

WARM = 64  # tests before the measurement


def measured(names: list[str], seconds: float, jobs: int) -> dict[str, float]:
    """Tests in a second of CPU, by target, and what was found."""
    targets = [resolve(name) for name in names]
    with Workers() as workers:
        supports = tuple(support(Prober(workers, target).table()) for target in targets)
    plan = replace(CampaignPlan(supports=supports), costs=stated(targets))
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as store:
        campaign = new_campaign(1, targets, plan)
        store.begin(campaign)
        begun: tuple[float, dict[str, int]] | None = None
        cpu = 0.0
        for done in run(store, campaign, plan, Limits(seconds=30), lanes=jobs):
            if done < WARM:
                continue
            spent = time.process_time() + children_cpu(-1)
            tests = {name: sum(counts.values()) for name, counts in store.totals(campaign).items()}
            begun = begun or (spent, tests)
            cpu = spent - begun[0]
            if cpu >= seconds:
                break
        assert begun is not None
        found = {name: (tests[name] - begun[1][name]) / cpu for name in tests}
        return {**found, "cpu": cpu, "fingerprints": store.different(campaign), "clusters": store.clusters(campaign)}


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--slow", default="tvm")
    given = parser.parse_args()
    alone = measured(["onnxruntime"], given.seconds / 2, given.jobs)
    beside = measured(["onnxruntime", given.slow], given.seconds, given.jobs)
    share = beside["onnxruntime"] / (alone["onnxruntime"] / 2)
    print(json.dumps({"alone": alone, "beside": beside, "of_its_share": round(share, 3)}))


if __name__ == "__main__":
    main()
