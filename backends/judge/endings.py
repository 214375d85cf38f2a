"""Judge a target without outputs: it died, raised an error, or says that it lacks a feature.

A missing feature counts only if the program itself contains it. If the compiler runs the program unoptimised,
or takes each operator by itself, its own optimiser introduced the unsupported part: that is an error. So is a
missing feature that comes and goes. An element type that a compiler refuses everywhere is a missing feature
under any name.
"""

from opsieve.backends import registry, verdict
from opsieve.backends.judge import judging_session, oracles, pieces, shown_failure
from opsieve.backends.judge.reasons import (
    Cause,
    find_common_reason,
    is_naming_rule,
    make_reason,
    make_verdict,
)
from opsieve.backends.observation import OBJECTION, Observation
from opsieve.backends.reference.forbidden import ILL_TYPED
from opsieve.gen.irs.registry import ir_of

# Fresh runs before a failure counts as flaky
_REPEATS = 3
# Where ONNX leaves a result open, raising an exception is as good as any answer; constant folding raises it
# early.
_MAY_RAISE = frozenset(
    {
        "integer-division-by-zero",
        "integer-division-overflow",
        "negative-integer-power",
        "shift-too-far",
        "cast-of-nan",
    }
    | {"cast-out-of-range"}
)


def judge_death(session: judging_session.JudgingSession, first: Observation) -> verdict.Verdict:
    """Judge a crash, a hang or a lack of memory."""
    flaky = _judge_unconfirmed(session, first)
    if flaky is not None:
        return flaky
    target, kind, outcome = session.target, verdict.DEATHS[first.outcome], first.outcome
    baseline, host = session.target.baseline, session.target.runtime
    # A transformer's output runs on a host, which then dies with or without the transformer.
    if host is not None and session.run_target(host).outcome == outcome:
        return make_verdict(
            "undecided",
            make_reason(Cause.HOST_ENDS_TOO, host=host, target=target, outcome=outcome),
            kind,
            first,
        )
    if (
        first.stage == "run"
        and not ir_of(session.program).checker
        and session.run_target(oracles.NATIVE).outcome == "rejected"
    ):
        return make_verdict(
            "invalid", make_reason(Cause.NO_MEANING, ending=session.run_target(oracles.NATIVE)), kind, first
        )
    # A crash needs no second opinion: no program may end the process.
    if kind == "crash":
        return make_verdict(
            "fail", make_reason(Cause.CRASHED, target=target, stage=first.stage, ending=first), kind, first
        )
    # A program that needs the time or the memory is not the compiler's fault: somebody else must do with
    # less.
    if baseline is not None and session.run_target(baseline).outcome == "ok":
        blame = "optimiser"
    elif session.run_target(oracles.NATIVE).outcome != outcome or any(
        session.run_target(each).outcome == "ok" for each in session.oracles
    ):
        blame = "compiler"
    else:
        return make_verdict(
            "undecided", make_reason(Cause.REFERENCE_ENDS_TOO, target=target, outcome=outcome), kind, first
        )
    reason = make_reason(Cause.ENDED, target=target, outcome=outcome, stage=first.stage, ending=first)
    return make_verdict("fail", reason, kind, first, blame=blame)


def judge_lack(session: judging_session.JudgingSession, first: Observation) -> verdict.Verdict:
    """Judge a target that reports a missing feature: `unsupported` unless its own optimiser introduced the
    need for it, or a repetition gives outputs.
    """
    target, baseline = session.target, session.target.baseline
    flaky = _judge_unconfirmed(session, first)
    if flaky is not None:
        return flaky
    acceptor = shown_failure.find_acceptor_of_lack(session.program, session.inputs, target, first, session)
    if not acceptor:
        return make_verdict("unsupported", make_reason(Cause.LACKS, target=target, ending=first), at=first)
    undefined = _judge_undefined(session, first)
    if undefined is not None:
        return undefined
    blame = "optimiser" if baseline is not None else "compiler"
    reason = make_reason(Cause.MADE_LACK, target=target, acceptor=acceptor, ending=first)
    return make_verdict("fail", reason, "error", first, blame=blame)


