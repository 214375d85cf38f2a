"""Which probes come and go between equal runs of a program, so that they are not taken for something new (AFL
calls it calibration).

Blocks depend on the addresses of a hash table's keys, on what a memory pool holds, on a timer. A program is
run several times over in one worker, every probe planted anew: what some of these runs reached and others did
not is unstable. The first run is left out, since it loads what is loaded once.

Some code runs by the clock: onnxruntime looks after something once a second, in 180 functions. So the first
calibration of a build goes on for some seconds, however quick its programs are.
"""

import time
from collections.abc import Iterable, Sequence

from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case

PROGRAMS = 4
RUNS = 8  # of each, after the first
SECONDS = 2.5  # that the first program of a build is run for


def unstable_between(runs: Iterable[frozenset[int]]) -> frozenset[int]:
    """What some of these sets of probes hold and others do not."""
    found = list(runs)
    return frozenset().union(*found) - frozenset.intersection(*found) if found else frozenset()


def calibrate(
    workers: Workers,
    coverage: Coverage,
    targets: Sequence[ResolvedTarget],
    cases: Sequence[Case],
    seconds: float = SECONDS,
) -> int:
    """Set aside the probes that come and go while these programs are run again and again; how many. They stay
    set aside by build-id.

    A program that a target does not take, or that fails there, tells nothing.
    """
    count = 0
    for target in targets:
        if not coverage.traces(target.name):
            continue
        workers.version(target)  # from here on it has probes
        probes = coverage.maps().get(target.zygote)
        if not isinstance(probes, Probes):
            continue
        left = 0.0 if probes.calibrated else seconds
        moving: set[int] = set()
        for case in cases:
            begun, runs = time.monotonic(), _runs(workers, target, case)
            while runs and time.monotonic() - begun < left:
                runs += _runs(workers, target, case)
            if runs:
                left = 0.0
            moving |= unstable_between(runs)
        fresh = probes.stable(sorted(moving))
        probes.disregard(fresh)
        count += len(fresh)
    return count


def _runs(workers: Workers, target: ResolvedTarget, case: Case) -> list[frozenset[int]]:
    """What each of some runs of a program reached; none where it does not end well."""
    answers = list(workers.observe_many(target, [Test(case.program, case.inputs, again=True)] * (1 + RUNS)))[
        1:
    ]
    return [frozenset(item.reached) for item in answers if item.outcome == "ok" and item.reached is not None]
