"""What a generated program takes on each target in a campaign: the `milliseconds` that backends state.

    python benchmarks/target_costs.py [--tests N] TARGET...

Programs are those of `mix` (5 to 30 nodes) within what the target has, judged as a campaign does. CPU is that
of the target's own processes, read from /proc: both builds and the forks that confirm failures; what several
targets share (an unoptimised run, the reference) and the first 16 tests are left out.
"""

import argparse
import json
import os

from process_tree import cpu_by_compiler, name_of

from opsieve.backends.probing.prober import Prober
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.campaign import make_campaign
from opsieve.triage.campaign.plan import CampaignPlan, make_support
from opsieve.triage.campaign.testing import run_tests

WARM = 16


def milliseconds(name: str, tests: int) -> float:
    """Of CPU, on average."""
    target = resolve(name)
    shared = target.baseline.stand_in if target.baseline is not None else None
    own = name_of(target.plugin.location)
    with Workers(Limits(seconds=60)) as workers:
        plan = CampaignPlan(supports=(make_support(Prober(workers, target).make_table()),))
        campaign = make_campaign(5, [target, *([shared] if shared is not None else [])], plan)
        cases = {number: plan.make_case(5, number) for number in range(WARM + tests)}
        lab, before = ObservationCache(workers), 0.0
        for first in range(0, WARM + tests, WARM):
            if first == WARM:
                before = cpu_by_compiler(os.getpid())[own]
            run_tests(
                campaign, {number: case for number, case in cases.items() if 0 <= number - first < WARM}, lab
            )
            lab.forget_all()
        return 1000 * (cpu_by_compiler(os.getpid())[own] - before) / tests


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--tests", type=int, default=48)
    given = parser.parse_args()
    print(json.dumps({name: round(milliseconds(name, given.tests), 1) for name in given.targets}))


if __name__ == "__main__":
    main()
