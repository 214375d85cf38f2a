"""Tests of a campaign: run programs on every target, compare, and judge doubtful results.

The cheap comparison comes first: if a target and an independent build (its own unoptimised one, another
compiler) give the same outputs, the target passes. The judge, with the float64 reference and fresh forks,
decides the rest, and one test in 16, since all builds of a compiler can share a bug.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from opsieve.backends.compare import compare
from opsieve.backends.judge import derived_types, further_runs, judge, oracle_names
from opsieve.backends.judge.oracles import FLOAT64, SECOND_ORACLES, is_confirming
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.programs import add_script
from opsieve.backends.workers.workers import Test
from opsieve.gen.case.case import Case
from opsieve.gen.rewrites.relation import choose_relation, rewrite_program
from opsieve.triage.fingerprint import component, fingerprint, normalise, program_graph
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure, NonBug

_NO_CHOICE = oracle_names.OracleChoice()
# one test in so many is judged in full, the last of them: the first test is not held up by the import of the
# reference
SAMPLE = 16


def run_tests(
    campaign: Campaign,
    cases: Mapping[int, Case],
    lab: ObservationCache,
    lowered_only: Collection[int] = (),
    metamorphic: bool = False,
    further: oracle_names.OracleChoice = _NO_CHOICE,
    asked: Mapping[int, Collection[str]] | None = None,
    answered: Sequence[str] = (),
) -> list[FinishedTest]:
    """Run tests by number on every target, or on those in `asked`, and judge them.

    Tests in `lowered_only` stop after lowering. Targets in `answered` ran before and run again if that is
    needed to judge the others. With `metamorphic`, a passing target also runs an equivalent program;
    `further` oracles rerun it.
    """
    everyone = {name: resolve(name) for name in campaign.targets}
    targets_of = {
        number: {name: target for name, target in everyone.items() if asked is None or name in asked[number]}
        for number in cases
    }
    tests = {number: Test(case.program, case.inputs) for number, case in cases.items()}
    builds_of = {number: _list_builds(targets.values()) for number, targets in targets_of.items()}
    quick = run_lowering(everyone.values(), {number: tests[number] for number in lowered_only}, lab)
    whole = {number: case for number, case in cases.items() if number not in quick}
    _run_builds(whole, builds_of, tests, lab)
    # Builds that agree on a program that was made to be wrong are no sign that all is well.
    passed = {
        number: set() if case.program.fault else find_agreeing(tests[number], builds_of[number], lab)
        for number, case in whole.items()
    }
    # The earlier targets run again, which only pays where these do not agree among themselves.
    if answered:
        for number, targets in targets_of.items():
            builds_of[number] = _list_builds([*(everyone[name] for name in answered), *targets.values()])
            if not set(targets.values()) <= passed[number] and cases[number].program.fault is None:
                passed[number] = find_agreeing(tests[number], builds_of[number], lab)
    in_doubt = [
        number
        for number in whole
        if _is_sampled(number)
        or any(
            target not in passed[number] and _observe(target, tests[number], lab).outcome == "ok"
            for target in targets_of[number].values()
        )
    ]
    if in_doubt:
        # All at once, because the reference is slow and one frame of many tests saves its start.
        lab.prefetch([(FLOAT64, [tests[number] for number in in_doubt])])
    done = [FinishedTest(number, cases[number], *quick[number]) for number in quick]
    for number, case in whole.items():
        # A sampled test goes to the judge even where all builds agree, because they may share a fault.
        surely = set() if _is_sampled(number) else passed[number]
        judged = _judge_test(
            number, case, targets_of[number], builds_of[number], surely, lab, metamorphic, further
        )
        done.append(judged)
    return sorted(done, key=lambda test: test.number)


def _run_builds(
    cases: Mapping[int, Case],
    builds_of: Mapping[int, Sequence[ResolvedTarget]],
    tests: Mapping[int, Test],
    lab: ObservationCache,
) -> None:
    """Run tests on builds.

    If several builds share a host runtime, run the host once and reuse its result; run a build itself only if
    that is impossible.
    """
    builds = list(dict.fromkeys(build for number in cases for build in builds_of[number]))
    standing = {build: other for build in builds if (other := build.stand_in) is not None}
    asked_for = Counter([*builds, *standing.values()])
    # A host that only one build needs saves nothing.
    standing = {build: other for build, other in standing.items() if asked_for[other] > 1}
    wanted: dict[ResolvedTarget, dict[int, Test]] = {}
    for number, case in cases.items():
        for build in builds_of[number]:
            # Of what was made to be wrong it matters who reads it.
            asked = build if case.program.fault else standing.get(build, build)
            wanted.setdefault(asked, {})[number] = tests[number]
    lab.prefetch([(build, list(of_build.values())) for build, of_build in wanted.items()])
    left = [
        (
            build,
            [
                tests[n]
                for n in cases
                if build in builds_of[n] and not lab.share_observation(build, other, tests[n])
            ],
        )
        for build, other in standing.items()
    ]
    lab.prefetch([(build, of_build) for build, of_build in left if of_build])


def _is_sampled(number: int) -> bool:
    return number % SAMPLE == SAMPLE - 1


def _judge_test(
    number: int,
    case: Case,
    targets: Mapping[str, ResolvedTarget],
    builds: Sequence[ResolvedTarget],
    passed: Collection[ResolvedTarget],
    lab: ObservationCache,
    metamorphic: bool,
    further: oracle_names.OracleChoice,
) -> FinishedTest:
    """Judge a test after all targets ran it; the targets in `passed` skip the judge, which may use the
    `builds`.
    """
    answers: dict[str, tuple[str, float]] = {}
    findings: list[FoundFailure] = []
    non_bugs: list[NonBug] = []
    test = Test(case.program, case.inputs)
    for name, target in targets.items():
        seconds = _observe(target, test, lab).total_seconds
        judged = None if target in passed else _judge_target(case, target, builds, lab)
        if judged is None or judged.verdict.verdict == "pass":
            judged = _run_further_oracles(case, target, further, lab)
        if judged is None:
            answers[name] = ("pass", seconds)
            continue
        word = judged.verdict.verdict
        answers[name] = (word, seconds)
        if word in ("fail", "flaky"):
            findings.append(_make_finding(case, name, judged))
        elif word in ("unsupported", "environment"):
            message = judged.verdict.message or judged.verdict.reason
            blamed = normalise.find_blamed_operator(message)
            # By template, so that a thousand tests with other shapes are one line of the summary.
            template = normalise.normalise_message(message)
            what = f"{blamed}: {template}" if blamed and blamed not in template else template or "no message"
            non_bugs.append(NonBug(name, judged.verdict.verdict, what, message))
    if metamorphic and case.program.fault is None:
        passing = [target for name, target in targets.items() if answers[name][0] == "pass"]
        findings += find_rewrite_failures(number, case, passing, builds, lab)
    reached = sum(len(_observe(build, test, lab).reached or ()) for build in _list_builds(targets.values()))
    # The printed text of a module costs a run of TVM, which only stored cases are worth.
    kept = add_script(case, lab.workers) if findings else case
    return FinishedTest(number, kept, answers, findings, non_bugs, reached)


def _list_builds(targets: Iterable[ResolvedTarget]) -> list[ResolvedTarget]:
    """List targets and their unoptimised builds."""
    given = list(targets)
    return list(dict.fromkeys([*given, *(base for target in given if (base := target.baseline) is not None)]))


def find_rewrite_failures(
    number: int,
    case: Case,
    targets: Iterable[ResolvedTarget],
    builds: Sequence[ResolvedTarget],
    lab: ObservationCache,
) -> list[FoundFailure]:
    """Find failures of targets on an equivalent program; the test's number determines the rewrite."""
    relation = choose_relation(case.program.ir, number)
    if not relation or rewrite_program(case.program, case.inputs, relation) is None:
        return []
    found = []
    test, dtypes = Test(case.program, case.inputs), case.program.output_dtypes()
    for target in targets:
        changed = target.with_options(rewrite=relation)
        # The cheap comparison first, as for the plain program: most rewrites change nothing.
        outputs = _observe(changed, test, lab).outputs
        if outputs is not None and compare(outputs, _observe(target, test, lab).outputs or {}, dtypes).agrees:
            continue
        judged = _judge_target(case, changed, builds, lab)
        if judged.verdict.verdict in ("fail", "flaky"):
            found.append(_make_finding(case, changed.display, judged))
    return found


