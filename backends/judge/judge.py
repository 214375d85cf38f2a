"""Judge a program on a target: the order of the runs, the oracles, the deciding rules.

Nothing runs in this process. A Lab runs the program in a worker of its own; few oracles run if few are
enough. docs/explanation/oracles.md states the policy, docs/benchmarks/judging.md its measurements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsieve.backends import observation, registry
from opsieve.backends.compare import POLICY, Comparison, Policy, compare
from opsieve.backends.judge import (
    acceptance,
    derived_types,
    endings,
    further_runs,
    judging_session,
    levels,
    mismatch,
    oracle_names,
    oracles,
)
from opsieve.backends.judge.judging_session import JudgingSession, find_sum_lengths
from opsieve.backends.judge.mismatch import MismatchJudge
from opsieve.backends.judge.oracles import (
    BY_EXPECTED,
    EXPECTED,
    FLOAT64,
    NATIVE,
    SECOND_ORACLES,
    Lab,
    Values,
    is_independent,
)
from opsieve.backends.judge.reasons import Cause, make_reason, make_verdict
from opsieve.backends.verdict import DEATHS, STRUCTURE, Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program

# Begin the names of element types without rounding
_EXACT = ("int", "uint", "bool")
_NO_CHOICE = oracle_names.OracleChoice()


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and its observations, the candidate's first, and of these the one that shows the failure."""

    verdict: Verdict
    observations: tuple[observation.Observation, ...]


def judge_program(
    program: Program,
    inputs: Values,
    target: registry.ResolvedTarget,
    lab: Lab,
    *,
    expected: Mapping[str, Any] | None = None,
    oracles: Sequence[registry.ResolvedTarget] = (),
    policy: Policy = POLICY,
) -> Judged:
    """Judge `program`, fed with `inputs`, on `target`.

    `expected` are outputs that the user vouches for, `oracles` further targets for doubtful cases. A program
    that was made to be wrong (gen/model/program.py) passes if it is refused.
    """
    fault = program.fault if expected is None else None
    if fault is not None:
        return Judged(*acceptance.judge_broken(program, inputs, target, lab, fault))
    session = JudgingSession(program, inputs, target, lab, expected, oracles, policy)
    found = _decide(session)
    return Judged(replace(found, oracles=tuple(session.consulted)), tuple(session.observations))


def judge_case(
    case: Case,
    target: registry.ResolvedTarget,
    lab: Lab,
    policy: Policy = POLICY,
    further: oracle_names.OracleChoice = _NO_CHOICE,
) -> Judged:
    """Judge a case as every command does: its expected outputs count, and all other compilers may run.

    The oracle that found the failure of a case runs again, like those of `further`.
    """
    program, inputs = case.program, case.inputs
    oracles = [oracle for oracle in SECOND_ORACLES if oracle != target]
    judged = judge_program(
        program, inputs, target, lab, expected=case.expected, oracles=oracles, policy=policy
    )
    named = case.parameters.get(oracle_names.ORACLE, "")
    chosen = replace(further, names=(*further.names, named)) if named in oracle_names.NAMES else further
    found: Verdict | None = None
    if judged.verdict.verdict == "pass" and not target.rewrite:
        # Only on a passing build: a slow or unstable wrong answer is first of all wrong.
        found = further_runs.run_optional_oracles(chosen, program, inputs, target, lab)
    elif judged.verdict.verdict == "invalid" and "accepts-invalid" in chosen.names:
        found = acceptance.find_accepted_forbidden(program, inputs, target, lab)
    return judged if found is None else Judged(found, judged.observations)


def _decide(session: JudgingSession) -> Verdict:
    first = session.run_target(session.target)
    if first.outcome == "environment":
        if first.exception == observation.UNHEARD:
            return Verdict("undecided", first.message, stage=first.stage, message=first.message)
        return make_verdict(
            "environment", make_reason(Cause.NOT_RUN, target=session.target, ending=first), at=first
        )
    if first.outcome == "unsupported":
        return endings.judge_lack(session, first)
    if first.outcome in DEATHS:
        return endings.judge_death(session, first)
    if first.outcome in ("error", "rejected"):
        return endings.judge_refusal(session, first)
    return _judge_outputs(session, first.outputs or {})


def _judge_outputs(session: JudgingSession, outputs: Values) -> Verdict:
    """Judge a target that returned outputs."""
    target = session.target
    if not target.facts.computes:
        return make_verdict("pass", make_reason(Cause.ACCEPTS_ONLY, target=target))
    if target == FLOAT64:
        return make_verdict("undecided", make_reason(Cause.IS_ORACLE, target=target))
    if session.expected is not None:
        given = compare(outputs, session.expected, session.dtypes, session.policy)
        session.consulted.append(EXPECTED)
        if given.agrees:
            return make_verdict("pass", make_reason(Cause.GIVES_EXPECTED, target=target), rules=given.rules)
    contradicted = derived_types.settle_declared_types(session, outputs)
    if contradicted is not None:
        return contradicted
    if target.rewrite:
        return judge_rewritten(session, outputs)
    # Some models have no float64 version, such as those that read the bits of a number.
    arbiter = FLOAT64 if session.run_target(FLOAT64).outputs is not None else NATIVE
    right = session.run_target(arbiter)
    if right.outputs is None:
        return _judge_without_reference(session, outputs)
    # The rounding error of a sum grows with its length, and the tolerance with it.
    terms = find_sum_lengths(right.hazards)
    found = compare(outputs, right.outputs, session.dtypes, session.policy, terms)
    if found.agrees and session.expected is None:
        return make_verdict(
            "pass", make_reason(Cause.AGREES, target=target, oracle=arbiter), rules=found.rules
        )
    if found.agrees:
        # Judge outputs that agree with the reference and contradict the expected ones.
        expected = session.expected or {}
        worst = compare(outputs, expected, session.dtypes, session.policy).worst
        others = [
            oracle
            for oracle in dict.fromkeys((session.target.baseline, *session.oracles))
            if oracle is not None
        ]
        agree = [
            FLOAT64,
            *(oracle for oracle in others if session.is_agreeing(oracle, outputs, tuple(expected))),
        ]
        reason = make_reason(Cause.EXPECTED_DOUBTED, target=session.target, oracles=agree, mismatch=worst)
        return make_verdict("undecided", reason, "mismatch", mismatch=worst)
    return MismatchJudge(session, arbiter, outputs, terms).judge_comparison(found)


