"""Failures that one run does not tell: those that show sometimes, results that vary, builds that are slow."""

from dataclasses import replace

from opsieve.backends.judge.performance import ROUNDS
from opsieve.backends.judge.reasons import describe
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import KIND_OF_OUTCOME, Verdict
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.model.bad_input import shown
from opsieve.reducer.engine.interestingness import wilson
from opsieve.reducer.oracle.nondeterminism_test import left_open, replayed_spread
from opsieve.reducer.oracle.premise import Premise, failure_of
from opsieve.reducer.oracle.slowdown_test import SlowdownTest

SHORT = 6  # replays of every failure before it is reduced
REPLAYS = 30  # of a failure that shows sometimes
_HEAVY = 64 << 20  # bytes of a model that is not replayed beyond the one confirmation
_MANY = 20_000  # operators, likewise: the small result is replayed
_CONFIRMED = 2  # runs in which the judge has seen what he calls a failure
_SCREEN = 3  # pairs of runs, all of them slow, before the time of a build is measured in earnest


def sometimes(case: Case, target: ResolvedTarget, verdict: Verdict, workers: Workers) -> tuple[Premise | None, str]:
    """A failure of the verdict's kind that shows sometimes, replayed to learn how often; None and the reason when it is not seen."""
    seen: list[Observation] = []
    runs = 0
    while runs < REPLAYS and not (seen and verdict.kind == "hang"):  # a hang takes all the time that a run may take
        answers = replayed_runs(case, target, SHORT, workers)
        seen += [each for each in answers if KIND_OF_OUTCOME.get(each.outcome) == verdict.kind]
        runs += SHORT
    if not seen:
        return None, f"flaky, but not seen again in {REPLAYS} runs"
    verdict = replace(verdict, stage=seen[0].stage, message=seen[0].message)
    failure = failure_of(verdict, seen[0], case)
    reason = f"{target.display} fails in {len(seen)} of {runs} runs: {shown(seen[0].message, 200)}"
    chance = wilson(len(seen), runs)
    arbiter = target.baseline if case.program.fault is None else None
    return Premise(target, arbiter, failure, seen[0], reason, chance=chance, replays=(len(seen), runs)), ""


def steady(case: Case, target: ResolvedTarget, verdict: Verdict, workers: Workers) -> bool:
    """Whether a compiler that died or raised does so each time. A hang is not replayed, and the judge has replayed a mismatch."""
    if not is_replayed(case, verdict):
        return True
    return all(
        KIND_OF_OUTCOME.get(answer.outcome) == verdict.kind for answer in replayed_runs(case, target, SHORT, workers)
    )


def varying(case: Case, target: ResolvedTarget, workers: Workers) -> tuple[Premise | None, str]:
    """Results that differ from run to run, or only from process to process, replayed to learn how often; None and the reason without them."""
    for apart in (False, True):
        found = replayed_spread(case, target, REPLAYS, workers, apart)
        if found.ended is not None and found.ended.outcome in KIND_OF_OUTCOME:
            return sometimes(case, target, Verdict("flaky", "", KIND_OF_OUTCOME[found.ended.outcome]), workers)
        if found.ended is not None:
            return None, f"a run ended: {found.ended.outcome}"
        if found.worst is None or found.usual is None:
            continue
        if left_open(case, found.names, workers):
            return None, "its results vary, which ONNX allows"
        where = "processes" if apart else "runs"
        reason = f"{target.display} gives another result in {found.differing} of {found.runs} {where}: {describe(found.worst)}"
        verdict = Verdict("fail", reason, "nondeterminism", "run", mismatch=found.worst)
        failure = failure_of(verdict, found.usual, case)
        chance, seen = wilson(found.differing, found.runs), (found.differing, found.runs)
        return Premise(target, None, failure, found.usual, reason, chance=chance, replays=seen, apart=apart), ""
    return None, f"its result is the same in {2 * REPLAYS} runs"


def slower(case: Case, target: ResolvedTarget, workers: Workers) -> tuple[Premise | None, str]:
    """A build that takes more CPU time than its unoptimised one by more than the margin; None and the reason where it does not."""
    baseline = target.baseline
    if baseline is None or baseline == target:
        return None, "it has no unoptimised build to be compared with"
    test = SlowdownTest(workers, target, baseline)
    seen = test.replays(case, _SCREEN)
    if seen[0] == _SCREEN:
        seen = test.replays(case, ROUNDS)
    if not test.shown(*seen):
        return None, "it is not slower than its unoptimised build"
    reason = f"{target.display} takes over {test.margin:g} times the CPU time of {baseline.display} in {seen[0]} of {seen[1]} pairs of runs"
    verdict = Verdict("fail", reason, "slowdown", "run", rules=("slowdown",), blame="optimiser")
    observation = workers.observe(target, case.program, case.inputs)
    return Premise(target, baseline, failure_of(verdict, observation, case), observation, reason, replays=seen), ""


def replayed_runs(case: Case, target: ResolvedTarget, runs: int, workers: Workers) -> list[Observation]:
    """So many observations of a case, one after the other."""
    return list(workers.observe_many(target, [Test(case.program, case.inputs)] * runs))


def is_replayed(case: Case, verdict: Verdict) -> bool:
    """Whether a failure of this kind is replayed before it is reduced: those whose runs are quick."""
    return verdict.kind in ("error", "crash") and case.program.byte_size <= _HEAVY and case.program.size <= _MANY


def sure(case: Case, premise: Premise) -> Premise:
    """The premise with the replays that `steady` made, or the one that the judge made."""
    runs = SHORT if is_replayed(case, premise.failure.verdict) else _CONFIRMED
    return replace(premise, replays=(runs, runs))
