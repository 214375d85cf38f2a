"""Verify the ends, then search between them, as one generator: versions out, results in. Pure: the caller
probes.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from opsieve.bisect.search.ends import NEVER, Ends, settle_ends
from opsieve.bisect.search.search import (
    MOST_RUNS,
    Chain,
    Direction,
    Given,
    ReproductionRate,
    Search,
    Suspects,
    TestResult,
    compute_doubt,
    count_good_runs,
)

# A noisy search keeps this probability for "the failure is older than the good end", which one good answer
# does not exclude.
_OLDER = 0.02
# After this many bad runs of the bad end, a test is first assumed to be reliable.
SURE = 5


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Progress of a search: candidates left, unknown bits, and an estimate of the tests still needed."""

    candidates: int
    bits: float
    expected: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The ends and the suspects between them (None if the ends have trouble).

    One of the versions in `first` is the first with the new result; `last_before` is the newest version known
    to have the old one.
    """

    ends: Ends
    suspects: Suspects | None
    first: tuple[int, ...] = ()
    last_before: int = -1

    @property
    def is_exact(self) -> bool:
        """Whether the answer is a single version."""
        return len(self.first) == 1

    def shift_by(self, places: int) -> "SearchResult":
        """Return the same result for a row with `places` more versions in front."""
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


def bisect_row(
    count: int,
    good: int | None = None,
    bad: int | None = None,
    *,
    prior: Sequence[float] | None = None,
    chance: float | ReproductionRate | None = 1.0,
    confidence: float = 0.99,
    width: int = 1,
    known: Mapping[int, TestResult] = MappingProxyType({}),
    fixed: bool = False,
) -> SearchProtocol:
    """Yield versions of a row to test, with the progress, receive the results, and return the outcome.

    The arguments are those of `settle_ends` and `Search`; `prior` has a weight for each of the `count`
    versions. Without a chance (None) every bad version is taken for one that failed twice in a row, and the
    good one next to the change is tested until it is good with `confidence`. The caller starts again with a
    measured chance if a run contradicts an earlier one.
    """
    settling = settle_ends(count, good, bad, chance, confidence, known, fixed)
    # The first `send` starts it: with all ends known, it ends without a question.
    answers: Any = None
    while True:
        try:
            wanted = settling.send(answers)
        except StopIteration as stop:
            ends: Ends = stop.value
            break
        answers = yield wanted, None
    if ends.trouble:
        return SearchResult(ends, None)
    size = ends.new - ends.old + 1
    weights = np.array(prior[ends.old : ends.new + 1] if prior else np.ones(size), dtype=np.float64)
    given = 1.0 if chance is None else chance
    doubtful = given != 1 and ends.direction is Direction.REGRESSION
    # The good end is a candidate only if it may have passed by chance; in a search for a fix it is bad for
    # certain.
    weights[0] = _OLDER / (1 - _OLDER) * weights[1:].sum() if doubtful else 0.0
    search = Search(
        Chain(size),
        direction=ends.direction,
        prior=weights,
        chance=given,
        confidence=confidence,
        width=width,
    )
    for version, answer in ends.answers.items():
        # Ends that could not be tested were moved inwards; what was skipped stays skipped.
        if ends.old < version < ends.new and answer is TestResult.SKIP:
            search.record_result(version - ends.old, answer)
    newest_old = ends.old
    recorded = yield from run_search(search, ends.old)
    for version, answer in recorded:
        if answer is ends.answers[ends.old]:
            newest_old = max(newest_old, version)
    suspects = search.suspects
    # next_versions() is empty exactly then.
    assert suspects is not None
    # The failure is older than the range: what passed at the good end was chance.
    if suspects.candidates == (0,):
        wrong = tuple(dict.fromkeys((*ends.wrong, (ends.old, TestResult.BAD))))
        return SearchResult(replace(ends, trouble="always", wrong=wrong), None)
    first = tuple(ends.old + version for version in suspects.candidates)
    last_before = min(newest_old, first[0] - 1)
    if chance is None:
        answers = (*ends.answers.items(), *recorded)
        failing = len({version for version, answer in answers if answer is TestResult.BAD})
        runs, sure = plan_confirmation(failing, confidence)
        for _ in range(runs - 1):
            yield [last_before if ends.direction is Direction.REGRESSION else first[-1]], None
        suspects = replace(suspects, confidence=sure)
    if given != 1:
        # Failures alone may leave one candidate for certain; that an end is good rests on runs all the same.
        suspects = replace(suspects, confidence=min(suspects.confidence, confidence))
    return SearchResult(ends, suspects, first, last_before)


def plan_confirmation(failing: int, confidence: float) -> tuple[int, float]:
    """Return how many runs of the good version next to the change it takes, and the confidence they give.

    `failing` versions failed, each in two runs of two; nothing else is known of the reproduction rate.
    """
    rate = ReproductionRate(2 * failing, 2 * failing)
    runs = count_good_runs(rate, confidence)
    return runs, min(confidence, 1 - compute_doubt(rate, runs))


def measure_rate(sure: int = 0) -> Generator[None, TestResult, ReproductionRate]:
    """Request runs of a failing version until its reproduction rate is known well enough.

    Skipped runs do not count. With `sure`, that many failures without a good run are enough, and so are
    `NEVER` good runs or one skipped run.
    """
    failures = runs = 0
    for _ in range(2 * MOST_RUNS):
        result = yield
        failures += result is TestResult.BAD
        runs += result is not TestResult.SKIP
        # So far: a few more failures decide it.
        steady = failures == runs and runs < sure
        if (ReproductionRate(failures, runs).is_settled and not steady) or (
            sure and failures == runs >= sure
        ):
            break
        # A version that cannot be tested at all must not take all of the runs.
        if (sure or not runs) and result is TestResult.SKIP:
            break
        if sure and not failures and runs >= NEVER:
            break
    return ReproductionRate(failures, runs)


Confirmation = Generator[list[int], list[TestResult], tuple[Ends, float | ReproductionRate | None]]


def confirm_ends(
    count: int, good: int, bad: int, given: Given, confidence: float, may_be_flaky: bool
) -> Confirmation:
    """Run the two named ends until both have their expected result with `confidence`.

    Returns the ends and the reproduction rate. If `given` has no rate, it is measured at the failing end, or
    stays unknown (None) if each test already repeats its run. A version that failed once stays bad.
    """
    chance = given if isinstance(given, float) else None
    if chance is not None or (given is None and not may_be_flaky):
        return (yield from settle_ends(count, good, bad, chance, confidence)), chance
    # Of an end that is not known yet; it fails at least once
    rate = ReproductionRate(1, 1)
    known: dict[int, TestResult] = {}
    # The bad end first: its rate says how many runs of the good one are needed.
    for end in (bad, good):
        measuring = measure_rate(0 if given == "auto" else SURE)
        next(measuring)
        try:
            while True:
                measuring.send((yield [end])[0])
        except StopIteration as stop:
            measured: ReproductionRate = stop.value
        if measured.failures:
            known[end], rate = TestResult.BAD, measured
        elif measured.runs >= NEVER:
            known[end] = TestResult.GOOD
        if known.get(end) is not TestResult.GOOD:
            break
    return (yield from settle_ends(count, good, bad, rate, confidence, known)), rate


def search_flaky(
    search_for: Callable[[float | ReproductionRate], Search], chance: float | ReproductionRate
) -> Generator[tuple[list[int], SearchProgress | None], list[TestResult], Suspects]:
    """Search with a test that may be flaky.

    If every run of the failing end failed, a short search without noise comes first. The search with noise
    then continues from all recorded results until it has the requested confidence: it doubts the good results
    on which the answer rests.
    """
    recorded: list[tuple[int, TestResult]] = []
    if isinstance(chance, ReproductionRate) and chance.failures == chance.runs:
        # Most failures are steady, and then this costs no more than bisection.
        recorded = yield from run_search(search_for(1.0))
    search = search_for(chance)
    for version, result in recorded:
        search.record_result(version, result)
    yield from run_search(search)
    suspects = search.suspects
    assert suspects is not None
    # Failures alone may leave one candidate for certain; that the good end is good rests on runs all the
    # same.
    return (
        replace(suspects, confidence=min(suspects.confidence, search.confidence)) if chance != 1 else suspects
    )


def run_search(
    search: Search, offset: int = 0
) -> Generator[tuple[list[int], SearchProgress | None], list[TestResult], list[tuple[int, TestResult]]]:
    """Drive a search to its end and return all recorded results; versions are yielded with `offset` added."""
    recorded: list[tuple[int, TestResult]] = []
    while versions := search.next_versions():
        progress = SearchProgress(len(search.candidates), search.bits, search.tests_left)
        answers = yield [offset + version for version in versions], progress
        for version, answer in zip(versions, answers, strict=True):
            search.record_result(version, answer)
            recorded.append((offset + version, answer))
    return recorded
