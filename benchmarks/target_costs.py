"""What a generated program takes on each target, its unoptimised build included: the `milliseconds` that backends state.

    python benchmarks/target_costs.py [--tests N] TARGET...

Programs are those of `mix` (5 to 30 nodes) within what the target has. CPU is that of everything below this process, read from /proc; starting is left out.
"""

import argparse
import json
import os

from campaign_rate import children_cpu

from opsieve.backends.probing.prober import Prober
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.campaign_tables import support
from opsieve.triage.campaign.plan import CampaignPlan


def milliseconds(name: str, tests: int) -> float:
    """Of CPU, on average."""
    target = resolve(name)
    builds = [target, *([target.baseline] if target.baseline else [])]
    with Workers(Limits(seconds=60)) as workers:
        plan = CampaignPlan(supports=(support(Prober(workers, target).table()),))
        cases = [plan.case(5, number) for number in range(tests + 1)]
        for build in builds:
            workers.observe(build, cases[0].program, cases[0].inputs)
        before = children_cpu(os.getpid(), -1)
        for case in cases[1:]:
            for build in builds:
                workers.observe(build, case.program, case.inputs)
        return 1000 * (children_cpu(os.getpid(), -1) - before) / tests


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--tests", type=int, default=48)
    given = parser.parse_args()
    print(json.dumps({name: round(milliseconds(name, given.tests), 1) for name in given.targets}))


if __name__ == "__main__":
    main()