def run_lowering(
    targets: Iterable[ResolvedTarget], tests: Mapping[int, Test], lab: ObservationCache
) -> dict[int, tuple[dict[str, tuple[str, float]], tuple[()], tuple[()], int]]:
    """Run programs that need only be lowered.

    Returns, for the programs that every target lowers without generating code, the verdicts, no findings, and
    the reached count. The other programs, and targets that cannot stop there, need a full run.
    """
    # Before any target is resolved to a build that stops early: most campaigns lower nothing.
    if not tests:
        return {}
    stopping = {target: target.with_options(stop="lower") for target in targets if "stop" in target.options}
    lab.prefetch([(target, list(tests.values())) for target in stopping.values()])
    found = {}
    for number, test in tests.items():
        seen = {target.display: _observe(stop, test, lab) for target, stop in stopping.items()}
        if seen and all(answer.outcome == "ok" for answer in seen.values()):
            reached = sum(len(answer.reached or ()) for answer in seen.values())
            found[number] = (
                {name: ("pass", answer.total_seconds) for name, answer in seen.items()},
                (),
                (),
                reached,
            )
    return found


def _judge_target(
    case: Case, target: ResolvedTarget, builds: Sequence[ResolvedTarget], lab: ObservationCache
) -> judge.Judged:
    oracles = [oracle for oracle in dict.fromkeys([*builds, *SECOND_ORACLES]) if oracle != target]
    return judge.judge_program(case.program, case.inputs, target, lab, oracles=oracles)


