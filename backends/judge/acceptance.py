"""What to say of a target that is given an invalid program: it is to refuse it, not to run it and not to die
of it.

A program that breaks a rule by its inputs alone (an index out of range) is reported on request only
(`accepts_forbidden`). The oracle of the strategy `disruptive` (HirFuzz, section 3.2: programs that break a
rule must be rejected with an error). That the program is invalid is not taken from the generator: onnx's
checker with full inference, or else its reference evaluator, must refuse it too.
"""

from dataclasses import replace
from typing import Any

from opsieve.backends.judge.oracles import NATIVE, Lab
from opsieve.backends.judge.reasons import Cause, because, verdict
from opsieve.backends.judge.refusals import same_reason
from opsieve.backends.judge.shown_failure import is_acceptance
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.verdict import DEATHS, Verdict
from opsieve.gen.model.program import Broken, Program

CHECKER = resolve("checker")
# These programs have one meaning all the same, without the faulty part or with an element type that the
# compiler has beyond those of the operator's page: a lenience of the compiler, reported but no bug.
LENIENT = {
    "output-dtype": "declared-output-ignored",
    "output-shape": "declared-output-ignored",
    "unknown-attribute": "unknown-attribute-ignored",
    "extra-input": "extra-input-ignored",
    "dtype": "further-element-types",
}


def judge_broken(
    program: Program, inputs: dict[str, Any], target: ResolvedTarget, lab: Lab, fault: Broken
) -> tuple[Verdict, tuple[Observation, ...]]:
    """The verdict on a target that was given a program with a fault, and the observations it stands on, the
    target's first.

    `pass` when it refuses it, `fail` with kind `accepts-invalid` when it runs it (`undecided` where that is
    lenience, or nobody else finds the program invalid), and with kind `crash`, `hang` or `memory` when it
    dies of it. Every failure is confirmed in a fresh process.
    """
    facts: dict[str, Any] = {
        "target": target,
        "breach": f"{fault.operator} breaks {fault.kind} ({fault.place})",
    }
    first = lab.observe(target, program, inputs)
    seen = [first]
    # An attribute that a release does not know is most often one of a newer opset, so it is called
    # `environment`; here it is a refusal.
    if first.outcome in ("error", "rejected") or (first.outcome, fault.kind) == (
        "environment",
        "unknown-attribute",
    ):
        found = verdict(
            "pass", because(Cause.REFUSES_RIGHTLY, **facts, ending=first), at=replace(first, message="")
        )
    elif first.outcome == "environment":
        found = verdict("environment", because(Cause.NOT_RUN, target=target, ending=first), at=first)
    elif first.outcome == "unsupported":
        found = verdict("unsupported", because(Cause.REFUSES_AS_LACK, **facts, ending=first))
    else:
        judged = _died if first.outcome in DEATHS else _accepted
        found = judged(program, inputs, target, lab, fault, seen, facts)
    return found, tuple(seen)


def _again(
    program: Program, inputs: dict[str, Any], target: ResolvedTarget, lab: Lab, seen: list[Observation]
) -> Observation:
    seen.append(lab.observe(target, program, inputs, fresh=True))
    return seen[-1]


def _died(
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    fault: Broken,
    seen: list[Observation],
    facts: dict[str, Any],
) -> Verdict:
    first, second = seen[0], _again(program, inputs, target, lab, seen)
    kind = DEATHS[first.outcome]
    if second.outcome != first.outcome:
        reason = because(Cause.DIED_ONCE, **facts, outcome=first.outcome, second=second.outcome)
        return verdict("flaky", reason, kind, first)
    reason = because(Cause.DIED, **facts, outcome=first.outcome, ending=first)
    return verdict("fail", reason, kind, first, blame="compiler")


def _accepted(
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    fault: Broken,
    seen: list[Observation],
    facts: dict[str, Any],
) -> Verdict:
    objector = objection = None
    for judge in (CHECKER, NATIVE):
        answer = lab.observe(judge, program, inputs)
        seen.append(answer)
        if answer.outcome in ("rejected", "error"):
            objector, objection = judge, answer
            break
    if objector is None:
        return verdict("undecided", because(Cause.NOBODY_OBJECTS, **facts))
    facts.update(objector=objector, objection=objection)
    rule = LENIENT.get(fault.kind)
    if rule is not None:
        return verdict("undecided", because(Cause.LENIENT, **facts, rules=(rule,)), rules=(rule,))
    second = _again(program, inputs, target, lab, seen)
    ran = replace(seen[0], stage="run", message=facts["breach"])
    if not is_acceptance(second):
        reason = because(Cause.ACCEPTED_ONCE, **facts, second=second.outcome)
        return verdict("flaky", reason, "accepts-invalid", replace(second, message=facts["breach"]))
    found = verdict("fail", because(Cause.ACCEPTS, **facts), "accepts-invalid", ran, blame="compiler")
    return replace(found, oracles=(CHECKER.display, NATIVE.display))


def accepts_forbidden(
    program: Program, inputs: dict[str, Any], target: ResolvedTarget, lab: Lab
) -> Verdict | None:
    """The failure of a target that runs, twice, what the reference rejects for its values; `pass` for one
    that refuses it for the same reason, None of any other.
    """
    rejected, first = lab.observe(NATIVE, program, inputs), lab.observe(target, program, inputs)
    if rejected.outcome == "rejected" and (breach := same_reason(first, rejected)):
        facts = {"target": target, "breach": f"which has {breach}", "ending": first}
        return verdict("pass", because(Cause.REFUSES_RIGHTLY, **facts), at=replace(first, message=""))
    if rejected.outcome != "rejected" or not is_acceptance(first):
        return None
    second = lab.observe(target, program, inputs, fresh=True)
    if not is_acceptance(second):
        return None
    reason = because(Cause.ACCEPTS_FORBIDDEN, target=target, ending=rejected)
    # without the name of the target: the failure is the same at each of its levels
    ran = replace(second, message=rejected.message)
    found = verdict("fail", reason, "accepts-invalid", ran, blame="compiler")
    return replace(found, oracles=(NATIVE.display,))
