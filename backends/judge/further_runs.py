"""The oracles that ask further runs of a build that passes: is it slower, does it need more memory, does it
give the same again?
"""

from typing import Any

from opsieve.backends.compare import POLICY
from opsieve.backends.judge.judging_session import JudgingSession, open_rules
from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.judge.oracles import FLOAT64, Lab
from opsieve.backends.judge.performance import may_be_slower, measure_memory, measure_slowdown
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import Verdict
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program

_AGAIN = 3  # further runs in processes of their own


def asked_further(
    choice: OracleChoice,
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    glance: bool = False,
) -> Verdict | None:
    """The first verdict that is not `pass` of the chosen oracles on a target that passes, None without one.

    With `glance`, time is measured only where the runs that were done already look slow: a campaign has many
    programs.
    """
    for name in choice.measured:
        found = _asked(name, choice, program, inputs, target, lab, glance)
        if found is not None and found.verdict != "pass":
            return found
    return None


def _asked(
    name: str,
    choice: OracleChoice,
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    glance: bool,
) -> Verdict | None:
    if name == "memory":
        return measure_memory(program, inputs, target, lab, margin=choice.memory_margin)
    if name == "nondeterminism":
        return changing(program, inputs, target, lab)
    baseline, margin = target.baseline, choice.slowdown_margin
    if glance and baseline is not None:
        done, usual = (lab.observe(build, program, inputs) for build in (target, baseline))
        if usual.outcome != "ok" or not may_be_slower(done, usual, margin):
            return None
    return measure_slowdown(program, inputs, target, lab, choice.rounds, margin)


def changing(program: Program, inputs: dict[str, Any], target: ResolvedTarget, lab: Lab) -> Verdict | None:
    """The verdict on a target of which another process gives other outputs for the same inputs; None where
    none does, or where the program leaves open what differs.
    """
    first = lab.observe(target, program, inputs)
    if first.outputs is None:
        return None
    for _ in range(_AGAIN):
        session = JudgingSession(program, inputs, target, lab, None, (), POLICY)
        found = session.repeats(first.outputs, tuple(first.outputs))
        if found is None:
            continue
        reference = lab.observe(FLOAT64, program, inputs)
        if ir_of(program).can_be_undefined and reference.outputs is None:
            return None
        output = found.mismatch.output if found.mismatch is not None else None
        return None if open_rules(reference.hazards, output) else found
    return None
