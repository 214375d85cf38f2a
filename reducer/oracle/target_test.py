"""The interestingness test of a compiler's failure: one run of the target, and of the arbiter beside it. For
programs of any form.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from opsieve.backends.judge.oracles import Lab
from opsieve.backends.judge.shown_failure import compare_runs, is_refusal, judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.stacks.frame_lines import choose_skip_option, read_trace
from opsieve.backends.verdict import WRONG_OUTPUTS, Verdict
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import shown
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.triage.fingerprint.sameness import Failure, Level, make_failure

# At most this many passes are skipped one by one, since each costs a compilation.
_MOST_ACTING = 24


class Runnable(Protocol):
    """A subject of any form that a worker can run."""

    @property
    def program(self) -> Program:
        """The program, as workers take it."""

    @property
    def inputs(self) -> dict[str, Value]:
        """A value for every input, by name."""


@dataclass(frozen=True)
class TargetTest:
    """One run of the target for each subject, and of the arbiter where the target's answer needs it.

    `arbiter` gives the right outputs, or the judgement that a program must be accepted; None if there is no
    arbiter. `sick` and `well` are other builds that have to fail, and to pass, on a subject: at the level
    `cure` those of the whole model. With `finite`, a mismatch counts only where the right outputs are finite,
    as those of the whole model were. With `any_type` the element type of a wrong result may change, if `sick`
    and `well` show that the cure is the same. `apart` gives each run of the target a process of its own.
    `comes_and_goes` as in `judge_run`.
    """

    workers: Workers
    target: ResolvedTarget
    failure: Failure
    arbiter: ResolvedTarget | None
    level: Level
    sick: tuple[ResolvedTarget, ...] = ()
    well: tuple[ResolvedTarget, ...] = ()
    finite: bool = False
    any_type: bool = False
    apart: bool = False
    comes_and_goes: bool = False

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        tests = [Test(subject.program, subject.inputs) for subject in subjects]
        if self.failure.verdict.kind in WRONG_OUTPUTS and self.arbiter is not None:
            with ThreadPoolExecutor(1) as pool:
                # The arbiter computes beside the target, on a core of its own.
                right = pool.submit(lambda: list(self.workers.observe_many(self._arbiter, tests)))
                left = list(self.workers.observe_many(self.target, tests, fresh=self.apart))
                pairs = zip(subjects, tests, left, right.result(), strict=True)
                for subject, test, got, wanted in pairs:
                    yield self._check_outputs(subject, test, got, wanted)
            return
        answers: Iterable[Observation] = self.workers.observe_many(self.target, tests, fresh=self.apart)
        # To judge `unsupported`, the target is run again: operator by operator without an unoptimised build,
        # and whole for an intermittent failure. It cannot begin before all answers of this batch are read.
        if self.target.baseline is None or self.comes_and_goes:
            answers = list(answers)
        for subject, test, got in zip(subjects, tests, answers, strict=True):
            yield self._check_ending(subject, test, got, None)

    def check_known(self, subject: Runnable, got: Observation, wanted: Observation) -> CheckResult:
        """Return the result for a subject whose target and arbiter were already run."""
        test = Test(subject.program, subject.inputs)
        if self.failure.verdict.kind in WRONG_OUTPUTS:
            return self._check_outputs(subject, test, got, wanted)
        return self._check_ending(subject, test, got, wanted)

    @property
    def _arbiter(self) -> ResolvedTarget:
        assert self.arbiter is not None
        return self.arbiter

    def observations(self, subject: Runnable) -> tuple[Observation, Observation]:
        """Run the target and the arbiter on a subject."""
        got = self.workers.observe(self.target, subject.program, subject.inputs)
        return got, self.workers.observe(self._arbiter, subject.program, subject.inputs)

    def _check_ending(
        self, subject: Runnable, test: Test, got: Observation, wanted: Observation | None
    ) -> CheckResult:
        # The judge may run the arbiter too; the cache keeps its answer for the question below.
        lab = ObservationCache(self.workers)
        verdict = self._judge(test, got, lab)
        if verdict.verdict != "fail":
            return CheckResult("gone", got.outcome)
        if not self._is_shown(verdict, subject, got):
            return self._slippage(verdict, got, subject)
        if self.arbiter is not None and self.level != "loose":
            accepted = wanted or lab.observe(self.arbiter, test.program, test.inputs)
            if is_refusal(accepted):
                return CheckResult(
                    "slippage", f"{self.arbiter} does not accept it either: {shown(accepted.message, 200)}"
                )
        return self._check_cured(test)

    def _check_outputs(
        self, subject: Runnable, test: Test, got: Observation, wanted: Observation
    ) -> CheckResult:
        if wanted.outputs is None:
            return CheckResult("gone", f"{got.outcome}, {self.arbiter}: {wanted.outcome}")
        # The edit overflowed an intermediate value: with NaN or infinity compilers may differ without a bug.
        if got.outputs is not None and self.finite and not finite(wanted.outputs.values()):
            return CheckResult("gone", f"{self.arbiter} gives NaN or infinity")
        verdict = self._judge(test, got, self.workers, wanted)
        if verdict.verdict != "fail":
            return CheckResult("gone", got.outcome if got.outputs is None else "it agrees")
        if got.outputs is None:
            return self._slippage(verdict, got, subject)
        # Several outputs may be wrong; the failure persists if any of them is wrong in the same way.
        found = compare_runs(subject.program, got, wanted).mismatches
        wrong = tuple(name for name in wanted.outputs if name in found)
        each_wrong = (verdict, *(replace(verdict, mismatch=mismatch) for mismatch in found.values()))
        if not any(self._is_shown(each, subject, got) for each in each_wrong):
            return self._slippage(verdict, got, subject)
        answer = self._check_cured(test)
        return CheckResult(answer.kind, answer.why, answer.key, wrong)

    def _judge(self, test: Test, got: Observation, lab: Lab, wanted: Observation | None = None) -> Verdict:
        return judge_run(
            test.program,
            test.inputs,
            self.target,
            got,
            lab,
            right=wanted,
            blame=self.failure.verdict.blame,
            comes_and_goes=self.comes_and_goes,
        )

    def _is_shown(self, verdict: Verdict, subject: Runnable, got: Observation) -> bool:
        return self.failure.is_shown_by(verdict, got, subject.program, self.level, self.any_type)

    def _slippage(self, verdict: Verdict, got: Observation, subject: Runnable) -> CheckResult:
        key = make_failure(verdict, got, subject.program).fingerprint.key
        return CheckResult("slippage", shown(got.message or f"{verdict.kind} {verdict.mismatch}", 200), key)

    def _check_cured(self, test: Test) -> CheckResult:
        for build, sick in [*((b, False) for b in self.well), *((b, True) for b in self.sick)]:
            if self.is_sick(build, test) != sick:
                return CheckResult("slippage", f"{build} {'is well' if sick else 'fails'} on it")
        return CheckResult("same")

    def is_sick(self, build: ResolvedTarget, subject: Runnable) -> bool:
        """Return whether another build of the compiler fails on a subject, in any way."""
        program, inputs = subject.program, subject.inputs
        got = self.workers.observe(build, program, inputs)
        asked = self.arbiter if got.outputs is not None and build != self.arbiter else None
        right = None if asked is None else self.workers.observe(asked, program, inputs)
        return judge_run(program, inputs, build, got, self.workers, right=right).verdict == "fail"


def cure_set(
    check: TargetTest, subject: Runnable
) -> tuple[tuple[ResolvedTarget, ...], tuple[ResolvedTarget, ...]]:
    """Return the other builds of the compiler that fail on a subject, and those that pass."""
    answers = {build: check.is_sick(build, subject) for build in other_builds(check.target)}
    return tuple(b for b, bad in answers.items() if bad), tuple(b for b, bad in answers.items() if not bad)


def find_cures(check: TargetTest, subject: Runnable) -> dict[str, ResolvedTarget]:
    """Return the passes that acted and whose removal makes a subject pass, each with the build that skips it;
    {} if the backend cannot tell.
    """
    target, option = check.target, choose_skip_option(check.target.facts.options)
    if not option or "trace" not in target.facts.options:
        return {}
    seen = check.workers.observe(target.with_options(trace="on"), subject.program, subject.inputs)
    acted = read_trace(seen.log, seen.outcome in ("crash", "hang")).acted[:_MOST_ACTING]
    off = {name: "+".join(filter(None, [target.options[option], name])) for name in acted}
    builds = {name: target.with_options(**{option: names}) for name, names in off.items()}
    return {name: build for name, build in builds.items() if not check.is_sick(build, subject)}


def finite(values: Iterable[Value]) -> bool:
    """Return whether all values of float types are free of NaN and infinity."""
    for value in values:
        if isinstance(value, list):
            if not finite(value):
                return False
        # The types of ml_dtypes (bfloat16, float8) have the kind "V" and are widened before the test.
        elif isinstance(value, np.ndarray) and value.dtype.kind not in "OUSMmiub":
            with np.errstate(all="ignore"):
                wide = value if value.dtype.kind in "fc" else value.astype(np.float64)
            if not np.isfinite(wide).all():
                return False
    return True


def other_builds(target: ResolvedTarget) -> tuple[ResolvedTarget, ...]:
    """List other builds of the same compiler, by the options that its unoptimised build sets. Those that
    pass are the cure.
    """
    facts = target.facts
    others = (
        target.with_options(**{option: value})
        for option, plain in facts.baseline.items()
        # An option that is already off does not make another build.
        if plain not in facts.options[option][:1]
        for value in facts.options[option]
    )
    return tuple(dict.fromkeys(other for other in others if other != target))
