"""The interestingness test of results that differ from run to run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opsieve.backends.compare import Comparison, compare
from opsieve.backends.judge.judging_session import list_open_rules
from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.backends.workers.workers import Test, Workers
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.triage.fingerprint.sameness import Failure, Level

# Runs in one batch. Larger batches would waste runs after the failure was seen.
_BATCH = 6


@dataclass(frozen=True, slots=True)
class Spread:
    """How runs of one program differ: `differing` of `runs` gave another result than the majority, `worst` is
    the difference; `names` are the outputs. `usual` is a run from the largest group of equal results.

    `ended` is the first failed run, None if all ended well; the other fields are then unset.
    """

    runs: int
    differing: int
    worst: Mismatch | None = None
    names: tuple[str, ...] = ()
    usual: Observation | None = None
    ended: Observation | None = None


def spread_of(answers: Sequence[Observation]) -> Spread:
    """Compare the answers of one program, at least one, by the comparison policy."""
    ended = next((answer for answer in answers if answer.outputs is None), None)
    if ended is not None:
        return Spread(len(answers), 0, ended=ended)
    # Results are grouped by the tolerance of the comparison, not by bytes: threads may add in any order.
    groups: list[list[Observation]] = []
    for answer in answers:
        alike = next((group for group in groups if not _differing(answer, group[0]).mismatches), None)
        if alike is None:
            groups.append([answer])
        else:
            alike.append(answer)
    # The right result is unknown, so that the most frequent one stands for it.
    usual = max(groups, key=len)
    others = [_differing(group[0], usual[0]) for group in groups if group is not usual]
    worst = next((found.worst for found in others if found.worst is not None), None)
    names = dict.fromkeys(name for found in others for name in found.mismatches)
    return Spread(len(answers), len(answers) - len(usual), worst, tuple(names), usual[0])


def _differing(one: Observation, other: Observation) -> Comparison:
    return compare(one.outputs or {}, other.outputs or {}, {})


def replayed_spread(
    subject: Runnable, target: ResolvedTarget, runs: int, workers: Workers, fresh: bool = False
) -> Spread:
    """Run a subject `runs` times, each in a process of its own if `fresh`, and return how the runs differ."""
    return spread_of(replayed_runs(subject, target, runs, workers, fresh))


def replayed_runs(
    subject: Runnable, target: ResolvedTarget, runs: int, workers: Workers, fresh: bool = False
) -> list[Observation]:
    """Return `runs` observations of a subject, one after the other, each in a process of its own when
    `fresh`.
    """
    return list(workers.observe_many(target, [Test(subject.program, subject.inputs)] * runs, fresh=fresh))


def left_open(subject: Runnable, names: Sequence[str], workers: Workers) -> bool:
    """Return whether ONNX leaves the values of all these outputs undefined (a random operator, a division by
    zero), as far as the reference knows.
    """
    hazards = workers.observe(FLOAT64, subject.program, subject.inputs).hazards
    return bool(names) and all(list_open_rules(hazards, name) for name in names)


@dataclass(frozen=True)
class NondeterminismTest:
    """A test that says `same` once `sightings` of at most `runs` runs gave another result than the majority.

    A run that ends badly is another failure. Results that ONNX leaves undefined are no failure. `fresh` is
    set if runs differ only between processes.
    """

    workers: Workers
    target: ResolvedTarget
    failure: Failure
    level: Level
    runs: int
    fresh: bool = False
    sightings: int = 2

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            yield self._one(subject)

    def replays(self, subject: Runnable, runs: int) -> tuple[int, int]:
        """Return in how many runs the result differs from that of the majority, and the number of runs."""
        found = replayed_spread(subject, self.target, runs, self.workers, self.fresh)
        return found.differing, found.runs

    def shown(self, seen: int, runs: int) -> bool:
        """Return whether these replays show the failure."""
        return seen > 0

    def _one(self, subject: Runnable) -> CheckResult:
        answers: list[Observation] = []
        found = Spread(0, 0)
        while len(answers) < self.runs:
            answers += replayed_runs(
                subject, self.target, min(_BATCH, self.runs - len(answers)), self.workers, self.fresh
            )
            found = spread_of(answers)
            if found.ended is not None:
                verdict = judge_run(subject.program, subject.inputs, self.target, found.ended, self.workers)
                # A missing feature, or a machine short of memory, is no other failure.
                failed = verdict.verdict == "fail"
                return CheckResult("slippage" if failed else "gone", f"a run ended: {found.ended.outcome}")
            if found.differing >= self.sightings:
                return self._judge_difference(subject, found, answers[0])
        return CheckResult("gone", f"{found.differing} of {found.runs} runs differed")

    def _judge_difference(self, subject: Runnable, found: Spread, answer: Observation) -> CheckResult:
        assert found.worst is not None
        verdict = Verdict("fail", "", "nondeterminism", "run", mismatch=found.worst)
        if not self.failure.is_shown_by(verdict, answer, subject.program, self.level):
            return CheckResult("slippage", f"runs differ otherwise: {found.worst.what}")
        # Last, because the reference is slow.
        if left_open(subject, found.names, self.workers):
            return CheckResult("gone", "ONNX leaves open what it gives")
        return CheckResult("same", wrong=found.names)
