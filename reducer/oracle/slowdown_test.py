"""The interestingness tests of a build that is slower, or needs more memory, than the unoptimised one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opsieve.backends.judge.performance import LEVEL, MARGIN, compute_sign_test, measure_memory
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.subset_search import Trials
from opsieve.reducer.oracle.target_test import Runnable

# The number of runs in one process whose median counts.
REPEAT = 3
# The smallest difference in CPU seconds: below it, the cost of the call dominates.
FLOOR = 50e-6


@dataclass(frozen=True)
class SlowdownTest:
    """`same` when the target takes more than `margin` times the CPU time of its unoptimised build, by a
    sequential test over pairs of runs.

    CPU time of all threads, so that what else the machine does counts little; who goes first alternates. A
    candidate that fails or gives other results than the unoptimised build is another failure.
    """

    workers: Workers
    target: ResolvedTarget
    baseline: ResolvedTarget
    margin: float = MARGIN
    floor: float = FLOOR

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            yield self._one(subject)

    def replays(self, subject: Runnable, runs: int) -> tuple[int, int]:
        """In how many of so many pairs the target was slower than the margin allows; (0, 0) where a run does
        not end well.
        """
        slower = 0
        for turn in range(runs):
            pair = self._pair(subject, turn)
            if not _has_times(pair):
                return 0, 0
            slower += self._slower(pair)
        return slower, runs

    def shown(self, seen: int, runs: int) -> bool:
        """Whether such replays show the failure: by the sign test of the judge."""
        return runs > 0 and compute_sign_test(seen, runs) <= LEVEL

    def _one(self, subject: Runnable) -> CheckResult:
        trials = Trials()
        while trials.decision == "open":
            pair = self._pair(subject, trials.count)
            if not _has_times(pair):
                failed = pair[1].outcome == "ok" and self._fails(subject, pair)
                return CheckResult("slippage" if failed else "gone", f"{pair[0].outcome}, {pair[1].outcome}")
            if not trials.count and self._fails(subject, pair):
                return CheckResult("slippage", "the builds give different results")
            trials = trials.with_one(self._slower(pair))
        kind = f"over {self.margin:g} times in {trials.successes} of {trials.count} pairs"
        return CheckResult("same" if trials.decision == "yes" else "gone", kind)

    def _pair(self, subject: Runnable, turn: int) -> tuple[Observation, Observation]:
        both = (self.target, self.baseline)
        answers = {
            target: self.workers.observe(target, subject.program, subject.inputs, repeat=REPEAT)
            for target in (both if turn % 2 == 0 else reversed(both))
        }
        return answers[self.target], answers[self.baseline]

    def _fails(self, subject: Runnable, pair: tuple[Observation, Observation]) -> bool:
        """Whether the target ends badly, or gives other results than the unoptimised build."""
        run, right = pair
        verdict = judge_run(subject.program, subject.inputs, self.target, run, self.workers, right=right)
        return verdict.verdict == "fail"

    def _slower(self, pair: tuple[Observation, Observation]) -> bool:
        took, usual = pair[0].cpu_seconds or 0.0, pair[1].cpu_seconds or 0.0
        return took > self.margin * usual and took - usual > self.floor


def _has_times(pair: tuple[Observation, Observation]) -> bool:
    return all(answer.outcome == "ok" and answer.cpu_seconds is not None for answer in pair)


@dataclass(frozen=True)
class MemoryTest:
    """`same` when the target needs more memory than its unoptimised build by the margin of the judge."""

    workers: Workers
    target: ResolvedTarget

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            verdict = measure_memory(subject.program, subject.inputs, self.target, self.workers)
            yield CheckResult("same" if verdict.verdict == "fail" else "gone", verdict.reason)
