"""Oracles that rerun a passing build: is it slower, does it need more memory, does it give the same results
again?
"""

from typing import Any

from opsieve.backends import compare, registry, verdict
from opsieve.backends.judge import judging_session, oracle_names, oracles, performance
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program

# Further runs in processes of their own
_AGAIN = 3


def run_optional_oracles(
    choice: oracle_names.OracleChoice,
    program: Program,
    inputs: dict[str, Any],
    target: registry.ResolvedTarget,
    lab: oracles.Lab,
    glance: bool = False,
) -> verdict.Verdict | None:
    """Return the first verdict of the chosen oracles other than `pass` on a passing target, or None.

    With `glance`, time is measured only if the earlier runs already look slow, because a campaign has many
    programs.
    """
    for name in choice.measured:
        found = _run_oracle(name, program, inputs, target, lab, glance)
        if found is not None and found.verdict != "pass":
            return found
    return None


def _run_oracle(
    name: str,
    program: Program,
    inputs: dict[str, Any],
    target: registry.ResolvedTarget,
    lab: oracles.Lab,
    glance: bool,
) -> verdict.Verdict | None:
    if name == "memory":
        return performance.measure_memory(program, inputs, target, lab)
    if name == "nondeterminism":
        return judge_nondeterminism(program, inputs, target, lab)
    if glance and target.baseline is not None:
        done, usual = (lab.observe(build, program, inputs) for build in (target, target.baseline))
        if usual.outcome != "ok" or not performance.is_slower(done.cpu_seconds, usual.cpu_seconds):
            return None
    return performance.measure_slowdown(program, inputs, target, lab)


def judge_nondeterminism(
    program: Program, inputs: dict[str, Any], target: registry.ResolvedTarget, lab: oracles.Lab
) -> verdict.Verdict | None:
    """Judge a target whose outputs differ in another process; returns `None` if they are equal, or the
    program leaves them open.
    """
    first = lab.observe(target, program, inputs)
    if first.outputs is None:
        return None
    # A failure must repeat in a fresh process before a compiler is blamed.
    for _ in range(_AGAIN):
        session = judging_session.JudgingSession(program, inputs, target, lab, None, (), compare.POLICY)
        found = session.judge_repetition(first.outputs, tuple(first.outputs))
        if found is None:
            continue
        reference = lab.observe(oracles.FLOAT64, program, inputs)
        # Reads of undefined memory differ between runs, and only the reference could tell.
        if ir_of(program).can_be_undefined(program) and reference.outputs is None:
            return None
        output = found.mismatch.output if found.mismatch is not None else None
        # Where ONNX leaves a result open, a compiler may give another one each time.
        return None if judging_session.list_open_rules(reference.hazards, output) else found
    return None
