"""Whether other targets leave a quick one its share of the time: onnxruntime alone, and with TVM, or more, in
the campaign.

    python benchmarks/campaign_pace.py [--seconds S] [--jobs J] [--beside TARGET]...

Both campaigns run for S seconds of CPU of everything that they start (half of that alone), counted from the
64th test on (imports are left out). Of N targets each has an Nth of the time, so onnxruntime's tests in a
second of CPU, with the others beside it, are to be compared with an Nth of those without. `of_compilers` is
the share of that CPU which the compilers' processes took, their unoptimised builds and the reference
included.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaign_rate import children_cpu
from process_tree import cpu_by_compiler

from opsieve.backends.probing.prober import Prober
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.campaign import new_campaign, run
from opsieve.triage.campaign.campaign_tables import support
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.costs import stated
from opsieve.triage.store.store import Store

WARM = 64  # tests before the measurement


def measured(names: list[str], seconds: float, jobs: int) -> dict[str, Any]:
    """Tests in a second of CPU, by target, how many it did, the CPU of each compiler (all builds, confirming
    included), and what was found.
    """
    targets = [resolve(name) for name in names]
    with Workers() as workers:
        supports = tuple(support(Prober(workers, target).table()) for target in targets)
    plan = replace(CampaignPlan(supports=supports), costs=stated(targets))
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as store:
        campaign = new_campaign(1, targets, plan)
        store.begin(campaign)
        begun: tuple[float, dict[str, int]] | None = None
        cpu, parts = 0.0, dict[str, float]()
        for done in run(store, campaign, plan, Limits(seconds=30), lanes=jobs):
            if done < WARM:
                continue
            spent = time.process_time() + children_cpu(-1)
            tests = {name: sum(counts.values()) for name, counts in store.totals(campaign).items()}
            if begun is None:
                begun, parts = (spent, tests), cpu_by_compiler(os.getpid())
            cpu = spent - begun[0]
            if cpu >= seconds:
                parts = {
                    name: used - parts.get(name, 0.0) for name, used in cpu_by_compiler(os.getpid()).items()
                }
                break
        assert begun is not None
        found = {name: (tests[name] - begun[1][name]) / cpu for name in tests}
        own = parts.get("main", 0.0) + parts.get("lane", 0.0)
        return {
            **found,
            "cpu": cpu,
            "of_compilers": 1 - own / (sum(parts.values()) or 1.0),
            "tests_of": {name: tests[name] - begun[1][name] for name in tests},
            "cpu_of": {name: round(used, 1) for name, used in parts.items()},
            "fingerprints": store.different(campaign),
            "clusters": store.clusters(campaign),
        }


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--beside", action="append")
    given = parser.parse_args()
    alone = measured(["onnxruntime"], given.seconds / 2, given.jobs)
    names = ["onnxruntime", *(given.beside or ["tvm"])]
    beside = measured(names, given.seconds, given.jobs)
    share = beside["onnxruntime"] / (alone["onnxruntime"] / len(names))
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"alone": alone, "beside": beside, "of_its_share": round(share, 3), "load": load}))


if __name__ == "__main__":
    main()
