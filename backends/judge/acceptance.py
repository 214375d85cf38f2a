"""What to say of a target that is given an invalid program: it is to refuse it, not to run it and not to die of it.

The oracle of the strategy `disruptive` (HirFuzz, section 3.2: programs that break a rule must be rejected with an error). That the program
is invalid is not taken from the generator: onnx's checker with full inference, or else its reference evaluator, must refuse it too.
"""

from typing import Any

from opsieve.backends.judge.judging_session import short
from opsieve.backends.judge.oracles import NATIVE, Lab
from opsieve.backends.observation import Observation
from opsieve.backends.registry import display
from opsieve.backends.target import Target
from opsieve.backends.verdict import DEATHS, Verdict
from opsieve.gen.model.invalid_marker import Broken
from opsieve.gen.model.program import Program

CHECKER = Target("checker")
# These programs have one meaning all the same, without the faulty part or with an element type that the compiler has beyond those of
# the operator's page: a lenience of the compiler, breach but no bug.
LENIENT = {
    "output-dtype": "declared-output-ignored",
    "output-shape": "declared-output-ignored",
    "unknown-attribute": "unknown-attribute-ignored",
    "extra-input": "extra-input-ignored",
    "dtype": "further-element-types",
}


def judge_broken(
    program: Program, inputs: dict[str, Any], target: Target, lab: Lab, fault: Broken
) -> tuple[Verdict, tuple[Observation, ...]]:
    """The verdict on a target that was given a program with a fault, and the observations it stands on, the target's first.

    `pass` when it refuses it, `fail` with kind `accepts-invalid` when it runs it (`undecided` where that is lenience, or nobody else
    finds the program invalid), and with kind `crash`, `hang` or `memory` when it dies of it. Every failure is confirmed in a fresh process.
    """
    breach = f"{fault.operator} breaks {fault.kind} ({fault.place})"
    name = display(target)
    first = lab.observe(target, program, inputs)
    seen = [first]
    # An attribute that a release does not know is most often one of a newer opset, so it is called `environment`; here it is a refusal.
    if first.outcome in ("error", "rejected") or (first.outcome, fault.kind) == ("environment", "unknown-attribute"):
        verdict = Verdict("pass", f"{name} refuses it as it should, {breach}: {short(first)}", stage=first.stage)
    elif first.outcome == "environment":
        verdict = Verdict("environment", f"{name} cannot be asked: {short(first)}", None, first.stage, first.message)
    elif first.outcome == "unsupported":
        verdict = Verdict("unsupported", f"{name} refuses it as a lack of its own, {breach}: {short(first)}", None)
    elif first.outcome in DEATHS:
        verdict = _died(name, breach, first, _again(program, inputs, target, lab, seen))
    else:
        verdict = _accepted(program, inputs, target, lab, fault, seen, breach)
    return verdict, tuple(seen)


def _again(program: Program, inputs: dict[str, Any], target: Target, lab: Lab, seen: list[Observation]) -> Observation:
    seen.append(lab.observe(target, program, inputs, fresh=True))
    return seen[-1]


def _died(name: str, breach: str, first: Observation, second: Observation) -> Verdict:
    kind = DEATHS[first.outcome]
    if second.outcome != first.outcome:
        reason = f"{name} ended with `{first.outcome}` once and with `{second.outcome}` in a fresh process, {breach}"
        return Verdict("flaky", reason, kind, first.stage, first.message)
    reason = f"{name} ended with `{first.outcome}` instead of an error, {breach}: {short(first)}"
    return Verdict("fail", reason, kind, first.stage, first.message, blame="compiler")


def _accepted(
    program: Program,
    inputs: dict[str, Any],
    target: Target,
    lab: Lab,
    fault: Broken,
    seen: list[Observation],
    breach: str,
) -> Verdict:
    name = display(target)
    objector = ""
    for judge in (CHECKER, NATIVE):
        answer = lab.observe(judge, program, inputs)
        seen.append(answer)
        if answer.outcome in ("rejected", "error"):
            objector = f"{display(judge)} says {short(answer)}"
            break
    if not objector:
        return Verdict("undecided", f"{name} runs it, and neither onnx's checker nor its reference objects: {breach}")
    rule = LENIENT.get(fault.kind)
    if rule is not None:
        return Verdict("undecided", f"{name} runs it, which is lenient ({rule}): {breach}; {objector}", rules=(rule,))
    second = _again(program, inputs, target, lab, seen)
    if second.outcome != "ok":
        reason = f"{name} ran it once and ended with `{second.outcome}` in a fresh process: {breach}"
        return Verdict("flaky", reason, "accepts-invalid", second.stage, breach)
    reason = f"{name} runs an invalid program, {breach}; {objector}"
    return Verdict(
        "fail", reason, "accepts-invalid", "run", breach, oracles=(display(CHECKER), display(NATIVE)), blame="compiler"
    )
