"""The test that a reduction runs again and again: does this subject still show the failure? For subjects of
any form.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

from opsieve.gen.model.printable import count_noun

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)

ResultKind = Literal["same", "slippage", "gone", "invalid"]
# With this many runs, a failure that shows once in a hundred is seen with 87 % probability. Rarer ones cannot
# be distinguished from fixed ones.
_MOST_RUNS = 200
# The accepted probability of too few sightings
_MISS = 0.01


@dataclass(frozen=True)
class CheckResult:
    """The result of an interestingness test for one subject.

    `same`: it shows the failure. `slippage`: it fails otherwise; `key` is then that failure's fingerprint.
    `gone`: it is well, or could not be run. `invalid`: it is no valid program and was not run. `why` is for
    the journal. `by_rewriting`: what an edit rewrites besides
    loses the failure without the edit too. `wrong` names the outputs that differ, where the failure is a
    mismatch.
    """

    kind: ResultKind
    why: str = ""
    key: str = ""
    wrong: tuple[str, ...] = ()
    by_rewriting: bool = False


class InterestingnessTest(Protocol[S_contra]):
    """Tests subjects, in order."""

    def evaluate(self, subjects: Sequence[S_contra]) -> Iterator[CheckResult]:
        """Yield a result for each subject, testing lazily."""


@runtime_checkable
class StatisticalTest(Protocol[S_contra]):
    """A test whose `same` rests on several runs and may be chance, so the final result is replayed."""

    def evaluate(self, subjects: Sequence[S_contra]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""

    def replays(self, subject: S_contra, runs: int) -> tuple[int, int]:
        """Run the subject anew; return the number of runs that showed the failure, and the number of runs."""

    def shown(self, seen: int, runs: int) -> bool:
        """Return whether these replays show the failure."""


def count_same_replays(test: InterestingnessTest[S], subject: S, runs: int) -> tuple[int, int]:
    """Return in how many runs the test says `same` of a subject, and the number of runs."""
    return sum(result.kind == "same" for result in test.evaluate([subject] * runs)), runs


def replayed_by(tests: Sequence[InterestingnessTest[S]], subject: S, runs: int) -> tuple[int, int]:
    """As `count_same_replays`, spread over equal tests that run at the same time."""
    shares = [len(range(place, runs, len(tests))) for place in range(len(tests))]
    with ThreadPoolExecutor(len(tests)) as pool:
        seen = pool.map(lambda test, share: count_same_replays(test, subject, share)[0], tests, shares)
        return sum(seen), runs


@dataclass(frozen=True)
class RepeatedTest(Generic[S]):
    """A test of an intermittent failure: it says `same` once `sightings` of at most `runs` runs showed it.

    A subject that fails at the rate of the whole program is missed with a probability of at most 1 %. An
    accepted subject has failed more than once, so that the rate does not fall step by step.
    """

    inner: InterestingnessTest[S]
    runs: int
    sightings: int = 2

    def evaluate(self, subjects: Sequence[S]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            yield self._one(subject)

    def replays(self, subject: S, runs: int) -> tuple[int, int]:
        """As `StatisticalTest.replays`."""
        return count_same_replays(self.inner, subject, runs)

    def shown(self, seen: int, runs: int) -> bool:
        """As `StatisticalTest.shown`."""
        return seen > 0

    def _one(self, subject: S) -> CheckResult:
        seen = 0
        for run in range(self.runs):
            result = next(iter(self.inner.evaluate([subject])))
            if result.kind == "invalid":
                return result
            seen += result.kind == "same"
            if seen == self.sightings:
                return result
            # Stop as soon as the remaining runs cannot reach the number of sightings.
            if seen + self.runs - run - 1 < self.sightings:
                break
        return CheckResult("gone", f"seen {seen} times in {count_noun(self.runs, 'run')}")


def runs_for(rate: float, sightings: int = 2) -> int:
    """Return how many runs show a failure of this rate `sightings` times with a probability of 99 %; at most
    200.
    """
    runs = sightings
    while runs < _MOST_RUNS and _fewer(rate, runs, sightings) > _MISS:
        runs += 1
    return runs


def _fewer(rate: float, runs: int, sightings: int) -> float:
    """Return the probability of fewer sightings than `sightings` (a binomial tail)."""
    return sum(math.comb(runs, seen) * rate**seen * (1 - rate) ** (runs - seen) for seen in range(sightings))


def wilson(seen: int, runs: int, z: float = 1.645) -> float:
    """Return the lower end of Wilson's score interval for `seen` in `runs` (E. B. Wilson, 1927)."""
    share, square = seen / runs, z * z / runs
    middle = share + square / 2
    spread = z * math.sqrt((share * (1 - share) + square / 4) / runs)
    # A rate of 0 would make `runs_for` ask for endless runs.
    return max(0.01, (middle - spread) / (1 + square))
