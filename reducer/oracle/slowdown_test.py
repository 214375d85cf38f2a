"""The interestingness tests of a build that is slower, or needs more memory, than the unoptimised one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opsieve.backends.judge.performance import LEVEL, MARGIN, compute_sign_test, is_slower, measure_memory
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.registry import ir_of
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.subset_search import Trials
from opsieve.reducer.oracle.target_test import Runnable


@dataclass(frozen=True)
class SlowdownTest:
    """A test that says `same` if the target takes more than `MARGIN` times the CPU time of its unoptimised
    build, by a sequential test over pairs of runs.

    The two builds take turns at running first. A candidate that fails or gives other results than the
    unoptimised build is another failure.
    """

    workers: Workers
    target: ResolvedTarget
    baseline: ResolvedTarget

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            yield self._one(subject)

    def replays(self, subject: Runnable, runs: int) -> tuple[int, int]:
        """Return in how many pairs the target is slower than the margin allows, and the number of pairs;
        (0, 0) if a run does not end well.
        """
        slower = 0
        for turn in range(runs):
            pair = self._pair(subject, turn)
            if any(run.outcome != "ok" for run in pair):
                return 0, 0
            slower += is_slower(pair[0].cpu_seconds, pair[1].cpu_seconds)
        return slower, runs

    def shown(self, seen: int, runs: int) -> bool:
        """Return whether these replays show the failure, by the sign test of the judge."""
        return runs > 0 and compute_sign_test(seen, runs) <= LEVEL

    def _one(self, subject: Runnable) -> CheckResult:
        trials = Trials()
        while trials.decision == "open":
            pair = self._pair(subject, trials.count)
            if any(run.outcome != "ok" for run in pair):
                failed = pair[1].outcome == "ok" and self._fails(subject, pair)
                return CheckResult("slippage" if failed else "gone", f"{pair[0].outcome}, {pair[1].outcome}")
            # Outputs are compared in the first pair only: the later ones run the same program on the same
            # inputs.
            if not trials.count and self._fails(subject, pair):
                return CheckResult("slippage", "the builds give different results")
            trials = trials.with_one(is_slower(pair[0].cpu_seconds, pair[1].cpu_seconds))
        kind = f"over {MARGIN:g} times in {trials.successes} of {trials.count} pairs"
        return CheckResult("same" if trials.decision == "yes" else "gone", kind)

    def _pair(self, subject: Runnable, turn: int) -> tuple[Observation, Observation]:
        both, repeat = (self.target, self.baseline), ir_of(subject.program).timed_repeats
        answers = {
            target: self.workers.observe(target, subject.program, subject.inputs, repeat=repeat)
            # The second run of a pair finds warm caches, so the order alternates.
            for target in (both if turn % 2 == 0 else reversed(both))
        }
        return answers[self.target], answers[self.baseline]

    def _fails(self, subject: Runnable, pair: tuple[Observation, Observation]) -> bool:
        """Return whether the target ends badly, or gives other results than the unoptimised build."""
        run, right = pair
        verdict = judge_run(subject.program, subject.inputs, self.target, run, self.workers, right=right)
        return verdict.verdict == "fail"


@dataclass(frozen=True)
class MemoryTest:
    """A test that says `same` if the target needs more memory than its unoptimised build, by the judge's
    margin.
    """

    workers: Workers
    target: ResolvedTarget

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            verdict = measure_memory(subject.program, subject.inputs, self.target, self.workers)
            yield CheckResult("same" if verdict.verdict == "fail" else "gone", verdict.reason)
