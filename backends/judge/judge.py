"""What to say of a program on a target: the order of questions, the oracles consulted, the rules that decide.

Nothing runs here. Every answer is asked of a Lab, which runs the program in a worker of its own; few oracles
are asked when few are enough. docs/explanation/oracles.md states the policy, docs/benchmarks/judging.md what
was measured of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsieve.backends.compare import POLICY, Comparison, Policy, compare
from opsieve.backends.judge.acceptance import accepts_forbidden, judge_broken
from opsieve.backends.judge.derived_types import (
    derive,
    find_contradictions,
    judge_types,
    settle_declared_types,
)
from opsieve.backends.judge.endings import died, lacks, refused
from opsieve.backends.judge.further_runs import asked_further
from opsieve.backends.judge.judging_session import JudgingSession, sum_lengths
from opsieve.backends.judge.levels import disagreement
from opsieve.backends.judge.metamorphic import against_itself
from opsieve.backends.judge.mismatch import MismatchJudge
from opsieve.backends.judge.oracle_names import NAMES, ORACLE, OracleChoice
from opsieve.backends.judge.oracles import EXPECTED, FLOAT64, NATIVE, SECOND_ORACLES, Lab, Values, independent
from opsieve.backends.judge.reasons import Cause, because, verdict
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import DEATHS, STRUCTURE, Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program

_EXACT = ("int", "uint", "bool")  # begin the names of element types without rounding
_NO_CHOICE = OracleChoice()


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and the observations that it stands on, the candidate's first."""

    verdict: Verdict
    observations: tuple[Observation, ...]


def judge(
    program: Program,
    inputs: Values,
    target: ResolvedTarget,
    lab: Lab,
    *,
    expected: Mapping[str, Any] | None = None,
    oracles: Sequence[ResolvedTarget] = (),
    policy: Policy = POLICY,
) -> Judged:
    """The verdict on `program`, fed with `inputs`, on `target`.

    `expected` are outputs that the user vouches for, `oracles` further targets that may be asked when there
    is doubt. A program that was made to be wrong (gen/model/program.py) is judged by whether it is
    refused.
    """
    fault = program.fault if expected is None else None
    if fault is not None:
        return Judged(*judge_broken(program, inputs, target, lab, fault))
    session = JudgingSession(program, inputs, target, lab, expected, oracles, policy)
    found = _decide(session)
    return Judged(replace(found, oracles=tuple(session.consulted)), tuple(session.observations))


def judge_case(
    case: Case, target: ResolvedTarget, lab: Lab, policy: Policy = POLICY, further: OracleChoice = _NO_CHOICE
) -> Judged:
    """The verdict of every command on a case: its expected outputs count, and all other compilers may be
    asked.

    The oracle that found the failure of a case is asked of it as are those of `further`.
    """
    program, inputs = case.program, case.inputs
    oracles = [oracle for oracle in SECOND_ORACLES if oracle != target]
    judged = judge(program, inputs, target, lab, expected=case.expected, oracles=oracles, policy=policy)
    named = case.parameters.get(ORACLE, "")
    chosen = replace(further, names=(*further.names, named)) if named in NAMES else further
    found: Verdict | None = None
    if judged.verdict.verdict == "pass" and not target.rewrite:
        found = asked_further(chosen, program, inputs, target, lab)
    elif judged.verdict.verdict == "invalid" and "accepts-invalid" in chosen.names:
        found = accepts_forbidden(program, inputs, target, lab)
    return judged if found is None else Judged(found, judged.observations)


def _decide(session: JudgingSession) -> Verdict:
    first = session.ask(session.target)
    if first.outcome == "environment":
        return verdict("environment", because(Cause.NOT_RUN, target=session.target, ending=first), at=first)
    if first.outcome == "unsupported":
        return lacks(session, first)
    if first.outcome in DEATHS:
        return died(session, first)
    if first.outcome in ("error", "rejected"):
        return refused(session, first)
    return _answered(session, first.outputs or {})


def _answered(session: JudgingSession, outputs: Values) -> Verdict:
    """The verdict on a target that gave outputs."""
    target = session.target
    if session.expected is not None:
        given = compare(outputs, session.expected, session.dtypes, session.policy)
        session.consulted.append(EXPECTED)
        if given.agrees:
            return verdict("pass", because(Cause.GIVES_EXPECTED, target=target), rules=given.rules)
    contradicted = settle_declared_types(session, outputs)
    if contradicted is not None:
        return contradicted
    if target.rewrite:
        return against_itself(session, outputs)
    arbiter = FLOAT64 if session.ask(FLOAT64).outputs is not None else NATIVE
    right = session.ask(arbiter)
    if right.outputs is None:
        return _without_reference(session, outputs)
    terms = sum_lengths(right.hazards)
    found = compare(outputs, right.outputs, session.dtypes, session.policy, terms)
    if found.agrees and session.expected is None:
        return verdict("pass", because(Cause.AGREES, target=target, oracle=arbiter), rules=found.rules)
    if found.agrees:
        return _against_expected(session, outputs)
    return MismatchJudge(session, arbiter, outputs, terms).verdict(found)


