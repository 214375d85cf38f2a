"""The verdict on a target that gave no outputs: it died, it raised an error, or it says that it lacks
something.

A lack is one only when the program holds what the compiler lacks. A compiler that runs the program
unoptimised, or that takes each of its operators by itself, made what it lacks: that is an error of its
optimiser. An element type that a compiler refuses everywhere is a lack, whatever it calls it.
"""

from opsieve.backends.judge.judging_session import JudgingSession, is_refused_by_checker, open_rules
from opsieve.backends.judge.oracles import EXPECTED, NATIVE, independent
from opsieve.backends.judge.pieces import refused_type
from opsieve.backends.judge.reasons import Cause, because, verdict
from opsieve.backends.judge.refusals import names_rule, same_reason
from opsieve.backends.judge.shown_failure import find_acceptor_of_lack
from opsieve.backends.observation import Observation
from opsieve.backends.reference.type_constraints import ILL_TYPED
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import DEATHS, Verdict
from opsieve.gen.irs.registry import ir_of

_REPEATS = 3  # fresh runs before a failure counts as flaky
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


def died(session: JudgingSession, first: Observation) -> Verdict:
    """The verdict on a crash, a hang or a lack of memory."""
    flaky = _unconfirmed(session, first)
    if flaky is not None:
        return flaky
    target, kind, outcome = session.target, DEATHS[first.outcome], first.outcome
    baseline, host = session.target.baseline, session.target.runtime
    if host is not None and session.ask(host).outcome == outcome:
        return verdict(
            "undecided", because(Cause.HOST_ENDS_TOO, host=host, target=target, outcome=outcome), kind, first
        )
    if (
        first.stage == "run"
        and not ir_of(session.program).checker
        and session.ask(NATIVE).outcome == "rejected"
    ):
        return verdict("invalid", because(Cause.NO_MEANING, ending=session.ask(NATIVE)), kind, first)
    if kind == "crash":
        return verdict(
            "fail", because(Cause.CRASHED, target=target, stage=first.stage, ending=first), kind, first
        )
    # A program that needs the time or the memory is not the compiler's fault: somebody else must do with
    # less.
    if baseline is not None and session.ask(baseline).outcome == "ok":
        blame = "optimiser"
    elif session.ask(NATIVE).outcome != outcome or any(
        session.ask(each).outcome == "ok" for each in session.oracles
    ):
        blame = "compiler"
    else:
        return verdict(
            "undecided", because(Cause.REFERENCE_ENDS_TOO, target=target, outcome=outcome), kind, first
        )
    reason = because(Cause.ENDED, target=target, outcome=outcome, stage=first.stage, ending=first)
    return verdict("fail", reason, kind, first, blame=blame)


def lacks(session: JudgingSession, first: Observation) -> Verdict:
    """The verdict on a target that says that it lacks something: `unsupported` unless the compiler itself
    made what it lacks.
    """
    target, baseline = session.target, session.target.baseline
    acceptor = find_acceptor_of_lack(session.program, session.inputs, target, first, session)
    if not acceptor:
        return verdict("unsupported", because(Cause.LACKS, target=target, ending=first), at=first)
    excused = _unconfirmed(session, first) or _undefined(session, first)
    if excused is not None:
        return excused
    blame = "optimiser" if baseline is not None else "compiler"
    reason = because(Cause.MADE_LACK, target=target, acceptor=acceptor, ending=first)
    return verdict("fail", reason, "error", first, blame=blame)


