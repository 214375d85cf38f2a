"""Tests of a campaign: programs run on every target, compared, and judged where that leaves a doubt.

The cheap question comes first: where a target and an independent build (its own unoptimised one, another
compiler) give the same outputs, the target passes and nobody else is asked. The judge, with the float64
reference and fresh forks, is for the rest, and for one test in 16, since all builds of a compiler can share a
fault.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from opsieve.backends.compare import compare
from opsieve.backends.judge.derived_types import find_contradictions
from opsieve.backends.judge.further_runs import asked_further
from opsieve.backends.judge.judge import Judged, judge
from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.judge.oracles import FLOAT64, SECOND_ORACLES, confirms
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.program_text import with_script
from opsieve.backends.workers.workers import Test
from opsieve.gen.case.case import Case
from opsieve.gen.rewrites.relation import relation_of, rewritten
from opsieve.triage.fingerprint.component import Evidence
from opsieve.triage.fingerprint.fingerprint import fingerprint
from opsieve.triage.fingerprint.normalise import normalise, operator_blamed
from opsieve.triage.fingerprint.program_graph import ProgramNames
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure, NonBug

_NO_CHOICE = OracleChoice()
# one test in so many is judged in full, the last of them: the first test is not held up by the import of the
# reference
SAMPLE = 16


def do_tests(
    campaign: Campaign,
    cases: Mapping[int, Case],
    lab: ObservationCache,
    lowered_only: Collection[int] = (),
    metamorphic: bool = False,
    further: OracleChoice = _NO_CHOICE,
    asked: Mapping[int, Collection[str]] | None = None,
    answered: Sequence[str] = (),
) -> list[FinishedTest]:
    """Tests by number, done: run on every target, or on those that are `asked` about them, and judged. Of
    some it is enough that they are lowered. Targets that have `answered` before are asked again where that is
    needed to judge the others.

    With `metamorphic`, a target that passes is asked again for a program that means the same; `further`
    oracles run it again.
    """
    everyone = {name: resolve(name) for name in campaign.targets}
    targets_of = {
        number: {name: target for name, target in everyone.items() if asked is None or name in asked[number]}
        for number in cases
    }
    tests = {number: Test(case.program, case.inputs) for number, case in cases.items()}
    builds_of = {number: _builds(targets.values()) for number, targets in targets_of.items()}
    quick = lowering(everyone.values(), {number: tests[number] for number in lowered_only}, lab)
    whole = {number: case for number, case in cases.items() if number not in quick}
    _ask(whole, builds_of, tests, lab)
    # Builds that agree on a program that was made to be wrong are no sign that all is well.
    passed = {
        number: set() if case.program.fault else agreeing(tests[number], builds_of[number], lab)
        for number, case in whole.items()
    }
    if answered:
        for number, targets in targets_of.items():
            builds_of[number] = _builds([*(everyone[name] for name in answered), *targets.values()])
            if not set(targets.values()) <= passed[number] and cases[number].program.fault is None:
                passed[number] = agreeing(tests[number], builds_of[number], lab)
    in_doubt = [
        number
        for number in whole
        if _sampled(number)
        or any(
            target not in passed[number] and _seen(target, tests[number], lab).outcome == "ok"
            for target in targets_of[number].values()
        )
    ]
    if in_doubt:
        lab.prefetch([(FLOAT64, [tests[number] for number in in_doubt])])
    done = [FinishedTest(number, cases[number], *quick[number]) for number in quick]
    for number, case in whole.items():
        surely = set() if _sampled(number) else passed[number]
        judged = _judged_test(
            number, case, targets_of[number], builds_of[number], surely, lab, metamorphic, further
        )
        done.append(judged)
    return sorted(done, key=lambda test: test.number)


def _ask(
    cases: Mapping[int, Case],
    builds_of: Mapping[int, Sequence[ResolvedTarget]],
    tests: Mapping[int, Test],
    lab: ObservationCache,
) -> None:
    """Ask builds about tests. What several of them hand programs on to is asked once in their place, and they
    only where it gives nothing.
    """
    builds = list(dict.fromkeys(build for number in cases for build in builds_of[number]))
    standing = {build: other for build in builds if (other := build.stand_in) is not None}
    asked_for = Counter([*builds, *standing.values()])
    standing = {build: other for build, other in standing.items() if asked_for[other] > 1}
    wanted: dict[ResolvedTarget, dict[int, Test]] = {}
    for number, case in cases.items():
        for build in builds_of[number]:
            # Of what was made to be wrong it matters who reads it.
            asked = build if case.program.fault else standing.get(build, build)
            wanted.setdefault(asked, {})[number] = tests[number]
    lab.prefetch([(build, list(of_build.values())) for build, of_build in wanted.items()])
    left = [
        (build, [tests[n] for n in cases if build in builds_of[n] and not lab.shared(build, other, tests[n])])
        for build, other in standing.items()
    ]
    lab.prefetch([(build, of_build) for build, of_build in left if of_build])


def _sampled(number: int) -> bool:
    return number % SAMPLE == SAMPLE - 1


def _judged_test(
    number: int,
    case: Case,
    targets: Mapping[str, ResolvedTarget],
    builds: Sequence[ResolvedTarget],
    passed: Collection[ResolvedTarget],
    lab: ObservationCache,
    metamorphic: bool,
    further: OracleChoice,
) -> FinishedTest:
    """A test whose targets have answered; those that `passed` need no judge, who may ask the `builds`."""
    answers: dict[str, tuple[str, float]] = {}
    findings: list[FoundFailure] = []
    non_bugs: list[NonBug] = []
    test = Test(case.program, case.inputs)
    for name, target in targets.items():
        seconds = _seen(target, test, lab).total_seconds
        judged = None if target in passed else _judged(case, target, builds, lab)
        if judged is None or judged.verdict.verdict == "pass":
            judged = _asked_further(case, target, further, lab)
        if judged is None:
            answers[name] = ("pass", seconds)
            continue
        word = judged.verdict.verdict
        answers[name] = (word, seconds)
        if word in ("fail", "flaky"):
            findings.append(_finding(case, name, judged))
        elif word in ("unsupported", "environment"):
            non_bugs.append(_non_bug(name, judged))
    if metamorphic and case.program.fault is None:
        passing = [target for name, target in targets.items() if answers[name][0] == "pass"]
        findings += contradictions(number, case, passing, builds, lab)
    reached = sum(len(_seen(build, test, lab).reached or ()) for build in _builds(targets.values()))
    kept = with_script(case, lab.workers) if findings else case
    return FinishedTest(number, kept, answers, findings, non_bugs, reached)


def _builds(targets: Iterable[ResolvedTarget]) -> list[ResolvedTarget]:
    """Targets and the unoptimised builds of them that there are."""
    given = list(targets)
    return list(dict.fromkeys([*given, *(base for target in given if (base := target.baseline) is not None)]))


def contradictions(
    number: int,
    case: Case,
    targets: Iterable[ResolvedTarget],
    builds: Sequence[ResolvedTarget],
    lab: ObservationCache,
) -> list[FoundFailure]:
    """Failures of targets on a program that means the same; which rewrite makes it, the number of the test
    says.
    """
    relation = relation_of(case.program.ir, number)
    if not relation or rewritten(case.program, case.inputs, relation) is None:
        return []
    found = []
    test, dtypes = Test(case.program, case.inputs), case.program.output_dtypes()
    for target in targets:
        changed = target.with_options(rewrite=relation)
        outputs = _seen(changed, test, lab).outputs
        if outputs is not None and compare(outputs, _seen(target, test, lab).outputs or {}, dtypes).agrees:
            continue
        judged = _judged(case, changed, builds, lab)
        if judged.verdict.verdict in ("fail", "flaky"):
            found.append(_finding(case, changed.display, judged))
    return found


def lowering(
    targets: Iterable[ResolvedTarget], tests: Mapping[int, Test], lab: ObservationCache
) -> dict[int, tuple[dict[str, tuple[str, float]], tuple[()], tuple[()], int]]:
    """Of the programs that every target lowers without generating code: the verdicts, no findings, and what
    was reached.

    The others, and those of targets that cannot stop there, are to be asked in full.
    """
    if not tests:
        return {}
    stopping = {target: target.with_options(stop="lower") for target in targets if "stop" in target.options}
    lab.prefetch([(target, list(tests.values())) for target in stopping.values()])
    found = {}
    for number, test in tests.items():
        seen = {target.display: _seen(stop, test, lab) for target, stop in stopping.items()}
        if seen and all(answer.outcome == "ok" for answer in seen.values()):
            reached = sum(len(answer.reached or ()) for answer in seen.values())
            found[number] = (
                {name: ("pass", answer.total_seconds) for name, answer in seen.items()},
                (),
                (),
                reached,
            )
    return found


def _judged(
    case: Case, target: ResolvedTarget, builds: Sequence[ResolvedTarget], lab: ObservationCache
) -> Judged:
    oracles = [oracle for oracle in dict.fromkeys([*builds, *SECOND_ORACLES]) if oracle != target]
    return judge(case.program, case.inputs, target, lab, oracles=oracles)


def _asked_further(
    case: Case, target: ResolvedTarget, further: OracleChoice, lab: ObservationCache
) -> Judged | None:
    """What oracles that run a program again find of a target that passes; None where that is nothing."""
    found = (
        asked_further(further, case.program, case.inputs, target, lab, glance=True)
        if case.expected is None
        else None
    )
    if found is None or found.verdict == "undecided":  # it cannot be measured, and is right all the same
        return None
    builds = [build for build in (target, target.baseline) if build is not None]
    return Judged(found, tuple(lab.observe(build, case.program, case.inputs) for build in builds))


def _finding(case: Case, name: str, judged: Judged) -> FoundFailure:
    operators = sorted(set(case.program.operators()))
    evidence = Evidence(valid=case.program.fault is None)
    print_ = fingerprint(
        judged.verdict, judged.observations[0], operators, evidence, ProgramNames(case.program)
    )
    return FoundFailure(name, judged.verdict, print_, judged.observations)


def _non_bug(name: str, judged: Judged) -> NonBug:
    """What a target lacks, so worded that equal lacks are one entry."""
    message = judged.verdict.message or judged.verdict.reason
    blamed = operator_blamed(message)
    template = normalise(message)
    what = f"{blamed}: {template}" if blamed and blamed not in template else template or "no message"
    return NonBug(name, judged.verdict.verdict, what, message)


def _seen(target: ResolvedTarget, test: Test, lab: ObservationCache) -> Observation:
    return lab.observe(target, test.program, test.inputs)


def agreeing(test: Test, builds: Sequence[ResolvedTarget], lab: ObservationCache) -> set[ResolvedTarget]:
    """The builds that give the same outputs as one that shares no optimiser with them: two levels of one
    compiler are one witness.

    Outputs of another type than declared are for the judge, whoever agrees.
    """
    types = test.program.outputs()
    answers = ((build, _seen(build, test, lab).outputs) for build in builds)
    given = [
        (build, outputs) for build, outputs in answers if outputs and not find_contradictions(outputs, types)
    ]
    dtypes = test.program.output_dtypes()
    found: set[ResolvedTarget] = set()
    for place, (build, outputs) in enumerate(given):
        for other, others in given[place + 1 :]:
            if (
                not {build, other} <= found
                and confirms(build, other)
                and compare(outputs, others, dtypes).agrees
            ):
                found |= {build, other}
    return found
