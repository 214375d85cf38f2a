"""A whole reduction: premise, first phase, every dimension to a fixpoint, certificate, and the judge's final
confirmation. For any form.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.errors import BadInput, NoFailure, Unjudged
from opsieve.reducer.engine.census import Census, improve_untried, try_singles
from opsieve.reducer.engine.certificate import Certificate, certify, to_fixpoint
from opsieve.reducer.engine.edit import Pass
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import Budget, BudgetSpent, Progress, Rules
from opsieve.reducer.engine.interestingness import (
    CheckResult,
    InterestingnessTest,
    RepeatedTest,
    StatisticalTest,
    replayed_by,
    runs_for,
    wilson,
)
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.registry import ReducibleForm
from opsieve.reducer.oracle.discover import find, still
from opsieve.reducer.oracle.nondeterminism_test import replayed_spread
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.premise_test import (
    confirmed_by_judge,
    get_compiler_text,
    get_known_result,
    interestingness_of,
)
from opsieve.reducer.oracle.repeats import REPLAYS, SHORT, varying
from opsieve.reducer.oracle.target_test import Runnable, TargetTest, cure_set, find_cures
from opsieve.triage.fingerprint.sameness import Level

S = TypeVar("S", bound=Runnable)
_UNBOUNDED = Budget()
# The dimension that takes nodes out of bodies.
_BODIES = "bodies"
# Replays of a check whose runs take long.
_CONFIRMED = 2
# The duration of these replays, in seconds, above which no more follow.
_LONG = 4.0
# Sightings that a noisy check needs: it may exit with 0 by chance too.
_SIGHTINGS = 4
# The most tests before the judge is asked: most first answers take fewer.
_FIRST_CHECKS = 12
# The largest subject, in nodes, that the judge evaluates if it skipped the whole model.
_JUDGED = 1024


def _unread(test: object) -> bool:
    """Return whether the failure occurs before any input is read."""
    return isinstance(test, TargetTest) and test.failure.verdict.stage in ("import", "compile")


@dataclass(frozen=True, slots=True)
class Noise:
    """In how many runs a noisy check exits with 0, and the number of runs: for the whole model, and for the
    rest of it without the result's nodes (None if that is not a model), for which it should never happen.
    """

    start: tuple[int, int]
    rest: tuple[int, int] | None


@dataclass(frozen=True)
class Reduction(Generic[S]):
    """The result of a reduction. `same` is the final word of the judge or the check. `census_checks` are
    those of `checks` that the census ran.

    `judged`: the judge confirmed every step. `replays`: in how many runs of the result it was seen, of how
    many (of start and result, where a check always saw it; None where nothing was replayed). `premise` is the
    failure as it turned out to be, where the small result shows that it is another than was thought (a wrong
    result that is wrong only sometimes). `slippage` holds different failures that were met, by fingerprint.
    `rest_fails` says of the start without what was kept: `same` when it fails in the same way once more,
    `other` when otherwise, "" when it does not or is not known.
    """

    start: S
    best: S
    checks: int
    node_checks: int
    invalid: int
    seconds: float
    same: bool
    certificate: Certificate
    census_checks: int = 0
    replays: tuple[int, int] | None = None
    slippage: dict[str, S] = field(default_factory=dict)
    judged: bool = False
    rest_fails: str = ""
    premise: Premise | None = None
    noise: Noise | None = None

    @property
    def minimal(self) -> bool:
        """Whether every part of the result was tried, and no single edit that is left keeps the failure."""
        return self.certificate.minimal


@dataclass(frozen=True)
class Listeners(Generic[S]):
    """Callbacks for progress, for every simpler subject that shows the failure, and for messages."""

    progress: Callable[[Progress], None] = lambda progress: None
    shown: Callable[[S], None] = lambda subject: None
    say: Callable[[str], None] = lambda sentence: None


@dataclass(frozen=True)
class _Setting(Generic[S]):
    """The common settings of all runs of one reduction: its start and time; values are recorded on
    `source`.
    """

    start: S
    since: float
    workers: Workers
    source: ResolvedTarget | None
    journal: Journal
    listeners: Listeners[S]
    passes: Sequence[Pass[S]] | None
    budget: Budget


class _Answered(Exception):
    """Raised when the first simpler subject shows the failure."""


def answer_first(
    form: ReducibleForm[S],
    start: S,
    premise: Premise,
    workers: Workers,
    level: Level,
    shown: Callable[[S], None],
) -> Journal:
    """Search until the first simpler subject shows a failure that the judge has not confirmed yet; returns
    the attempts, which are those that `reduce_failure` begins with.
    """
    listeners, journal = Listeners(shown=shown), Journal("")
    source, budget = premise.target.baseline, Budget(_FIRST_CHECKS)
    setting = _Setting(start, 0.0, workers, source, journal, listeners, None, budget)
    test = interestingness_of(premise, workers, level, start)
    _Run(form, start, [test], setting).answer(
        get_compiler_text(premise), get_known_result(test, premise, start)
    )
    return journal


def reduce_failure(
    form: ReducibleForm[S],
    start: S,
    premise: Premise,
    pool: Sequence[Workers],
    level: Level,
    journal: Journal,
    listeners: Listeners[S],
    passes: Sequence[Pass[S]] | None = None,
    start_at: S | None = None,
    budget: Budget = _UNBOUNDED,
    mark: str = "",
) -> Reduction[S]:
    """Reduce a subject whose failure is known; `start_at` is a simpler one that is known to show it, from an
    earlier call. Once the budget is spent the simplest so far is the result. `mark` separates the journal's
    entries for this failure from others.

    `pool` are workers for parallel tests, the first of which does everything else too. If the judge no longer
    confirms that a result is the same failure, reduction restarts from the last confirmed step with the level
    `cure`, and the judge confirms every step.
    """
    workers = pool[0]
    since = time.monotonic()
    tests = [interestingness_of(premise, each, level, start) for each in pool]
    setting = _Setting(start, since, workers, premise.target.baseline, journal, listeners, passes, budget)
    mark += "runs:" if isinstance(tests[0], StatisticalTest) else ""
    run = _Run(form, start if start_at is None else start_at, tests, setting, mark)
    run.reduce(
        get_compiler_text(premise), get_known_result(tests[0], premise, start) if start_at is None else None
    )
    if isinstance(tests[0], StatisticalTest):
        return _by_replays(run, tests[0])
    found = _varies(run, premise, workers)
    if found is not None:
        best = run.engine.best
        listeners.say(found.describe_level(level))
        varied = reduce_failure(form, start, found, pool, level, journal, listeners, passes, best, budget)
        return replace(varied, premise=found, checks=varied.checks + run.engine.checks)
    same = still(run.engine.best, premise, workers)
    if not same and level != "cure":
        good = _last_seen(run.trail, start, premise, workers)
        strict = [confirmed_by_judge(premise, each, "cure", start, judged=True) for each in pool]
        second = _Run(form, good, strict, setting, mark + "cure:")
        second.goes_on(run)
        same = still(second.engine.best, premise, workers)
        return replace(second.result(same), judged=True)
    converted = _without_converters(run, tests, premise) if same else None
    run = converted or run
    outside = _leave_bodies(run, tests, premise) if same else None
    if outside is None:
        return run.result(same)
    best, found = outside
    listeners.say(found.describe_level(level))
    mark = f"{found.failure.fingerprint.key}:"
    walked = reduce_failure(form, start, found, pool, level, journal, listeners, passes, best, budget, mark)
    return replace(
        walked,
        premise=walked.premise or found,
        checks=walked.checks + run.engine.checks,
        node_checks=run.node_checks,
        seconds=time.monotonic() - since,
    )


def _leave_bodies(
    run: "_Run[S]", tests: Sequence[InterestingnessTest[Runnable]], premise: Premise
) -> tuple[S, Premise] | None:
    """Take the result out of a body if the same pass then fails with another message, and return it with
    that failure; `None` if no body is left, or no guilty pass is known.
    """
    best, test, size = run.engine.best, tests[0], run.form.size(run.engine.best)
    if not isinstance(test, TargetTest) or test.level == "loose" or not size.inner_nodes:
        return None
    # Only their messages tell two failures of one pass apart.
    if premise.failure.verdict.kind not in ("error", "crash"):
        return None
    opening = [each for each in run.passes if each.name == _BODIES]
    cures, held = find_cures(test, best), _count_bodies(run.form, best)
    # A spent budget ends this extra step; the result so far stands.
    with suppress(BudgetSpent):
        for single in try_singles(run.engine, opening if cures else ()):
            made = single.edit.apply(best) if single.result.kind == "slippage" else None
            if made is None or _count_bodies(run.form, made) >= held:
                continue
            guilty = [name for name, build in cures.items() if not test.is_sick(build, made)]
            # The guilty pass is extra information. If it cannot be found, the reduction is still valid.
            with suppress(NoFailure, Unjudged, BadInput):
                case = Case(made.program, made.inputs)
                found = find(case, [premise.target], None, run.setting.workers) if guilty else premise
                if guilty and found.failure.verdict.kind == premise.failure.verdict.kind:
                    run.setting.listeners.say(f"out of a body {guilty[0]} fails in other words")
                    return made, found
    return None


def _count_bodies(form: ReducibleForm[S], subject: S) -> int:
    """Return how many bodies a subject has, at any depth."""
    return sum(part.kind == _BODIES for part in form.census(subject))


def _last_seen(trail: Sequence[S], start: S, premise: Premise, workers: Workers) -> S:
    """Return the last subject in which the judge sees the failure; otherwise the start, in which it saw it.

    Raises:
        NoFailure: If the judge never saw it: then the difference was one of rounding.
    """
    asked = [subject for subject in trail if subject.program.size <= _JUDGED] if premise.assumed else trail
    for subject in reversed(asked):
        if still(subject, premise, workers):
            return subject
    if premise.assumed:
        raise NoFailure(
            f"the results of {premise.target.display} and of its unoptimised build differ, but in no small"
            " part of the model are they wrong"
        )
    return start


def _varies(run: "_Run[S]", premise: Premise, workers: Workers) -> Premise | None:
    """Return the failure of a wrong result that the small program shows only sometimes; `None` if it shows
    each time.
    """
    best = run.engine.best
    if (
        premise.failure.verdict.kind != "mismatch"
        or not replayed_spread(best, premise.target, SHORT, workers).differing
    ):
        return None
    return varying(Case(best.program, best.inputs), premise.target, workers)[0]


def _by_replays(run: "_Run[S]", test: StatisticalTest[S]) -> Reduction[S]:
    """Return the last step that new runs confirm: each test errs once in a hundred, and there were many."""
    for subject in (run.engine.best, *reversed(run.trail[:-1])):
        replays = test.replays(subject, REPLAYS)
        if test.shown(*replays):
            run.engine.best = subject
            return replace(run.result(True), replays=replays)
    return replace(run.result(False), replays=(0, REPLAYS))


def _without_converters(
    run: "_Run[S]",
    tests: Sequence[InterestingnessTest[Runnable]],
    premise: Premise,
) -> "_Run[S] | None":
    """Reduce the result on if a part of it may only convert the wrong value: then the type of the wrong
    result is free, as long as the same builds of the compiler pass. Returns `None` without converters, or if
    the judge no longer sees the failure.
    """
    best, test = run.engine.best, tests[0]
    known = (find_operator("", name) for name in best.program.operators())
    if not isinstance(test, TargetTest) or not any(found.converts for found in known if found is not None):
        return None
    sick, well = cure_set(test, best)
    free = [
        replace(each, any_type=True, sick=sick, well=well) for each in tests if isinstance(each, TargetTest)
    ]
    after = _Run(run.form, best, free, run.setting, run.mark + "type:")
    after.goes_on(run)
    workers = run.setting.workers
    return after if after.trail and still(after.engine.best, premise, workers, any_type=True) else None


def reduce_by_check(
    form: ReducibleForm[S],
    start: S,
    tests: Sequence[InterestingnessTest[S]],
    workers: Workers,
    source: ResolvedTarget | None,
    journal: Journal,
    listeners: Listeners[S],
    passes: Sequence[Pass[S]] | None = None,
    start_at: S | None = None,
    budget: Budget = _UNBOUNDED,
) -> Reduction[S]:
    """Reduce a subject by any test, such as a user's script, of which `tests` are equal; values are recorded
    on `source`. Once the budget is spent the simplest so far is the result.

    The test may be flaky: it is replayed on the start and on the result, and a test that says `same` only
    sometimes is repeated as often as its rate requires. Raises NoFailure if it never says `same` of the
    start.
    """
    setting = _Setting(start, time.monotonic(), workers, source, journal, listeners, passes, budget)
    seen = (0, 0)
    if start_at is None:
        few = replace(setting, budget=replace(budget, checks=min(budget.checks, _FIRST_CHECKS)))
        seen = _Run(form, start, tests[:1], few).answer("")
    seen = _first_replays(tests, start, seen)
    if seen[0] < seen[1]:
        seen = _add_pairs(seen, replayed_by(tests, start, REPLAYS - seen[1]))
    if not seen[0]:
        last = next(iter(tests[0].evaluate([start])))
        raise NoFailure(
            f"the check exits with 0 in none of {seen[1]} runs on the whole model"
            + (f"; it ended with {last.why}" if last.why else "")
        )
    listeners.say(f"held fixed: that the check exits with 0; seen in {seen[0]} of {seen[1]} runs")
    first: _Run[S] | None = None
    rate = seen
    if seen[0] == seen[1]:
        first = _Run(form, start if start_at is None else start_at, tests, setting)
        first.reduce("", CheckResult("same"))
        again = _first_replays(tests, first.engine.best)
        rate = _add_pairs(seen, again)
        if again[0] == again[1]:
            return replace(first.result(True), replays=rate)
    repeated = [RepeatedTest(test, runs_for(wilson(*rate), _SIGHTINGS), _SIGHTINGS) for test in tests]
    run = _Run(form, start if first is None else first.engine.best, repeated, setting, "flaky:")
    if first is None:
        run.reduce("", CheckResult("same"))
    else:
        run.goes_on(first)
    replays = replayed_by(tests, run.engine.best, REPLAYS)
    result = run.result(replays[0] > 0)
    rest = form.rest(start)
    noise = Noise(seen, None if rest is None else replayed_by(tests, rest, REPLAYS))
    return replace(result, replays=replays, noise=noise)


def _first_replays(
    tests: Sequence[InterestingnessTest[S]], subject: S, seen: tuple[int, int] = (0, 0)
) -> tuple[int, int]:
    """Return in how many of `SHORT` runs, those `seen` included, the tests say `same`, and the number of
    runs; a slow test gets fewer runs.
    """
    since, runs = time.monotonic(), _CONFIRMED - seen[1]
    seen = _add_pairs(seen, replayed_by(tests, subject, runs))
    if time.monotonic() - since > _LONG * runs / _CONFIRMED:
        return seen
    return _add_pairs(seen, replayed_by(tests, subject, SHORT - _CONFIRMED))


def _add_pairs(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


class _Run(Generic[S]):
    """One engine and the order in which it is driven."""

    def __init__(
        self,
        form: ReducibleForm[S],
        start: S,
        tests: Sequence[InterestingnessTest[S]],
        setting: _Setting[S],
        mark: str = "",
    ):
        self.form, self.setting, self.mark = form, setting, mark
        self.trail: list[S] = []
        passes, listeners = setting.passes, setting.listeners
        self.passes = form.passes() if passes is None else list(passes)
        # With selected passes most parts stay untried, so there is no census.
        self.census: Census[S] = form.census if passes is None else lambda _: ()
        self.node_checks = self.census_checks = 0

        def refresh(subject: S) -> S:
            return form.recorded(subject, setting.source, setting.workers)

        rules = Rules(
            form,
            tests,
            form.validator(setting.workers, start),
            refresh,
            progress=listeners.progress,
            accepted=self.trail.append,
            shown=listeners.shown,
            twin=form.twin if _unread(tests[0]) else lambda subject: "",
            control=form.control,
            budget=setting.budget,
        )
        self.engine = Engine(refresh(start), rules, setting.journal, mark)

    def reduce(self, text: str, known: CheckResult | None = None) -> None:
        with suppress(BudgetSpent):
            result = self.engine.begin(known)
            if result.kind != "same":
                raise NoFailure(
                    f"the check does not show the failure on the whole model: {result.kind} {result.why}"
                )
            try:
                self.form.narrow(self.engine, self.passes, text)
            finally:
                self.node_checks = self.engine.checks
            self._reach_fixpoint()
        self.engine.settle_for_smallest()

    def answer(self, text: str, known: CheckResult | None = None) -> tuple[int, int]:
        """Reduce until the first simpler subject shows the failure; returns in how many runs the start was
        tested and showed it.
        """

        def stop(subject: S) -> None:
            self.setting.listeners.shown(subject)
            raise _Answered

        self.engine.rules = replace(self.engine.rules, shown=stop)
        with suppress(_Answered, NoFailure):
            self.reduce(text, known)
        with suppress(BudgetSpent):
            return int(self.engine.evaluate(self.setting.start, "the whole model").kind == "same"), 1
        return 0, 0

    def _reach_fixpoint(self) -> None:
        """Sweep the passes and complete the census until neither gains."""
        gained = True
        while gained:
            to_fixpoint(self.engine, self.passes)
            before = self.engine.checks
            gained = improve_untried(self.engine, self.passes, self.census)
            self.census_checks += self.engine.checks - before

    def goes_on(self, before: "_Run[S]") -> None:
        """Continue from the end of another run with another test; the figures of both add up."""
        self.engine.slippage.update(before.engine.slippage)
        self.engine.checks, self.node_checks = before.engine.checks, before.node_checks
        self.census_checks = before.census_checks
        with suppress(BudgetSpent):
            self._reach_fixpoint()

    def result(self, same: bool) -> Reduction[S]:
        engine, certificate, rest_fails = self.engine, Certificate(complete=False), ""
        # The certificate is incomplete when the budget ends, and says so.
        with suppress(BudgetSpent):
            certificate = certify(engine, self.passes, self.census)
            rest_fails = self._rest_fails(self.setting.start)
        return Reduction(
            self.setting.start,
            engine.best,
            engine.checks,
            self.node_checks,
            engine.refused["invalid"],
            time.monotonic() - self.setting.since,
            same,
            certificate,
            self.census_checks,
            slippage=dict(engine.slippage),
            rest_fails=rest_fails,
        )

    def _rest_fails(self, start: S) -> str:
        """Return whether the start fails elsewhere too; its rest is kept among the other failures."""
        rest = self.form.rest(start)
        if rest is None:
            return ""
        test, seen = self.engine.rules.tests[0], []
        asked = isinstance(test, TargetTest) and test.arbiter is not None

        def look(subject: S) -> CheckResult:
            assert isinstance(test, TargetTest)
            seen.append(test.observations(subject))
            return test.check_known(subject, *seen[0])

        result = self.engine.evaluate(rest, "the rest of the model", look if asked else None)
        if result.kind == "same":
            self.engine.slippage["rest"] = rest
            # two passes may fail in the same words
            cures = find_cures(test, self.engine.best) if isinstance(test, TargetTest) else {}
            if isinstance(test, TargetTest) and cures:
                return "other" if all(test.is_sick(build, rest) for build in cures.values()) else "same"
        if result.kind == "gone" and isinstance(test, TargetTest) and asked:
            seen = seen or [test.observations(rest)]
            got, right = seen[0]
            verdict = judge_run(rest.program, rest.inputs, test.target, got, test.workers, right=right)
            if right.outputs is not None and verdict.verdict == "fail":
                self.engine.slippage["rest"] = rest
                return "other"
        return {"same": "same", "slippage": "other"}.get(result.kind, "")