def _against_expected(session: JudgingSession, outputs: Values) -> Verdict:
    """The reference and the candidate agree, the expected outputs are others."""
    expected = session.expected or {}
    worst = compare(outputs, expected, session.dtypes, session.policy).worst
    others = [
        oracle for oracle in dict.fromkeys((session.target.baseline, *session.oracles)) if oracle is not None
    ]
    agree = [FLOAT64, *(oracle for oracle in others if session.agrees(oracle, outputs, tuple(expected)))]
    reason = because(Cause.EXPECTED_DOUBTED, target=session.target, oracles=agree, mismatch=worst)
    return verdict("undecided", reason, "mismatch", mismatch=worst)


def _without_reference(session: JudgingSession, outputs: Values) -> Verdict:
    """The reference cannot evaluate the program: derived types bind, expected outputs are the truth unless
    contradicted, else others are asked.

    Independent compilers come first. The unoptimised build shares the compiler's faults, so its agreement
    decides nothing.
    """
    contradicted = judge_types(session, outputs)
    if contradicted is not None:
        return contradicted
    if session.expected is not None:
        return _expected_is_truth(session, outputs, session.expected)
    if (rejected := session.ask(NATIVE)).outcome == "rejected":
        return verdict("invalid", because(Cause.NO_MEANING, ending=rejected))
    target, baseline = session.target, session.target.baseline
    others = [oracle for oracle in session.oracles if independent(target, oracle)]
    for oracle in others:
        given = session.ask(oracle).outputs
        if given is not None and (found := compare(outputs, given, session.dtypes, session.policy)).agrees:
            return verdict("pass", because(Cause.AGREES_UNREFERENCED, oracle=oracle), rules=found.rules)
    own = [oracle for oracle in session.oracles if oracle not in others] if baseline is None else [baseline]
    agreeing, types = None, derive(session)
    for oracle in [*own, *others]:
        answer = session.ask(oracle)
        # outputs of another type than the program has are the oracle's own fault
        if answer.outputs is None or find_contradictions(answer.outputs, types):
            continue
        found = compare(outputs, answer.outputs, session.dtypes, session.policy)
        if found.agrees:
            agreeing = oracle
            continue
        changed = session.repeats(outputs, tuple(found.mismatches))
        if changed is not None and ir_of(session.program).can_be_undefined:
            return replace(changed, verdict="undecided")
        if changed is not None:
            return changed
        wrong = _beyond_rounding(found, session.dtypes)
        builds = _other_builds(session) if wrong else []
        agree = [build for build in builds if session.agrees(build, answer.outputs, wrong)]
        if agree:
            worst = Comparison({name: found.mismatches[name] for name in wrong}).worst
            reason = because(Cause.WRONG, target=target, mismatch=worst, arbiter=oracle, oracles=agree)
            return verdict("fail", reason, "mismatch", mismatch=worst, blame="optimiser")
        if oracle == baseline:
            apart = disagreement(session, outputs, tuple(found.mismatches), {}, measured=False)
            if apart is not None:
                return apart
        reason = because(Cause.DIFFERS_UNREFERENCED, oracle=oracle, target=target, mismatch=found.worst)
        return verdict("undecided", reason, "mismatch", mismatch=found.worst)
    if agreeing is not None:
        facts = {"target": target, "oracle": agreeing, "asked": session.list_asked()}
        return verdict("undecided", because(Cause.OWN_BUILDS_AGREE, **facts))
    return verdict("undecided", because(Cause.UNREFERENCED, asked=session.list_asked()))


def _other_builds(session: JudgingSession) -> list[ResolvedTarget]:
    """Builds of the target's compiler that optimise in another way than the target and its baseline do."""
    target, others = session.target, ir_of(session.program).other_builds.get(session.target.name)
    if others is None:
        return []
    values = [value for value in others.values if value != target.options[others.option]]
    builds = [target.with_options(**{others.option: value, **others.rest}) for value in values]
    return [build for build in builds if build != target.baseline]


def _beyond_rounding(found: Comparison, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """The outputs whose mismatch no rounding explains: structure, and values of integers and bool."""
    return tuple(
        name
        for name, mismatch in found.mismatches.items()
        if mismatch.what in STRUCTURE or dtypes.get(name, "").startswith(_EXACT)
    )


def _expected_is_truth(session: JudgingSession, outputs: Values, expected: Mapping[str, Any]) -> Verdict:
    target, baseline = session.target, session.target.baseline
    found = compare(outputs, expected, session.dtypes, session.policy)
    names = tuple(found.mismatches)
    changed = session.repeats(outputs, names)
    if changed is not None:
        return changed
    host = session.host_shares(outputs, names)
    if host is not None:
        return session.fault_of(host, found.worst)
    others = (oracle for oracle in session.oracles if independent(target, oracle))
    against = next((oracle for oracle in others if session.agrees(oracle, outputs, names)), None)
    if against is not None:
        reason = because(Cause.EXPECTED_CONTRADICTED, oracle=against, target=target, mismatch=found.worst)
        return verdict("undecided", reason, "mismatch", mismatch=found.worst)
    right = baseline is not None and session.agrees(baseline, expected, names)
    return verdict(
        "fail",
        because(Cause.NOT_EXPECTED, target=target, mismatch=found.worst),
        "mismatch",
        rules=("expected-is-truth",),
        mismatch=found.worst,
        blame="optimiser" if right else "compiler",
    )
