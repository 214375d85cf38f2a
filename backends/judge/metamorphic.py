"""Compare a target with itself: a program and an equivalent one must not differ beyond the policy
(gen/rewrites).

This needs no second compiler. A difference is a failure if the float64 reference agrees with the target on
the original program; if it agrees on the rewritten one, the target is wrong on the original program, which
its ordinary judgement reports.
"""

from dataclasses import replace

from opsieve.backends.compare import compare
from opsieve.backends.judge import judging_session, mismatch, oracles
from opsieve.backends.judge.reasons import Cause, make_reason, make_verdict
from opsieve.backends.verdict import Verdict


def judge_rewritten(session: judging_session.JudgingSession, outputs: oracles.Values) -> Verdict:
    """Judge a target that gave `outputs` for the rewritten program."""
    target, plain = session.target, session.target.unrewritten
    asked = session.run_target(plain)
    if asked.outputs is None:
        return make_verdict("undecided", make_reason(Cause.NO_PLAIN, plain=plain, outcome=asked.outcome))
    found = compare(outputs, asked.outputs, session.dtypes, session.policy)
    if found.agrees:
        return make_verdict(
            "pass", make_reason(Cause.SELF_AGREES, target=target, plain=plain), rules=found.rules
        )
    arbiter = oracles.FLOAT64 if session.run_target(oracles.FLOAT64).outputs is not None else oracles.NATIVE
    right = session.run_target(arbiter)
    facts = {"target": target, "plain": plain, "mismatch": found.worst}
    if right.outcome == "rejected":
        return make_verdict("invalid", make_reason(Cause.NO_MEANING, ending=right))
    if right.outputs is None:
        return make_verdict(
            "undecided",
            make_reason(Cause.CONTRADICTS_UNREFERENCED, **facts),
            "metamorphic",
            mismatch=found.worst,
        )
    terms = judging_session.find_sum_lengths(right.hazards)
    own = compare(outputs, right.outputs, session.dtypes, session.policy, terms)
    if own.agrees:
        return make_verdict("pass", make_reason(Cause.AGREES, target=target, oracle=arbiter), rules=own.rules)
    judged = mismatch.MismatchJudge(session, arbiter, outputs, terms).judge_comparison(own)
    worst = judged.mismatch
    if judged.verdict != "fail" or judged.kind != "mismatch" or worst is None:
        return judged
    if not session.is_agreeing(plain, right.outputs, (worst.output,), terms):
        # Wrong without the rewrite, too
        return judged
    baseline = target.baseline
    sound = baseline is not None and session.is_agreeing(baseline, right.outputs, (worst.output,), terms)
    return replace(
        judged,
        kind="metamorphic",
        reason=str(
            make_reason(Cause.CONTRADICTS_ITSELF, target=target, plain=plain, arbiter=arbiter, mismatch=worst)
        ),
        blame="optimiser" if sound else "compiler",
    )
