"""Find probes that come and go between equal runs of a program, so that they do not count as new coverage.

AFL calls this calibration. Which blocks run depends on the addresses of a hash table's keys, on the state of
a memory pool, on a timer. A program is run several times in one worker, every probe planted anew: probes
reached by some of these runs but not all are unstable. The first run is left out, since it loads libraries
once.

Some code runs by the clock: onnxruntime has a task of 180 functions that runs once a second. So the first
calibration of a build lasts some seconds, however fast its programs are.
"""

import time
from collections.abc import Iterable, Sequence

from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case

PROGRAMS = 4
# Of each, after the first
RUNS = 8
# That the first program of a build is run for
SECONDS = 2.5


def find_unstable(runs: Iterable[frozenset[int]]) -> frozenset[int]:
    """Return the probes that are in some of these sets but not in all."""
    found = list(runs)
    return frozenset().union(*found) - frozenset.intersection(*found) if found else frozenset()


def exclude_unstable(
    workers: Workers,
    coverage: Coverage,
    targets: Sequence[ResolvedTarget],
    cases: Sequence[Case],
    seconds: float = SECONDS,
) -> int:
    """Exclude the probes that come and go while these programs are run repeatedly, and return their number.

    They stay excluded by build-id. Programs that a target rejects or fails are skipped.
    """
    count = 0
    for target in targets:
        if not coverage.traces(target.name):
            continue
        # From here on it has probes
        workers.version(target)
        probes = coverage.maps().get(target.zygote)
        if not isinstance(probes, Probes):
            continue
        left = 0.0 if probes.is_calibrated else seconds
        moving: set[int] = set()
        for case in cases:
            begun, runs = time.monotonic(), _observe_runs(workers, target, case)
            while runs and time.monotonic() - begun < left:
                runs += _observe_runs(workers, target, case)
            if runs:
                left = 0.0
            moving |= find_unstable(runs)
        fresh = probes.stable(sorted(moving))
        probes.disregard(fresh)
        count += len(fresh)
    return count


def _observe_runs(workers: Workers, target: ResolvedTarget, case: Case) -> list[frozenset[int]]:
    """Return the probes reached by each of several runs of a program; empty unless the runs end well."""
    answers = list(workers.observe_many(target, [Test(case.program, case.inputs, again=True)] * (1 + RUNS)))[
        1:
    ]
    return [frozenset(item.reached) for item in answers if item.outcome == "ok" and item.reached is not None]
