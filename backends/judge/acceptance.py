"""Judge a target on an invalid program: it must refuse the program, not run it or die from it.

A program that is invalid through its inputs alone (an index out of range) is reported on request only
(`find_accepted_forbidden`).

This is the oracle of the strategy `disruptive` (HirFuzz, section 3.2: programs that break a rule must be
rejected with an error). The generator's word is not enough: onnx's checker with full inference, or its
reference evaluator, must refuse the program too.
"""

from dataclasses import replace
from typing import Any

from opsieve.backends.judge.oracles import NATIVE, Lab
from opsieve.backends.judge.reasons import Cause, find_common_reason, make_reason, make_verdict
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
    """Judge a target on a program with a fault; return the verdict and its observations, the target's first.

    `pass` if it refuses the program, `fail` with kind `accepts-invalid` if it runs it (`undecided` if that is
    lenience, or the other implementations accept it too), and with kind `crash`, `hang` or `memory` if it
    dies. Every failure is confirmed in a fresh process.
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
        found = make_verdict(
            "pass", make_reason(Cause.REFUSES_RIGHTLY, **facts, ending=first), at=replace(first, message="")
        )
    elif first.outcome == "environment":
        found = make_verdict("environment", make_reason(Cause.NOT_RUN, target=target, ending=first), at=first)
    elif first.outcome == "unsupported":
        found = make_verdict("unsupported", make_reason(Cause.REFUSES_AS_LACK, **facts, ending=first))
    else:
        judged = _judge_death if first.outcome in DEATHS else _judge_acceptance
        found = judged(program, inputs, target, lab, fault, seen, facts)
    return found, tuple(seen)


def _observe_again(
    program: Program, inputs: dict[str, Any], target: ResolvedTarget, lab: Lab, seen: list[Observation]
) -> Observation:
    seen.append(lab.observe(target, program, inputs, fresh=True))
    return seen[-1]


def _judge_death(
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    fault: Broken,
    seen: list[Observation],
    facts: dict[str, Any],
) -> Verdict:
    first, second = seen[0], _observe_again(program, inputs, target, lab, seen)
    kind = DEATHS[first.outcome]
    if second.outcome != first.outcome:
        reason = make_reason(Cause.DIED_ONCE, **facts, outcome=first.outcome, second=second.outcome)
        return make_verdict("flaky", reason, kind, first)
    reason = make_reason(Cause.DIED, **facts, outcome=first.outcome, ending=first)
    return make_verdict("fail", reason, kind, first, blame="compiler")


def _judge_acceptance(
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    fault: Broken,
    seen: list[Observation],
    facts: dict[str, Any],
) -> Verdict:
    objector = objection = None
    # The checker is cheap and names the rule; the reference finds what only values show.
    for judge in (CHECKER, NATIVE):
        answer = lab.observe(judge, program, inputs)
        seen.append(answer)
        if answer.outcome in ("rejected", "error"):
            objector, objection = judge, answer
            break
    if objector is None:
        return make_verdict("undecided", make_reason(Cause.NOBODY_OBJECTS, **facts))
    facts.update(objector=objector, objection=objection)
    rule = LENIENT.get(fault.kind)
    if rule is not None:
        return make_verdict("undecided", make_reason(Cause.LENIENT, **facts, rules=(rule,)), rules=(rule,))
    # A fault of an earlier test in the same process may have let this program pass.
    second = _observe_again(program, inputs, target, lab, seen)
    ran = replace(seen[0], stage="run", message=facts["breach"])
    if not is_acceptance(second):
        reason = make_reason(Cause.ACCEPTED_ONCE, **facts, second=second.outcome)
        return make_verdict("flaky", reason, "accepts-invalid", replace(second, message=facts["breach"]))
    found = make_verdict(
        "fail", make_reason(Cause.ACCEPTS, **facts), "accepts-invalid", ran, blame="compiler"
    )
    return replace(found, oracles=(CHECKER.display, NATIVE.display))


def find_accepted_forbidden(
    program: Program, inputs: dict[str, Any], target: ResolvedTarget, lab: Lab
) -> Verdict | None:
    """Judge a target that runs, twice, a program that the reference rejects for its values.

    Returns `pass` if the target refuses it for the same reason, and None in all other cases.
    """
    rejected, first = lab.observe(NATIVE, program, inputs), lab.observe(target, program, inputs)
    if rejected.outcome == "rejected" and (breach := find_common_reason(first, rejected)):
        facts = {"target": target, "breach": f"which has {breach}", "ending": first}
        return make_verdict(
            "pass", make_reason(Cause.REFUSES_RIGHTLY, **facts), at=replace(first, message="")
        )
    if rejected.outcome != "rejected" or not is_acceptance(first):
        return None
    # As every failure, it must show in a process that ran nothing before.
    second = lab.observe(target, program, inputs, fresh=True)
    if not is_acceptance(second):
        return None
    reason = make_reason(Cause.ACCEPTS_FORBIDDEN, target=target, ending=rejected)
    # without the name of the target: the failure is the same at each of its levels
    ran = replace(second, message=rejected.message)
    found = make_verdict("fail", reason, "accepts-invalid", ran, blame="compiler")
    return replace(found, oracles=(NATIVE.display,))
