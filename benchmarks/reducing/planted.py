"""Faults planted in real TVM, reduced: whether the known minimum is reached, and what it takes."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import planted_tvm

from opsieve.backends import registry
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import NoFailure
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.registry import ReducibleForm
from opsieve.reducer.irs.tvm.subject import TvmSubject
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_failure

# A case, the fault, and what a minimal program has to keep.
Planted = tuple[Case, str, tuple[str, ...]]


@dataclass(frozen=True)
class Run:
    """One reduction: what was planted, whether the known minimum was reached, what it took, what is left."""

    fault: str
    before: str
    reached: bool
    certified: bool
    to_best: int
    checks: int
    left: str


def reduce_planted(
    form: ReducibleForm[TvmSubject],
    found: Planted,
    workers: Workers,
    is_minimum: Callable[[Any, str, tuple[str, ...]], tuple[bool, str]],
) -> Run | None:
    """Reduce one planted fault; None where it does not show. `is_minimum` tells of the best program, the
    fault and what has to be left whether it is the known minimum, and what is left.
    """
    case, fault, wanted = found
    target = registry.resolve(f"{planted_tvm.NAME}:target=llvm-O0,fault={fault}")
    try:
        premise = find(case, [target], None, workers)
    except NoFailure:
        return None
    heard, at_best = [0], [0]
    listeners: Listeners[TvmSubject] = Listeners(
        lambda at: heard.append(at.checks), lambda subject: at_best.append(heard[-1])
    )
    start = TvmSubject(case.program, dict(case.inputs))
    result: Reduction[TvmSubject] = reduce_failure(
        form, start, premise, [workers], "fingerprint", Journal(""), listeners
    )
    minimum, left = is_minimum(result.best.program, fault, wanted)
    before = f"{case.program.size}, {len(case.program.passes)}"
    reached = minimum and result.same
    return Run(fault, before, reached, result.minimal, at_best[-1], result.checks, left)


def report(
    draw: Callable[[int], Planted | None], reduced: Callable[[Planted], Run | None], count: int, seed: int
) -> None:
    """Reduce planted faults of seeds from one on until so many have shown."""
    registry._entries()[planted_tvm.NAME] = {planted_tvm.ENTRY.value: planted_tvm.ENTRY}
    runs: list[Run] = []
    print(
        "| planted | operators, passes before | known minimum | certified | checks to the result | in all | left |"
    )
    print("|---|---|---|---|---|---|---|")
    while len(runs) < count:
        found = draw(seed)
        run = reduced(found) if found else None
        seed += 1
        if run is not None:
            runs.append(run)
            told = (run.fault, run.before, run.reached, run.certified, run.to_best, run.checks, run.left)
            print("| " + " | ".join(map(str, told)) + " |", flush=True)
    print(
        f"{sum(run.reached for run in runs)} of {count} at the known minimum,"
        f" {sum(run.certified for run in runs)} certified; checks to the result: median"
        f" {median(run.to_best for run in runs):g}, largest {max(run.to_best for run in runs)}; in all: median"
        f" {median(run.checks for run in runs):g}"
    )