def _judge_without_reference(session: JudgingSession, outputs: Values) -> Verdict:
    """Judge a program that the reference cannot evaluate.

    Derived types bind, expected outputs are the truth unless contradicted, and otherwise other compilers
    decide. Independent ones come first. The unoptimised build shares the compiler's faults, so its agreement
    alone is not enough.
    """
    contradicted = derived_types.judge_types(session, outputs)
    if contradicted is not None:
        return contradicted
    if session.expected is not None:
        return _judge_by_expected(session, outputs, session.expected)
    if (rejected := session.run_target(NATIVE)).outcome == "rejected":
        return make_verdict("invalid", make_reason(Cause.NO_MEANING, ending=rejected))
    target, baseline = session.target, session.target.baseline
    others = [oracle for oracle in session.oracles if is_independent(target, oracle)]
    for oracle in others:
        given = session.run_target(oracle).outputs
        if given is not None and (found := compare(outputs, given, session.dtypes, session.policy)).agrees:
            return make_verdict(
                "pass", make_reason(Cause.AGREES_UNREFERENCED, oracle=oracle), rules=found.rules
            )
    own = [oracle for oracle in session.oracles if oracle not in others] if baseline is None else [baseline]
    agreeing, types = None, derived_types.derive_types(session)
    for oracle in [*own, *others]:
        answer = session.run_target(oracle)
        # outputs of another type than the program has are the oracle's own fault
        if answer.outputs is None or derived_types.find_contradictions(answer.outputs, types):
            continue
        found = compare(outputs, answer.outputs, session.dtypes, session.policy)
        if found.agrees:
            agreeing = oracle
            continue
        changed = session.judge_repetition(outputs, tuple(found.mismatches))
        # Such a program may read memory that it never wrote, and then no compiler is wrong.
        if changed is not None and ir_of(session.program).can_be_undefined(session.program):
            return replace(changed, verdict="undecided")
        if changed is not None:
            return changed
        # Mismatches that cannot be rounding: structure, and values of integers and bool.
        wrong = tuple(
            name
            for name, mismatch in found.mismatches.items()
            if mismatch.what in STRUCTURE or session.dtypes.get(name, "").startswith(_EXACT)
        )
        # Builds of one compiler share kernels, so they outvote it only where rounding is no explanation.
        builds = _list_other_builds(session) if wrong else []
        agree = [build for build in builds if session.is_agreeing(build, answer.outputs, wrong)]
        if agree:
            worst = Comparison({name: found.mismatches[name] for name in wrong}).worst
            reason = make_reason(Cause.WRONG, target=target, mismatch=worst, oracles=[oracle, *agree])
            return make_verdict("fail", reason, "mismatch", mismatch=worst, blame="optimiser")
        if oracle == baseline:
            apart = levels.judge_levels(session, outputs, tuple(found.mismatches), {}, measured=False)
            if apart is not None:
                return apart
        reason = make_reason(Cause.DIFFERS_UNREFERENCED, oracle=oracle, target=target, mismatch=found.worst)
        return make_verdict("undecided", reason, "mismatch", mismatch=found.worst)
    if agreeing is not None:
        facts = {"target": target, "oracle": agreeing, "asked": session.list_asked()}
        return make_verdict("undecided", make_reason(Cause.OWN_BUILDS_AGREE, **facts))
    return make_verdict("undecided", make_reason(Cause.UNREFERENCED, asked=session.list_asked()))


def _list_other_builds(session: JudgingSession) -> list[registry.ResolvedTarget]:
    """List builds of the same compiler that optimise differently from the target and its baseline."""
    target, others = session.target, ir_of(session.program).other_builds.get(session.target.name)
    if others is None:
        return []
    values = [value for value in others.values if value != target.options[others.option]]
    builds = [target.with_options(**{others.option: value, **others.rest}) for value in values]
    return [build for build in builds if build != target.baseline]


def _judge_by_expected(session: JudgingSession, outputs: Values, expected: Mapping[str, Any]) -> Verdict:
    target, baseline = session.target, session.target.baseline
    found = compare(outputs, expected, session.dtypes, session.policy)
    names = tuple(found.mismatches)
    other = session.judge_other_causes(outputs, names, found.worst)
    if other is not None:
        return other
    others = (oracle for oracle in session.oracles if is_independent(target, oracle))
    # An independent compiler that gives the same outputs puts the expected ones in doubt.
    against = next((oracle for oracle in others if session.is_agreeing(oracle, outputs, names)), None)
    if against is not None:
        reason = make_reason(Cause.EXPECTED_CONTRADICTED, oracle=against, target=target, mismatch=found.worst)
        return make_verdict("undecided", reason, "mismatch", mismatch=found.worst)
    right = baseline is not None and session.is_agreeing(baseline, expected, names)
    return make_verdict(
        "fail",
        make_reason(Cause.NOT_EXPECTED, target=target, mismatch=found.worst),
        "mismatch",
        rules=(BY_EXPECTED,),
        mismatch=found.worst,
        blame="optimiser" if right else "compiler",
    )


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