def refused(session: JudgingSession, first: Observation) -> Verdict:
    """The verdict on a target that raised an error."""
    excused = _unconfirmed(session, first) or _undefined(session, first)
    if excused is not None:
        return excused
    target = session.target
    broken = _forbidden(session, first)
    if broken is not None:
        return broken
    acceptor, blame, rejected = _acceptor(session, first)
    if acceptor:
        dtype = refused_type(session.program, target, session.lab)
        if dtype:
            reason = because(Cause.TYPE_REFUSED, target=target, dtype=dtype, ending=first)
            return verdict("unsupported", reason, at=first)
    if acceptor:
        does = "refuses" if first.outcome == "rejected" else "fails on"
        does_too = "the expected outputs accept" if acceptor == EXPECTED else f"{acceptor} accepts"
        reason = because(Cause.REFUSES, target=target, does=does, acceptor=does_too, ending=first)
        return verdict("fail", reason, "error", first, blame=blame)
    if _ill_typed(session):
        reason = because(Cause.ILL_TYPED, target=target, why=_ill_typed(session), ending=first)
        return verdict("invalid", reason, "error", first)
    facts = {"target": target, "asked": session.list_asked() or "no other was asked", "ending": first}
    if rejected:
        return verdict("invalid", because(Cause.EVERYBODY_REJECTS, **facts), "error", first)
    return verdict("undecided", because(Cause.NOBODY_ELSE, **facts), "error", first)


def _forbidden(session: JudgingSession, first: Observation) -> Verdict | None:
    """The verdict `invalid` where the reference refuses the program for the reason of the target: whoever
    accepts it is lenient.
    """
    if session.expected is not None:
        return None
    reference = session.ask(NATIVE)
    kind = same_reason(first, reference)
    if not kind and not names_rule(reference) and not (reference.outcome == first.outcome == "rejected"):
        return None
    facts = {
        "target": session.target,
        "breach": kind or "what the specification forbids",
        "ending": reference,
    }
    return verdict("invalid", because(Cause.FORBIDDEN, **facts), "error", first)


def _acceptor(session: JudgingSession, first: Observation) -> tuple[str, str, bool]:
    """Who accepts the program, whom that blames, and whether an independent implementation rejects it; ""
    when nobody accepts it.
    """
    baseline = session.target.baseline
    if baseline is not None and session.ask(baseline).outcome == "ok":
        return baseline.display, "optimiser", False
    if session.expected is not None:
        session.consulted.append(EXPECTED)
        return EXPECTED, "compiler", False
    checked_by = ir_of(session.program).checked_by
    if checked_by and first.stage != "import" and first.outcome == "error":
        return checked_by, "compiler", False
    against = False
    others: list[ResolvedTarget] = [NATIVE, *session.oracles]
    for oracle in others:
        answer = session.ask(oracle)
        if _ill_typed(session):
            return "", "", True  # whoever takes it is lenient
        objects = is_refused_by_checker(answer)
        if answer.outcome == "ok" and not objects:
            return oracle.display, "compiler", against
        refuses = independent(session.target, oracle) and answer.outcome in ("error", "rejected")
        against = against or objects or refuses
    return "", "", against


def _ill_typed(session: JudgingSession) -> str:
    """Why ONNX has no such program, as far as the native reference was asked and looks: an operator that does
    not take a type.
    """
    notes = session.answers[NATIVE].notes if NATIVE in session.answers else ()
    return next((note for note in notes if note.startswith(ILL_TYPED)), "")


def _unconfirmed(session: JudgingSession, first: Observation) -> Verdict | None:
    """None when a fresh process fails the same way; else the verdict `flaky`, with how often of how many."""
    if session.again().outcome == first.outcome:
        return None
    seen = 1 + sum(session.again().outcome == first.outcome for _ in range(_REPEATS - 1))
    facts = {
        "target": session.target,
        "outcome": first.outcome,
        "seen": seen,
        "runs": _REPEATS + 1,
        "ending": first,
    }
    return verdict("flaky", because(Cause.NOT_CONFIRMED, **facts), DEATHS.get(first.outcome, "error"), first)


def _undefined(session: JudgingSession, first: Observation) -> Verdict | None:
    """The verdict `invalid` when ONNX leaves a result of the program undefined, so that an error is as good
    as any answer.
    """
    rules = tuple(rule for rule in open_rules(session.ask(NATIVE).hazards, None) if rule in _MAY_RAISE)
    if not rules:
        return None
    reason = because(Cause.RAISED_WHERE_UNDEFINED, target=session.target, rules=rules, ending=first)
    return verdict("invalid", reason, "error", first, rules=rules)
