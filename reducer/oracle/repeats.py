"""Failures that need several runs: intermittent ones, results that vary, and slow builds."""

from dataclasses import replace

from opsieve.backends.judge.performance import MARGIN, ROUNDS
from opsieve.backends.judge.reasons import describe_mismatch
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import Verdict
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import shown
from opsieve.reducer.engine.interestingness import wilson
from opsieve.reducer.oracle.nondeterminism_test import left_open, replayed_runs, replayed_spread
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.slowdown_test import SlowdownTest
from opsieve.triage.fingerprint.sameness import make_failure

# Replays of every failure before it is reduced: enough to find most intermittent ones, at the price of few
# runs.
SHORT = 6
# Replays of an intermittent failure, from which its rate is estimated.
REPLAYS = 30
# The size in bytes above which a model is not replayed beyond the judge's confirmation.
_HEAVY = 64 << 20
# The same limit in operators. The small result is replayed instead.
_MANY = 20_000
# The number of runs in which the judge confirmed the failure.
_CONFIRMED = 2
# Pairs of runs that must all be slow before the full number of pairs is measured: a cheap screen.
_SCREEN = 3


def measure_rate(
    case: Case, target: ResolvedTarget, verdict: Verdict, workers: Workers
) -> tuple[Premise | None, str]:
    """Replay an intermittent failure to learn its rate; returns `None` and the reason if every replay passes.

    If it never shows in a process that has already run the program, each run gets a process of its own.
    """
    seen: list[tuple[Observation, Verdict]] = []
    apart = False
    for apart in (False, True):
        runs = 0
        # Each hang costs the whole time limit of a run, so one sighting is enough.
        while runs < REPLAYS and not (seen and verdict.kind == "hang"):
            replays = judged_replays(case, target, SHORT, workers, apart)
            seen += [each for each in replays if _is_of_kind(each[1], verdict)]
            runs += SHORT
        if seen:
            break
    else:
        return None, f"flaky, but not seen again in {2 * REPLAYS} runs"
    first, judged = seen[0]
    verdict = replace(verdict, verdict="flaky", stage=judged.stage, message=judged.message)
    reason = f"{target.display} fails in {len(seen)} of {runs} runs: {shown(first.message, 200)}"
    # The lower end of the interval makes a test repeat too often rather than too seldom.
    chance = wilson(len(seen), runs)
    arbiter = target.baseline if case.program.fault is None else None
    failure = make_failure(verdict, first, case.program)
    replayed = (len(seen), runs)
    return Premise(target, arbiter, failure, first, reason, chance=chance, replays=replayed, apart=apart), ""


def is_deterministic(case: Case, target: ResolvedTarget, verdict: Verdict, workers: Workers) -> bool:
    """Return whether every replay shows a failure of the verdict's kind. A hang is not replayed, and the
    judge has replayed a mismatch.
    """
    if not is_replayed(case, verdict):
        return True
    return all(_is_of_kind(judged, verdict) for _, judged in judged_replays(case, target, SHORT, workers))


def judged_replays(
    case: Case, target: ResolvedTarget, runs: int, workers: Workers, fresh: bool = False
) -> list[tuple[Observation, Verdict]]:
    """Run a case several times, each in a process of its own when `fresh`, and judge each run by itself."""
    # The other observations are shared by all of them.
    lab = ObservationCache(workers)
    answers = replayed_runs(case, target, runs, workers, fresh)
    return [
        (answer, judge_run(case.program, case.inputs, target, answer, lab, comes_and_goes=True))
        for answer in answers
    ]


def _is_of_kind(judged: Verdict, verdict: Verdict) -> bool:
    return judged.verdict == "fail" and judged.kind == verdict.kind


def varying(case: Case, target: ResolvedTarget, workers: Workers) -> tuple[Premise | None, str]:
    """Find results that differ from run to run, or only between processes, and measure how often; returns
    `None` and the reason if they do not.
    """
    # A seed drawn at start-up, such as that of a hash, differs only between processes.
    for apart in (False, True):
        found = replayed_spread(case, target, REPLAYS, workers, apart)
        if found.ended is not None:
            judged = judge_run(case.program, case.inputs, target, found.ended, workers, comes_and_goes=True)
            if judged.verdict == "fail":
                return measure_rate(case, target, replace(judged, verdict="flaky"), workers)
            return None, f"a run ended: {found.ended.outcome}"
        if found.worst is None or found.usual is None:
            continue
        if left_open(case, found.names, workers):
            return None, "its results vary, which ONNX allows"
        where = "processes" if apart else "runs"
        reason = (
            f"{target.display} gives another result in {found.differing} of {found.runs} {where}:"
            f" {describe_mismatch(found.worst)}"
        )
        verdict = Verdict("fail", reason, "nondeterminism", "run", mismatch=found.worst)
        failure = make_failure(verdict, found.usual, case.program)
        chance, seen = wilson(found.differing, found.runs), (found.differing, found.runs)
        return (
            Premise(target, None, failure, found.usual, reason, chance=chance, replays=seen, apart=apart),
            "",
        )
    return None, f"its result is the same in {2 * REPLAYS} runs"


def slower(case: Case, target: ResolvedTarget, workers: Workers) -> tuple[Premise | None, str]:
    """Find a build that takes more CPU time than its unoptimised one by more than the margin; returns `None`
    and the reason otherwise.
    """
    baseline = target.baseline
    if baseline is None or baseline == target:
        return None, "it has no unoptimised build to be compared with"
    test = SlowdownTest(workers, target, baseline)
    seen = test.replays(case, _SCREEN)
    if seen[0] == _SCREEN:
        seen = test.replays(case, ROUNDS)
    if not test.shown(*seen):
        return None, "it is not slower than its unoptimised build"
    reason = (
        f"{target.display} takes over {MARGIN:g} times the CPU time of {baseline.display} in {seen[0]}"
        f" of {seen[1]} pairs of runs"
    )
    verdict = Verdict("fail", reason, "slowdown", "run", rules=("slowdown",), blame="optimiser")
    observation = workers.observe(target, case.program, case.inputs)
    return (
        Premise(
            target,
            baseline,
            make_failure(verdict, observation, case.program),
            observation,
            reason,
            replays=seen,
        ),
        "",
    )


def is_replayed(case: Case, verdict: Verdict) -> bool:
    """Return whether a failure of this kind is replayed before it is reduced: if its runs are quick."""
    return (
        verdict.kind in ("error", "crash") and case.program.byte_size <= _HEAVY and case.program.size <= _MANY
    )


def sure(case: Case, premise: Premise) -> Premise:
    """Add to a premise the replays that `is_deterministic` ran, or those of the judge."""
    runs = SHORT if is_replayed(case, premise.failure.verdict) else _CONFIRMED
    return replace(premise, replays=(runs, runs))
