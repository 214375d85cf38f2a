"""A target against itself: a program and one that means the same must not differ beyond the policy
(gen/rewrites has the rewrites).

This needs no second compiler. What differs is a failure only once the float64 reference sides with the target
on the program as it is; where it sides with the rewritten one, the target is wrong on the program itself,
which the judgement of the target without a rewrite says.
"""

from dataclasses import replace

from opsieve.backends.compare import compare
from opsieve.backends.judge.judging_session import JudgingSession, sum_lengths
from opsieve.backends.judge.mismatch import MismatchJudge
from opsieve.backends.judge.oracles import FLOAT64, NATIVE, Values
from opsieve.backends.judge.reasons import Cause, because, verdict
from opsieve.backends.verdict import Verdict


def against_itself(session: JudgingSession, outputs: Values) -> Verdict:
    """The verdict on a target that gave `outputs` for the rewritten program."""
    target, plain = session.target, session.target.unrewritten
    asked = session.ask(plain)
    if asked.outputs is None:
        return verdict("undecided", because(Cause.NO_PLAIN, plain=plain, outcome=asked.outcome))
    found = compare(outputs, asked.outputs, session.dtypes, session.policy)
    if found.agrees:
        return verdict("pass", because(Cause.SELF_AGREES, target=target, plain=plain), rules=found.rules)
    arbiter = FLOAT64 if session.ask(FLOAT64).outputs is not None else NATIVE
    right = session.ask(arbiter)
    facts = {"target": target, "plain": plain, "mismatch": found.worst}
    if right.outcome == "rejected":
        return verdict("invalid", because(Cause.NO_MEANING, ending=right))
    if right.outputs is None:
        return verdict(
            "undecided", because(Cause.CONTRADICTS_UNREFERENCED, **facts), "metamorphic", mismatch=found.worst
        )
    terms = sum_lengths(right.hazards)
    own = compare(outputs, right.outputs, session.dtypes, session.policy, terms)
    if own.agrees:
        return verdict("pass", because(Cause.AGREES, target=target, oracle=arbiter), rules=own.rules)
    judged = MismatchJudge(session, arbiter, outputs, terms).verdict(own)
    worst = judged.mismatch
    if judged.verdict != "fail" or judged.kind != "mismatch" or worst is None:
        return judged
    if not session.agrees(plain, right.outputs, (worst.output,), terms):
        return judged  # wrong without the rewrite, too
    baseline = target.baseline
    sound = baseline is not None and session.agrees(baseline, right.outputs, (worst.output,), terms)
    return replace(
        judged,
        kind="metamorphic",
        reason=str(
            because(Cause.CONTRADICTS_ITSELF, target=target, plain=plain, arbiter=arbiter, mismatch=worst)
        ),
        blame="optimiser" if sound else "compiler",
    )
