"""Find and confirm the failure of a case: the premise of a reduction."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from opsieve.backends.judge.acceptance import find_accepted_forbidden
from opsieve.backends.judge.derived_types import RULE as DERIVED_TYPE
from opsieve.backends.judge.judge import Judged, judge_case
from opsieve.backends.judge.levels import RULE as LEVELS_DISAGREE
from opsieve.backends.judge.oracle_names import ORACLE, name_optional_oracle
from opsieve.backends.judge.oracles import (
    BY_EXPECTED,
    DERIVING,
    EXPECTED,
    FLOAT64,
    NATIVE,
    SECOND_ORACLES,
    VOUCHED,
)
from opsieve.backends.judge.performance import measure_memory
from opsieve.backends.judge.reasons import describe_mismatch
from opsieve.backends.judge.shown_failure import is_refusal, judge_run
from opsieve.backends.registry import ResolvedTarget, compilers, resolve
from opsieve.backends.verdict import WRONG_OUTPUTS, Verdict, leave_target_out
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, NoFailure, Unjudged, shown
from opsieve.gen.model.printable import printable
from opsieve.gen.model.tensors import Value
from opsieve.reducer.oracle.nondeterminism_test import replayed_runs, replayed_spread, spread_of
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.repeats import (
    REPLAYS,
    SHORT,
    is_deterministic,
    judged_replays,
    measure_rate,
    slower,
    sure,
    varying,
)
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.reducer.oracle.validator import CHECKER
from opsieve.triage.fingerprint.sameness import make_failure

# The size of a model, in bytes, from which running the judge's oracles costs more than the reduction does.
_LARGE = 10_000
# The number of nodes from which the oracles take minutes. Such a model is compared with its unoptimised
# build only; the judge runs on the small result (`Premise.assumed`).
_MANY = 20_000
# The kinds of failure that single runs show.
_SEEN = ("error", "crash", "hang", *WRONG_OUTPUTS)


def find(
    case: Case,
    targets: Sequence[ResolvedTarget],
    against: ResolvedTarget | None,
    workers: Workers,
    lab: ObservationCache | None = None,
) -> Premise:
    """Find the first failure of a case on these targets, or on every installed compiler if the list is empty;
    `lab` may hold runs of it.

    Raises:
        NoFailure: If the targets pass.
        Unjudged: If a named target, or every installed one, gives neither pass nor fail.
        BadInput: If only the expected outputs show the failure.
    """
    tried, judged = [], 0
    for target in targets or list_installed():
        try:
            premise, said = _find_on(case, target, against, workers, bool(targets), lab)
            judged += 1
        except Unjudged as error:
            premise, said = None, error.reason
        if premise is not None:
            if premise.failure.verdict.kind in WRONG_OUTPUTS and premise.arbiter is None:
                raise BadInput(
                    f"{target.display} fails only against the expected outputs, which a smaller program does"
                    " not have: name a compiler that is right with --against"
                )
            return premise
        tried.append((target.display, said))
    # A named target that gives no verdict is an error. Of all installed compilers one verdict is enough,
    # since some of them support few operators.
    if judged < (len(tried) if targets else 1):
        raise Unjudged(_describe_tried(tried, bool(targets)))
    raise NoFailure(_describe_tried(tried, bool(targets)))


def _describe_tried(tried: Sequence[tuple[str, str]], is_named: bool) -> str:
    """Describe the answer of each target: in full if a user named it, else as names by verdict."""
    if is_named:
        return "; ".join(f"{name}: {said}" for name, said in tried)
    verdicts = dict.fromkeys(said.partition(":")[0] for _, said in tried)
    named = {verdict: [name for name, said in tried if said.startswith(verdict)] for verdict in verdicts}
    # Three lines: twelve names of a verdict, and the number of compilers that `opsieve doctor` explains.
    return "; ".join(
        f"{len(names)} cannot run here (see opsieve doctor)"
        if verdict == "environment"
        else f"{verdict} on {', '.join(names[:12])}" + f", {len(names[12:])} more" * bool(names[12:])
        for verdict, names in named.items()
    )


def list_installed() -> list[ResolvedTarget]:
    """List every installed compiler backend, onnxruntime first."""
    return [resolve(name) for name in sorted(compilers(), key=lambda name: (name != "onnxruntime", name))]


def still(subject: Runnable, premise: Premise, workers: Workers, any_type: bool = False) -> bool:
    """Return whether the judge, without cached answers, sees the same failure in a subject; `any_type`
    allows a wrong result of another type.
    """
    verdict = premise.failure.verdict
    # That expected outputs exist means that a compiler must accept the program.
    vouched = EXPECTED in verdict.oracles and verdict.kind not in WRONG_OUTPUTS
    expected = {} if vouched else find_stand_in(subject, premise, workers)
    oracle = name_optional_oracle(verdict, subject.program)
    case = Case(subject.program, subject.inputs, expected, parameters={ORACLE: oracle} if oracle else {})
    against = premise.arbiter if premise.named else None
    if verdict.kind == "slowdown":
        return slower(case, premise.target, workers)[0] is not None
    if verdict.kind == "nondeterminism":
        found, _ = varying(case, premise.target, workers)
    else:
        try:
            found, _ = _find_on(case, premise.target, against, workers, verdict.verdict == "undecided")
        except Unjudged:
            return False
    if found is None:
        return False
    return premise.failure.is_shown_by(
        found.failure.verdict, found.observation, subject.program, "fingerprint", any_type
    )


def find_stand_in(subject: Runnable, premise: Premise, workers: Workers) -> dict[str, Value] | None:
    """Return the arbiter's outputs of a part if the failure rests on the expected outputs of the whole model,
    which do not hold for a part of it; otherwise `None`.
    """
    # Outputs of the float64 reference have other types than the program's.
    arbiter = NATIVE if premise.arbiter == FLOAT64 else premise.arbiter
    if arbiter is None or not {BY_EXPECTED, VOUCHED} & set(premise.failure.verdict.rules):
        return None
    return workers.observe(arbiter, subject.program, subject.inputs).outputs


def see_failure(case: Case, target: ResolvedTarget, lab: ObservationCache) -> Premise | None:
    """Return the failure that a run of the target shows beside one of its unoptimised build, before the judge
    confirms it. For a small program that this build does not run, the reference takes its place. `None`
    without a failure.
    """
    small = case.program.byte_size < _LARGE
    for other in (target.baseline, NATIVE if small else None) if case.program.fault is None else ():
        # An arbiter that gives no outputs leaves it open.
        with suppress(Unjudged):
            found, _ = (None, "") if other in (None, target) else _compare_targets(case, target, other, lab)
            # Whether running out of memory is a failure depends on other builds, which the judge measures.
            if found is not None and found.failure.verdict.kind in _SEEN:
                return replace(found, named=False)
    return None


def _find_on(
    case: Case,
    target: ResolvedTarget,
    against: ResolvedTarget | None,
    workers: Workers,
    doubtful: bool,
    lab: ObservationCache | None = None,
) -> tuple[Premise | None, str]:
    """Find the failure on one target, or return `None` and the reason; `doubtful` accepts a failure that no
    second oracle confirms.
    """
    lab = lab or ObservationCache(workers)
    if against is not None:
        return _compare_targets(case, target, against, lab)
    plain = _plain(case, target, workers, lab)
    if plain is not None:
        if is_deterministic(case, target, plain.failure.verdict, workers):
            return sure(case, plain), ""
        return measure_rate(case, target, plain.failure.verdict, workers)
    # Where the unoptimised build gives no outputs, the slow judge has to decide after all.
    if case.program.size > _MANY and (found := see_failure(case, target, lab)) is not None:
        return replace(found, assumed=True), ""
    judged = judge_case(case, target, lab)
    if doubtful and judged.verdict.verdict == "undecided" and judged.verdict.kind is not None:
        # A user who names the target has seen it fail: one oracle that disagrees is enough for a reduction.
        premise, said = _as_judged(case, target, judged, workers)
        if premise is not None and premise.arbiter is None and judged.verdict.kind in WRONG_OUTPUTS:
            # Only the expected outputs disagree, and they do not hold for a smaller program.
            return None, _without_failure(judged.verdict, target)
        return premise, said
    return find_judged(case, target, judged, workers, doubtful)


def find_judged(
    case: Case, target: ResolvedTarget, judged: Judged, workers: Workers, doubtful: bool
) -> tuple[Premise | None, str]:
    """Return the failure in a verdict, replayed to learn its rate; `None` and the reason if the target
    passes.

    Args:
        judged: What `judge_case` says of the case on the target.
        doubtful: A user has seen the target fail: where it passes or is said to lack a feature, it is run
            again.

    Raises:
        Unjudged: If the verdict leaves open whether it fails.
    """
    verdict = judged.verdict
    if verdict.verdict in ("pass", "unsupported") and doubtful and case.program.fault is None:
        return _check_flaky(case, target, workers, verdict)
    if verdict.verdict == "invalid" and doubtful:
        accepted = find_accepted_forbidden(case.program, case.inputs, target, workers)
        if accepted is not None and accepted.verdict == "fail":
            return _as_judged(case, target, replace(judged, verdict=accepted), workers)
    if verdict.verdict == "flaky":
        if verdict.kind == "accepts-invalid":
            return None, _describe_verdict(verdict, target)
        return measure_rate(case, target, verdict, workers)
    if verdict.verdict != "fail":
        return None, _without_failure(verdict, target)
    return _as_judged(case, target, judged, workers)


def _as_judged(
    case: Case, target: ResolvedTarget, judged: Judged, workers: Workers
) -> tuple[Premise | None, str]:
    """Make the premise of a verdict that says `fail`, with the replays that its kind needs."""
    verdict, observation = judged.verdict, judged.observations[0]
    if verdict.kind == "nondeterminism":
        return varying(case, target, workers)
    if verdict.kind == "slowdown":
        return slower(case, target, workers)
    failure = make_failure(verdict, observation, case.program)
    if verdict.kind == "accepts-invalid":
        consulted = (
            (oracle, workers.observe(oracle, case.program, case.inputs)) for oracle in (CHECKER, NATIVE)
        )
        objector, said = next((oracle, answer) for oracle, answer in consulted if is_refusal(answer))
        # The failure is that the target runs the program, so a replay that ends well shows it.
        ran = sum(answer.outcome == "ok" for answer in replayed_runs(case, target, SHORT, workers))
        return Premise(target, objector, failure, observation, verdict.reason, said, replays=(ran, SHORT)), ""
    arbiter = None if case.program.fault is not None else _arbiter(case, target, judged, workers)
    consulted_runs = [
        each for each in judged.observations if arbiter is not None and each.target == arbiter.display
    ]
    premise = Premise(target, arbiter, failure, observation, verdict.reason, next(iter(consulted_runs), None))
    if not is_deterministic(case, target, verdict, workers):
        return measure_rate(case, target, verdict, workers)
    worst = verdict.mismatch
    # Replays of a larger program cost too much: `reduce_failure` replays the small result instead.
    if verdict.kind == "mismatch" and worst and case.program.byte_size < _LARGE:
        # Other outputs may vary by design (random operators): only the wrong output counts.
        if worst.output in replayed_spread(case, target, SHORT, workers).names:
            return varying(case, target, workers)
        return replace(premise, replays=(SHORT, SHORT)), ""
    return sure(case, premise), ""


def _check_flaky(
    case: Case, target: ResolvedTarget, workers: Workers, verdict: Verdict
) -> tuple[Premise | None, str]:
    """Look for a failure that one run does not show: an intermittent one, varying results, or a slow or
    memory-hungry build. A user has seen the target fail, so that one pass does not settle it.
    """
    passes = verdict.verdict == "pass"
    runs = REPLAYS if passes and case.program.byte_size < _LARGE else SHORT
    replays = judged_replays(case, target, runs, workers)
    failing = next((judged for _, judged in replays if judged.verdict == "fail"), None)
    if failing is not None:
        return measure_rate(case, target, replace(failing, verdict="flaky"), workers)
    if not passes:
        return None, _without_failure(verdict, target)
    if spread_of([answer for answer, _ in replays]).differing:
        return varying(case, target, workers)
    slow, _ = slower(case, target, workers)
    if slow is not None:
        return slow, ""
    large = measure_memory(case.program, case.inputs, target, workers)
    if large.verdict == "fail":
        return _as_judged(case, target, Judged(large, (replays[0][0],)), workers)
    return None, _describe_verdict(verdict, target)


def _describe_verdict(verdict: Verdict, target: ResolvedTarget) -> str:
    reason = leave_target_out(verdict.reason, target.display)
    return f"{verdict.verdict}: {printable(reason)[:300]}"


def _without_failure(verdict: Verdict, target: ResolvedTarget) -> str:
    """Return the verdict as a reason that there is nothing to reduce. Raises Unjudged if it leaves that
    open.
    """
    reason = _describe_verdict(verdict, target)
    if not verdict.is_judged:
        raise Unjudged(reason)
    return reason


def _plain(case: Case, target: ResolvedTarget, workers: Workers, lab: ObservationCache) -> Premise | None:
    """Find a crash or error of a large model by two runs of the target and one of its unoptimised build.

    The judge runs the reference too, which is slow on a large model; `still` runs it on the small result.
    """
    found = None if case.program.byte_size < _LARGE else see_failure(case, target, lab)
    if found is None or found.failure.verdict.kind in WRONG_OUTPUTS:
        return None
    again = workers.observe(target, case.program, case.inputs, fresh=True)
    return found if again.outcome == found.observation.outcome else None


def _compare_targets(
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
    failure = make_failure(verdict, got, case.program)
    what = got.message.strip() or (verdict.mismatch and describe_mismatch(verdict.mismatch)) or got.outcome
    differs = "differs from {}" if got.outputs is not None else "fails, {} does not"
    reason = f"{target.display} {differs.format(against.display)}: {shown(what, 300)}"
    return Premise(target, against, failure, got, reason, wanted, named=True), ""


def _arbiter(case: Case, target: ResolvedTarget, judged: Judged, workers: Workers) -> ResolvedTarget | None:
    """Choose the arbiter: the first candidate that runs the program and, for a wrong result, gives another.

    The build that the verdict rests on comes first: the target without the rewrite, or its unoptimised
    build.
    """
    verdict, baseline = judged.verdict, target.baseline
    own = target.unrewritten if verdict.kind == "metamorphic" else None
    if verdict.blame == "optimiser" or LEVELS_DISAGREE in verdict.rules or verdict.kind not in WRONG_OUTPUTS:
        own = own or baseline
    references = (FLOAT64, NATIVE) if verdict.kind in WRONG_OUTPUTS else (NATIVE,)
    deriving = [DERIVING] if DERIVED_TYPE in verdict.rules else []
    candidates: list[ResolvedTarget | None] = [own, *references, *SECOND_ORACLES, *deriving]
    for oracle in candidates:
        if oracle is None or oracle == target:
            continue
        oracle = oracle.asking(target.oracles)
        right = workers.observe(oracle, case.program, case.inputs)
        if right.outputs is None:
            continue
        run = judged.observations[0]
        if (
            run.outputs is None
            or judge_run(case.program, case.inputs, target, run, workers, right=right).verdict == "fail"
        ):
            return oracle
    return None
