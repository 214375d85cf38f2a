"""What a Dask cluster costs a campaign beside lanes of this machine: the same tests both ways, turn by turn.

    python benchmarks/cluster_overhead.py [--tests 1024] [--jobs 2] [--rounds 3]

Two levels of onnxruntime, `mix` of 5 to 30 nodes. The cluster is a scheduler and as many worker processes of one thread as there are lanes,
all on this machine, so equal cores do equal work. Counted from the 256th test on, in which imports lie: CPU of everything (main process,
lanes, compilers, scheduler, workers) and tests a second on the wall's clock. The stores of both must be equal. Prints one JSON object;
`overhead_by_cpu` is what the cluster takes more, as a share.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import distributed
from campaign_faults import contents
from campaign_rate import LEVELS, tables
from steady import steady

from opsieve.backends.registry import resolve
from opsieve.triage.campaign.campaign import new_campaign
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.campaign.schedule.costs import stated
from opsieve.triage.cluster.cluster import cluster_lanes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=1024)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    targets = [resolve(level) for level in LEVELS]
    plan = CampaignPlan("mix", USUAL, tables(None), costs=stated(targets))
    found: dict[str, list[tuple[float, float]]] = {"here": [], "cluster": []}
    equal = True
    for seed in range(given.rounds):
        campaign = new_campaign(seed, targets, plan)
        with tempfile.TemporaryDirectory() as folder:
            here, there = Path(folder) / "here", Path(folder) / "there"
            found["here"].append(steady(here, campaign, plan, given.jobs, given.tests))
            with (
                distributed.LocalCluster(
                    n_workers=given.jobs, threads_per_worker=1, processes=True, dashboard_address=None
                ) as cluster,
                cluster_lanes(cluster.scheduler_address, campaign, {}, print) as (_, start),
            ):
                found["cluster"].append(steady(there, campaign, plan, given.jobs, given.tests, start))
            equal = equal and contents(here) == contents(there)
    print(json.dumps(facts(found, given, equal)))


def facts(found: dict[str, list[tuple[float, float]]], given: argparse.Namespace, equal: bool) -> dict[str, Any]:
    """Medians over the rounds."""
    cpu = {name: statistics.median(cost for cost, _ in each) for name, each in found.items()}
    rate = {name: statistics.median(rate for _, rate in each) for name, each in found.items()}
    return {
        "jobs": given.jobs,
        "tests": given.tests,
        "rounds": given.rounds,
        "ms_of_cpu_a_test": {name: round(cost, 2) for name, cost in cpu.items()},
        "tests_per_second": {name: round(each, 1) for name, each in rate.items()},
        "overhead_by_cpu": round(cpu["cluster"] / cpu["here"] - 1, 3),
        "overhead_by_clock": round(rate["here"] / rate["cluster"] - 1, 3),
        "stores_equal": equal,
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
