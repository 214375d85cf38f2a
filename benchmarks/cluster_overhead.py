"""What a Dask cluster costs a campaign beside lanes of this machine: the same tests both ways, turn by turn.

    python benchmarks/cluster_overhead.py [--tests 1024] [--jobs 2] [--rounds 3]

Two levels of onnxruntime, `mix` of 5 to 30 nodes. The cluster is a scheduler and as many worker processes of
one thread as there are lanes, all on this machine, so equal cores do equal work; once as Dask is by default,
once with the settings that docs/how-to/cluster.md names (what Dask does by the clock, in every process of it,
weighs the more the fewer tests a second are done). Counted from the 256th test on, in which imports lie: CPU
of everything (main process, lanes, compilers, scheduler, workers) and tests a second on the wall's clock. The
stores of both must be equal. Prints one JSON object; `overhead_by_cpu` is what a cluster takes more, as a
share.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import dask
import distributed
from campaign_faults import contents
from campaign_rate import LEVELS, tables
from steady import steady

from opsieve.backends.registry import resolve
from opsieve.triage.campaign.campaign import new_campaign
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.campaign.schedule.costs import stated
from opsieve.triage.distributed.cluster import cluster_lanes

SETTINGS = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
CLUSTERS: dict[str, dict[str, Any]] = {"cluster": {}, "cluster_set_up": SETTINGS}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=1024)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    targets = [resolve(level) for level in LEVELS]
    plan = CampaignPlan("mix", USUAL, tables(None), costs=stated(targets))
    found: dict[str, list[tuple[float, float]]] = {"here": [], **{name: [] for name in CLUSTERS}}
    equal = True
    for seed in range(given.rounds):
        campaign = new_campaign(seed, targets, plan)
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder) / "here"
            found["here"].append(steady(here, campaign, plan, given.jobs, given.tests))
            for name, settings in CLUSTERS.items():
                with (
                    dask.config.set(settings),
                    distributed.LocalCluster(
                        n_workers=given.jobs, threads_per_worker=1, processes=True, dashboard_address=None
                    ) as cluster,
                    cluster_lanes(cluster.scheduler_address, campaign, {}, print) as (_, start),
                ):
                    found[name].append(
                        steady(Path(folder) / name, campaign, plan, given.jobs, given.tests, start)
                    )
                equal = equal and contents(here) == contents(Path(folder) / name)
    print(json.dumps(facts(found, given, equal)))


def facts(
    found: dict[str, list[tuple[float, float]]], given: argparse.Namespace, equal: bool
) -> dict[str, Any]:
    """Medians over the rounds."""
    cpu = {name: statistics.median(cost for cost, _ in each) for name, each in found.items()}
    rate = {name: statistics.median(rate for _, rate in each) for name, each in found.items()}
    return {
        "jobs": given.jobs,
        "tests": given.tests,
        "rounds": given.rounds,
        "ms_of_cpu_a_test": {name: round(cost, 2) for name, cost in cpu.items()},
        "tests_per_second": {name: round(each, 1) for name, each in rate.items()},
        "overhead_by_cpu": {name: round(cpu[name] / cpu["here"] - 1, 3) for name in CLUSTERS},
        "overhead_by_clock": {name: round(rate["here"] / rate[name] - 1, 3) for name in CLUSTERS},
        "stores_equal": equal,
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
