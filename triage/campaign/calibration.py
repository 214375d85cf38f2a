"""Which probes come and go between equal runs of a program, so that they are not taken for something new (AFL calls it calibration).

Blocks depend on the addresses of a hash table's keys, on what a memory pool holds, on a timer. A program is run several times over in one
worker, every probe planted anew: what some of these runs reached and others did not is unstable. The first run is left out,
since it loads what is loaded once.
"""

from collections.abc import Iterable, Sequence

from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case

PROGRAMS = 4
RUNS = 8  # of each, after the first


def unstable_between(runs: Iterable[frozenset[int]]) -> frozenset[int]:
    """What some of these sets of probes hold and others do not."""
    found = list(runs)
    return frozenset().union(*found) - frozenset.intersection(*found) if found else frozenset()


def calibrate(workers: Workers, coverage: Coverage, targets: Sequence[ResolvedTarget], cases: Sequence[Case]) -> int:
    """Set aside the probes that come and go while these programs are run again and again; how many. They stay set aside by build-id.

    A program that a target does not take, or that fails there, tells nothing.
    """
    count = 0
    for target in targets:
        if not coverage.traces(target.name):
            continue
        moving: set[int] = set()
        for case in cases:
            test = Test(case.program, case.inputs, again=True)
            answers = list(workers.observe_many(target, [test] * (1 + RUNS)))[1:]
            moving |= unstable_between(
                frozenset(item.reached) for item in answers if item.outcome == "ok" and item.reached is not None
            )
        probes = coverage.maps().get(target.zygote)
        if isinstance(probes, Probes):
            fresh = probes.stable(sorted(moving))
            probes.disregard(fresh)
            count += len(fresh)
    return count