def _run_further_oracles(
    case: Case, target: ResolvedTarget, further: oracle_names.OracleChoice, lab: ObservationCache
) -> judge.Judged | None:
    """Run the oracles that rerun a program on a passing target; None without a finding."""
    found = (
        further_runs.run_optional_oracles(further, case.program, case.inputs, target, lab, glance=True)
        if case.expected is None
        else None
    )
    # The oracle could not measure the program, whose outputs are right all the same.
    if found is None or found.verdict == "undecided":
        return None
    builds = [build for build in (target, target.baseline) if build is not None]
    return judge.Judged(found, tuple(lab.observe(build, case.program, case.inputs) for build in builds))


def _make_finding(case: Case, name: str, judged: judge.Judged) -> FoundFailure:
    operators = sorted(set(case.program.operators()))
    evidence = component.Evidence(valid=case.program.fault is None)
    print_ = fingerprint.make_fingerprint(
        judged.verdict, judged.observations[0], operators, evidence, program_graph.ProgramNames(case.program)
    )
    return FoundFailure(name, judged.verdict, print_, judged.observations)


def _observe(target: ResolvedTarget, test: Test, lab: ObservationCache) -> Observation:
    return lab.observe(target, test.program, test.inputs)


def find_agreeing(test: Test, builds: Sequence[ResolvedTarget], lab: ObservationCache) -> set[ResolvedTarget]:
    """Find the builds that give the same outputs as a build with an independent optimiser.

    Two levels of one compiler count as one oracle. Outputs of another type than declared are left to the
    judge.
    """
    # Builds that share a wrong type would agree with each other.
    types = test.program.outputs()
    answers = ((build, _observe(build, test, lab).outputs) for build in builds)
    given = [
        (build, outputs)
        for build, outputs in answers
        if outputs and not derived_types.find_contradictions(outputs, types)
    ]
    dtypes = test.program.output_dtypes()
    found: set[ResolvedTarget] = set()
    for place, (build, outputs) in enumerate(given):
        for other, others in given[place + 1 :]:
            if (
                # Both are known already: another comparison of large outputs tells nothing new.
                not {build, other} <= found
                and is_confirming(build, other)
                and compare(outputs, others, dtypes).agrees
            ):
                found |= {build, other}
    return found
