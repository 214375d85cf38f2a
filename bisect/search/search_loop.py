"""Ends, then the search between them, as one generator: versions out, results in. Pure: probing is the caller's."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsieve.bisect.search.ends import Ends, settle_ends
from opsieve.bisect.search.reproduction_rate import MOST, ReproductionRate
from opsieve.bisect.search.search import Chain, Direction, Search, Suspects, TestResult

# A noisy search keeps this probability for "the failure is older than the good end", which one good answer does not exclude.
_OLDER = 0.02
SURE = 5  # runs of the bad end, all of them bad, after which a test is first taken for one that is not flaky
NEVER = (
    13  # runs without a failure after which the bad end is taken for good (at 0.3 a run, one time in a hundred wrongly)
)
DOUBTS = 4  # more runs of the good version that an answer rests on


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Where a search stands: candidates left, bits not known yet, about how many tests are still needed."""

    candidates: int
    bits: float
    expected: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The ends, and what was found between them (None when the ends have trouble).

    `first` are the versions one of which is the first with the new answer, `last_before` the newest version known to have the
    old one.
    """

    ends: Ends
    suspects: Suspects | None
    first: tuple[int, ...] = ()
    last_before: int = -1

    @property
    def exact(self) -> bool:
        """Whether one version was found, not a set."""
        return len(self.first) == 1

    def moved(self, places: int) -> "SearchResult":
        """The same in a row that has so many versions more before these."""
        ends = replace(
            self.ends,
            old=self.ends.old + places,
            new=self.ends.new + places,
            wrong=tuple((place + places, result) for place, result in self.ends.wrong),
            answers={place + places: result for place, result in self.ends.answers.items()},
        )
        first = tuple(place + places for place in self.first)
        return replace(self, ends=ends, first=first, last_before=self.last_before + places)


SearchProtocol = Generator[tuple[list[int], SearchProgress | None], list[TestResult], SearchResult]


def bisection(
    count: int,
    good: int | None = None,
    bad: int | None = None,
    *,
    prior: Sequence[float] | None = None,
    chance: float | ReproductionRate = 1.0,
    confidence: float = 0.99,
    width: int = 1,
) -> SearchProtocol:
    """Yield versions of a row to test, with the progress, and get their answers; the outcome is returned.

    Arguments are those of `settle_ends` and `Search`; `prior` has a weight for each of the `count` versions.
    """
    mean = chance.mean if isinstance(chance, ReproductionRate) else chance
    settling = settle_ends(count, good, bad, mean, confidence)
    wanted = next(settling)
    while True:
        answers = yield wanted, None
        try:
            wanted = settling.send(answers)
        except StopIteration as stop:
            ends: Ends = stop.value
            break
    if ends.trouble:
        return SearchResult(ends, None)
    size = ends.new - ends.old + 1
    weights = np.array(prior[ends.old : ends.new + 1] if prior else np.ones(size), dtype=np.float64)
    doubtful = mean < 1 and ends.direction is Direction.REGRESSION
    weights[0] = _OLDER / (1 - _OLDER) * weights[1:].sum() if doubtful else 0.0
    search = Search(
        Chain(size), direction=ends.direction, prior=weights, chance=chance, confidence=confidence, width=width
    )
    for version, answer in ends.answers.items():
        if ends.old < version < ends.new and answer is TestResult.SKIP:
            search.record(version - ends.old, answer)
    newest_old = ends.old
    for version, answer in (yield from run_search(search, ends.old)):
        if answer is ends.answers[ends.old]:
            newest_old = max(newest_old, version)
    suspects = search.suspects
    assert suspects is not None  # next_versions() gives nothing exactly then
    if suspects.candidates == (0,):
        wrong = tuple(dict.fromkeys((*ends.wrong, (ends.old, TestResult.BAD))))
        return SearchResult(replace(ends, trouble="always", wrong=wrong), None)
    first = tuple(ends.old + version for version in suspects.candidates)
    return SearchResult(ends, suspects, first, min(newest_old, first[0] - 1))


def measure(sure: int = 0) -> Generator[None, TestResult, ReproductionRate]:
    """Ask for runs of a failing version until enough is known of how often it fails; runs that say nothing do not count.

    With `sure`, so many failures without a single good run are enough, and so are `NEVER` good ones, or one that says nothing.
    """
    failures = runs = 0
    for _ in range(2 * MOST):
        result = yield
        failures += result is TestResult.BAD
        runs += result is not TestResult.SKIP
        steady = failures == runs and runs < sure  # so far: a few failures more tell whether it is
        if (ReproductionRate(failures, runs).settled and not steady) or (sure and failures == runs >= sure):
            break
        if sure and (result is TestResult.SKIP or (not failures and runs >= NEVER)):
            break
    return ReproductionRate(failures, runs)


def run_doubting(
    search_for: Callable[[float | ReproductionRate], Search], rate: ReproductionRate
) -> Generator[tuple[list[int], SearchProgress | None], list[TestResult], Search]:
    """A search by a test that failed in every one of `rate.runs` runs of the bad end, and may be flaky all the same.

    It is made without noise; then the good answer that the result rests on is doubted: that version is tested again. When one of these
    runs is bad, the test is flaky, and the search goes on with noise, with all that was seen so far. Returns the search at its end.
    """
    search = search_for(1.0)
    recorded = yield from run_search(search)
    boundary = _boundary(search, recorded)
    if boundary is None:
        return search
    doubts: list[tuple[int, TestResult]] = []
    for _ in range(DOUBTS):
        (result,) = yield [boundary], None
        doubts.append((boundary, result))
        if result is TestResult.BAD:
            break
    else:
        return search
    search = search_for(ReproductionRate(rate.failures + 1, rate.runs + 1 + len(doubts)))
    for version, result in (*recorded, *doubts):
        search.record(version, result)
    yield from run_search(search)
    return search


def _boundary(search: Search, recorded: Sequence[tuple[int, TestResult]]) -> int | None:
    """The good version next to the change that was found: the last good one before a regression, the first one of a fix."""
    assert search.suspects is not None
    last = search.suspects.candidates[-1]
    good = [version for version, result in recorded if result is TestResult.GOOD]
    if search.direction is Direction.REGRESSION:
        before = search.history.reach(last)
        return max((version for version in good if before[version]), default=None)
    return min((version for version in good if search.history.reach(version)[last]), default=None)


def run_search(
    search: Search, offset: int = 0
) -> Generator[tuple[list[int], SearchProgress | None], list[TestResult], list[tuple[int, TestResult]]]:
    """Drive a search to its end; versions are yielded with `offset` added. Returns all that was recorded."""
    recorded: list[tuple[int, TestResult]] = []
    while versions := search.next_versions():
        progress = SearchProgress(len(search.candidates), search.bits, search.expected)
        answers = yield [offset + version for version in versions], progress
        for version, answer in zip(versions, answers, strict=True):
            search.record(version, answer)
            recorded.append((offset + version, answer))
    return recorded