def judge_refusal(session: judging_session.JudgingSession, first: Observation) -> verdict.Verdict:
    """Judge a target that raised an error."""
    excused = _judge_unconfirmed(session, first) or _judge_undefined(session, first)
    if excused is not None:
        return excused
    target = session.target
    broken = _judge_forbidden(session, first)
    if broken is not None:
        return broken
    acceptor, blame, rejected = _find_acceptor(session, first)
    if acceptor:
        # Compilers report a missing element type by all sorts of errors, so it is tried on its own.
        dtype = pieces.find_refused_type(session.program, target, session.lab)
        if dtype:
            reason = make_reason(Cause.TYPE_REFUSED, target=target, dtype=dtype, ending=first)
            return make_verdict("unsupported", reason, at=first)
    if acceptor:
        does = "refuses" if first.outcome == "rejected" else "fails on"
        does_too = "has expected outputs" if acceptor == oracles.EXPECTED else f"{acceptor} accepts"
        reason = make_reason(Cause.REFUSES, target=target, does=does, acceptor=does_too, ending=first)
        return make_verdict("fail", reason, "error", first, blame=blame)
    if _find_type_error(session):
        reason = make_reason(Cause.ILL_TYPED, target=target, why=_find_type_error(session), ending=first)
        return make_verdict("invalid", reason, "error", first)
    objected = [
        each.display
        for each, answer in session.answers.items()
        if each != target and answer.exception == first.exception == OBJECTION
    ]
    if rejected and objected:
        reason = make_reason(Cause.BREAKS_RULE, asked=objected, ending=first)
        return make_verdict("invalid", reason, "error", first)
    facts = {"target": target, "asked": session.list_asked() or "no other was asked", "ending": first}
    if rejected:
        return make_verdict("invalid", make_reason(Cause.EVERYBODY_REJECTS, **facts), "error", first)
    return make_verdict("undecided", make_reason(Cause.NOBODY_ELSE, **facts), "error", first)


def _judge_forbidden(session: judging_session.JudgingSession, first: Observation) -> verdict.Verdict | None:
    """Return the verdict `invalid` if the reference refuses the program for the same reason; accepting it is
    lenience.
    """
    # Outputs that the user vouches for prove that the program has a meaning.
    if session.expected is not None:
        return None
    reference = session.run_target(oracles.NATIVE)
    kind = find_common_reason(first, reference)
    if not kind and not is_naming_rule(reference) and not (reference.outcome == first.outcome == "rejected"):
        return None
    facts = {
        "target": session.target,
        "breach": kind or "what the specification forbids",
        "ending": reference,
    }
    return make_verdict("invalid", make_reason(Cause.FORBIDDEN, **facts), "error", first)


def _find_acceptor(session: judging_session.JudgingSession, first: Observation) -> tuple[str, str, bool]:
    """Find an implementation that accepts the program, the blame that follows, and whether an independent one
    rejects it.
    """
    baseline = session.target.baseline
    if baseline is not None and session.run_target(baseline).outcome == "ok":
        return baseline.display, "optimiser", False
    if session.expected is not None:
        session.consulted.append(oracles.EXPECTED)
        return oracles.EXPECTED, "compiler", False
    # The compiler of such an IR has accepted the program before it failed on it.
    checked_by = ir_of(session.program).checked_by
    if checked_by and first.stage != "import" and first.outcome == "error":
        return checked_by, "compiler", False
    against = False
    others: list[registry.ResolvedTarget] = [oracles.NATIVE, *session.oracles]
    for oracle in others:
        # An objection of a user's oracle is a fault of the target if the reference meets with none. An error
        # of the target is judged by those that run the program, whatever that oracle says of their outputs.
        answer = session.run_target(
            oracle.asking(session.target.oracles) if first.exception == OBJECTION else oracle
        )
        if _find_type_error(session):
            # A compiler that accepts it is lenient.
            return "", "", True
        objects = judging_session.is_refused_by_checker(answer)
        if answer.outcome == "ok" and not objects:
            return oracle.display, "compiler", against
        refuses = oracles.is_independent(session.target, oracle) and answer.outcome in ("error", "rejected")
        against = against or objects or refuses
    return "", "", against


def _find_type_error(session: judging_session.JudgingSession) -> str:
    """Return the native reference's note about an operator that does not take a type, if it was run."""
    notes = session.answers[oracles.NATIVE].notes if oracles.NATIVE in session.answers else ()
    return next((note for note in notes if note.startswith(ILL_TYPED)), "")


def _judge_unconfirmed(session: judging_session.JudgingSession, first: Observation) -> verdict.Verdict | None:
    """Return `flaky` with the counts unless a fresh process fails in the same way."""
    # One repetition settles most failures; only the others are worth more runs.
    if session.run_again().outcome == first.outcome:
        return None
    seen = 1 + sum(session.run_again().outcome == first.outcome for _ in range(_REPEATS - 1))
    facts = {
        "target": session.target,
        "outcome": first.outcome,
        "seen": seen,
        "runs": _REPEATS + 1,
        "ending": first,
    }
    return make_verdict(
        "flaky", make_reason(Cause.NOT_CONFIRMED, **facts), verdict.DEATHS.get(first.outcome, "error"), first
    )


def _judge_undefined(session: judging_session.JudgingSession, first: Observation) -> verdict.Verdict | None:
    """Return `invalid` if ONNX leaves a result of the program undefined, so that an error is acceptable."""
    rules = tuple(
        rule
        for rule in judging_session.list_open_rules(session.run_target(oracles.NATIVE).hazards, None)
        if rule in _MAY_RAISE
    )
    if not rules:
        return None
    reason = make_reason(Cause.RAISED_WHERE_UNDEFINED, target=session.target, rules=rules, ending=first)
    return make_verdict("invalid", reason, "error", first, rules=rules)
