"""What fails in a case: the premise of every reduction, made sure of before anything is tried."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from opsieve.backends.judge.derived_types import RULE
from opsieve.backends.judge.judge import Judged, judge_case
from opsieve.backends.judge.oracles import DERIVING, FLOAT64, NATIVE, SECOND_ORACLES
from opsieve.backends.judge.reasons import describe
from opsieve.backends.judge.shown_failure import compare_runs, judge_run
from opsieve.backends.registry import ResolvedTarget, compilers, resolve
from opsieve.backends.verdict import KIND_OF_OUTCOME, WRONG_OUTPUTS, Verdict
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.model.bad_input import NoFailure, Unjudged, shown
from opsieve.reducer.oracle.nondeterminism_test import replayed_spread, spread_of
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.repeats import (
    REPLAYS,
    SHORT,
    is_deterministic,
    judged_replays,
    measure_rate,
    replayed_runs,
    slower,
    sure,
    varying,
)
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.reducer.oracle.validator import CHECKER
from opsieve.triage.fingerprint.sameness import failure_of

REDUCIBLE = frozenset(["crash", "error", "mismatch", "metamorphic", "hang", "memory"])
_LARGE = 10_000  # bytes of a model for which the judge's oracles cost more than a reduction
_MANY = 20_000  # nodes of a model of which they cost minutes: whether its results are right is asked of the small one


def find(case: Case, targets: Sequence[ResolvedTarget], against: ResolvedTarget | None, workers: Workers) -> Premise:
    """The first failure of a case on these targets; on every compiler installed when there are none. NoFailure where they
    pass, Unjudged where one that was named, or every one, gave no verdict of pass or fail.
    """
    tried, judged = [], 0
    for target in targets or installed():
        try:
            premise, said = _failure_on(case, target, against, workers, bool(targets))
            judged += 1
        except Unjudged as error:
            premise, said = None, error.reason
        if premise is not None:
            return premise
        tried.append(f"{target.display}: {said}")
    if judged < (len(tried) if targets else 1):
        raise Unjudged("; ".join(tried))
    raise NoFailure("; ".join(tried))


def installed() -> list[ResolvedTarget]:
    """Every backend that compiles, as it is installed beside opsieve; onnxruntime first."""
    return [resolve(name) for name in sorted(compilers(), key=lambda name: (name != "onnxruntime", name))]


def still(subject: Runnable, premise: Premise, workers: Workers, any_type: bool = False) -> bool:
    """Whether the judge, asked from scratch, sees the same failure in a subject; with `any_type` a wrong result may be of another type."""
    case = Case(subject.program, subject.inputs)
    against = premise.arbiter if premise.named else None
    kind, doubtful = premise.failure.verdict.kind, premise.failure.verdict.verdict == "undecided"
    if kind == "slowdown":
        return slower(case, premise.target, workers)[0] is not None
    if kind == "nondeterminism":
        found, _ = varying(case, premise.target, workers)
    else:
        try:
            found, _ = _failure_on(case, premise.target, against, workers, doubtful)
        except Unjudged:
            return False
    if found is None:
        return False
    return premise.failure.is_shown_by(
        found.failure.verdict, found.observation, subject.program, "fingerprint", any_type
    )


def _failure_on(
    case: Case, target: ResolvedTarget, against: ResolvedTarget | None, workers: Workers, doubtful: bool
) -> tuple[Premise | None, str]:
    """The failure on one target, or why there is none; `doubtful` takes one that no second oracle confirms."""
    if against is not None:
        return _compared(case, target, against, workers)
    lab = ObservationCache(workers)
    if case.expected is None and case.program.fault is not None:
        return _not_refused(case, target, workers, lab)
    plain = _plain(case, target, workers, lab)
    if plain is not None:
        if is_deterministic(case, target, plain.failure.verdict, workers):
            return sure(case, plain), ""
        return measure_rate(case, target, plain.failure.verdict, workers)
    if case.program.size > _MANY and target.baseline is not None:
        with suppress(Unjudged):  # then the judge is asked
            found, _ = _compared(case, target, target.baseline, lab)
            if found is not None:
                return replace(found, named=False, assumed=True), ""
    judged = judge_case(case, target, lab)
    verdict = judged.verdict
    if verdict.verdict == "flaky" and verdict.kind in KIND_OF_OUTCOME.values():
        return measure_rate(case, target, verdict, workers)
    if verdict.verdict == "pass" and doubtful:  # who names a target has seen it fail
        return _doubted(case, target, workers, verdict)
    if verdict.verdict == "fail" and verdict.kind == "nondeterminism":
        return varying(case, target, workers)
    # Who names the target has made up his mind: one oracle against it is enough to reduce by.
    enough = ("fail", "undecided") if doubtful else ("fail",)
    if verdict.verdict not in enough or verdict.kind not in REDUCIBLE:
        return None, _without_failure(verdict)
    arbiter = _arbiter(case, target, judged, workers)
    if verdict.kind in WRONG_OUTPUTS and arbiter is None:
        return None, "its outputs are wrong, but nobody who could be asked again gives the right ones; use --against"
    open_mismatch = verdict.verdict == "undecided" and verdict.kind in WRONG_OUTPUTS
    if open_mismatch and arbiter is not None and _compared(case, target, arbiter, lab)[0] is None:
        return None, _without_failure(verdict)  # only expected outputs contradict it, and a smaller program has none
    observation = judged.observations[0]
    failure = failure_of(verdict, observation, case.program)
    consulted = [each for each in judged.observations if arbiter is not None and each.target == arbiter.display]
    premise = Premise(target, arbiter, failure, observation, verdict.reason, next(iter(consulted), None))
    if not is_deterministic(case, target, verdict, workers):
        return measure_rate(case, target, verdict, workers)
    if verdict.kind == "mismatch" and case.program.byte_size < _LARGE:  # of a larger one the small result is replayed
        if replayed_spread(case, target, SHORT, workers).differing:
            return varying(case, target, workers)
        return replace(premise, replays=(SHORT, SHORT)), ""
    return sure(case, premise), ""


def _doubted(case: Case, target: ResolvedTarget, workers: Workers, verdict: Verdict) -> tuple[Premise | None, str]:
    """The failure on a target that passed once, though a user has seen it fail: one that shows sometimes, or is no wrong result."""
    runs = REPLAYS if case.program.byte_size < _LARGE else SHORT
    replays = judged_replays(case, target, runs, workers)
    failing = next((judged for _, judged in replays if judged.verdict == "fail"), None)
    if failing is not None:
        return measure_rate(case, target, replace(failing, verdict="flaky"), workers)
    if spread_of([answer for answer, _ in replays]).differing:
        return varying(case, target, workers)
    slow, _ = slower(case, target, workers)
    return slow, "" if slow is not None else shown(f"{verdict.verdict}: {verdict.reason}", 300)


def _without_failure(verdict: Verdict) -> str:
    """The verdict as a reason why there is nothing to reduce; Unjudged where it leaves open whether there is."""
    reason = shown(f"{verdict.verdict}: {verdict.reason}", 300)
    if not verdict.is_judged:
        raise Unjudged(reason)
    return reason


def _not_refused(
    case: Case, target: ResolvedTarget, workers: Workers, lab: ObservationCache
) -> tuple[Premise | None, str]:
    """The failure on a program that was broken on purpose: the target dies of it, or runs it though somebody objects."""
    judged = judge_case(case, target, lab)
    verdict, observation = judged.verdict, judged.observations[0]
    if verdict.verdict == "flaky" and verdict.kind in KIND_OF_OUTCOME.values():
        return measure_rate(case, target, verdict, workers)
    if verdict.verdict != "fail":
        return None, _without_failure(verdict)
    failure = failure_of(verdict, observation, case.program)
    if verdict.kind != "accepts-invalid":  # it dies of it, whoever objects
        if not is_deterministic(case, target, verdict, workers):
            return measure_rate(case, target, verdict, workers)
        return sure(case, Premise(target, None, failure, observation, verdict.reason)), ""
    ran = sum(answer.outcome == "ok" for answer in replayed_runs(case, target, SHORT, workers))
    consulted = ((oracle, lab.observe(oracle, case.program, case.inputs)) for oracle in (CHECKER, NATIVE))
    objector, said = next((oracle, answer) for oracle, answer in consulted if answer.outcome in ("error", "rejected"))
    return Premise(target, objector, failure, observation, verdict.reason, said, replays=(ran, SHORT)), ""


def _plain(case: Case, target: ResolvedTarget, workers: Workers, lab: ObservationCache) -> Premise | None:
    """A failure that needs no judge yet: the compiler dies or raises, twice, where its own unoptimised build is well.

    A judge hears the reference too, which is slow on a large model; `still` has him look at the small one.
    """
    baseline = target.baseline
    if baseline is None or case.program.byte_size < _LARGE:
        return None
    got = lab.observe(target, case.program, case.inputs)
    verdict = judge_run(case.program, case.inputs, target, got, lab, blame="optimiser")
    if verdict.verdict != "fail" or verdict.kind == "memory":
        return None
    wanted = lab.observe(baseline, case.program, case.inputs)
    if wanted.outputs is None or workers.observe(target, case.program, case.inputs, fresh=True).outcome != got.outcome:
        return None
    failure = failure_of(verdict, got, case.program)
    reason = f"{target.display} fails, {baseline.display} does not: {shown(got.message, 300)}"
    return Premise(target, baseline, failure, got, reason, wanted)


def _compared(
    case: Case, target: ResolvedTarget, against: ResolvedTarget, lab: Workers | ObservationCache
) -> tuple[Premise | None, str]:
    got = lab.observe(target, case.program, case.inputs)
    wanted = lab.observe(against, case.program, case.inputs)
    blame = "optimiser" if against == target.baseline else "compiler"
    verdict = judge_run(case.program, case.inputs, target, got, lab, right=wanted, blame=blame)
    if wanted.outputs is None:
        raise Unjudged(shown(f"{against.display} itself: {wanted.outcome} {wanted.message}", 300))
    if not verdict.is_judged:
        raise Unjudged(shown(f"{got.outcome} {got.message}", 300))
    if verdict.verdict == "pass":
        return None, shown(f"{got.outcome}, agrees with {against.display}", 300)
    failure = failure_of(verdict, got, case.program)
    what = got.message.strip() or (verdict.mismatch and describe(verdict.mismatch)) or got.outcome
    reason = f"{target.display} differs from {against.display}: {shown(what, 300)}"
    return Premise(target, against, failure, got, reason, wanted, named=True), ""


def _oracles(target: ResolvedTarget) -> list[ResolvedTarget]:
    """Whom else the judge may ask, as in `run`."""
    return [oracle for oracle in SECOND_ORACLES if oracle != target]


def _arbiter(case: Case, target: ResolvedTarget, judged: Judged, workers: Workers) -> ResolvedTarget | None:
    """Who will be asked beside the target: itself without the rewrite, the unoptimised build when it is right, else the reference, else another compiler."""
    baseline = target.baseline
    if judged.verdict.kind == "metamorphic":
        return target.unrewritten
    if judged.verdict.blame == "optimiser":
        return baseline
    test = Test(case.program, case.inputs)
    oracles = (FLOAT64, NATIVE) if judged.verdict.kind in WRONG_OUTPUTS else (baseline, NATIVE)
    contradicted = RULE in judged.verdict.rules  # then an oracle of the same wrong type shows nothing
    for oracle in (*oracles, *_oracles(target), *([DERIVING] if contradicted else [])):
        answer = workers.observe(oracle, test.program, test.inputs) if oracle is not None else None
        if answer is None or answer.outcome != "ok":
            continue
        if not contradicted or compare_runs(test.program, judged.observations[0], answer).worst is not None:
            return oracle
    return None
