"""Search for the version that brought a change, from results that can be wrong in one way or missing. No I/O.

A history is a set of versions with ancestry: a `Chain` of releases or first-parent commits, or a
`VersionGraph` of commits with merges. Exactly one version, the culprit, brought the change: a version shows
it if the culprit is among its ancestors (itself counted). Every candidate has a weight, its probability. A
test of version v splits the weights: the mass f of v's ancestors against the rest. The next test is the
version whose f is nearest to the most informative share, which is 1/2 if the failure always shows; without
noise this is bisection (for a graph: git's rule, the larger of the two halves as small as possible).

If the failure shows only with probability p, a bad result is certain and a good one is not: a Z-channel.
Weights then follow Bayes' rule, the most informative share is 1 / (p (1 + 2^(H(p)/p))), H the entropy in
bits, and the search ends when one candidate has the requested weight. The lower bound on the mean number of
tests is log2(n) over the channel's capacity, log2(1 + p (1 - p)^((1 - p) / p)) bits. Sources: Horstein 1963
(probabilistic bisection), Burnashev and Zigangirov 1974; Ealdwulf Wuffinga's bbchop applied it to commits.

Skipped versions give no result and are not tested again. Candidates that only untestable versions could tell
apart form one group; the answer is then that group, the smallest set that can be proven.

`ReproductionRate` is how often a failing version shows its failure, measured by repeated runs. Under a flat
prior the chance has a Beta(1 + failures, 1 + runs - failures) posterior. The search keeps this posterior
beside the weights of the candidates and updates both with every result, so that its confidence accounts for
the uncertainty of the rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from opsieve.gen.errors import BadInput

# What a user says: a number, `auto` to measure it, None to measure it where needed.
Given = float | Literal["auto"] | None
# Failures of the failing end, after which it is not run again
ENOUGH = 4
# Runs of it
MOST_RUNS = 40
# Steps of the grid over the chance: the posterior of few runs is smooth, and each step costs a row of
# weights.
_POINTS = 24


@dataclass(frozen=True, slots=True)
class ReproductionRate:
    """How often repeated runs of a failing version failed."""

    failures: int
    runs: int

    @property
    def is_settled(self) -> bool:
        """Whether the failing end needs no more runs before the search."""
        return self.failures >= ENOUGH or self.runs >= MOST_RUNS

    @property
    def mean(self) -> float:
        """The mean of the posterior."""
        return (1 + self.failures) / (2 + self.runs)

    @property
    def belief(self) -> tuple[tuple[float, float], ...]:
        """Chances at the middles of equal steps from 0 to 1, each with its posterior probability."""
        places = [(step + 0.5) / _POINTS for step in range(_POINTS)]
        masses = [place**self.failures * (1 - place) ** (self.runs - self.failures) for place in places]
        return tuple((place, mass / sum(masses)) for place, mass in zip(places, masses, strict=True))


def get_belief(chance: float | ReproductionRate) -> tuple[tuple[float, float], ...]:
    """Return the distribution of a chance; a known chance has all the probability."""
    return chance.belief if isinstance(chance, ReproductionRate) else ((chance, 1.0),)


def tighten_confidence(chance: float | ReproductionRate, confidence: float) -> float:
    """Return the confidence to reach; few runs lie behind a measured chance, and they include failures."""
    return (1 + confidence) / 2 if isinstance(chance, ReproductionRate) else confidence


def compute_doubt(chance: float | ReproductionRate, runs: int) -> float:
    """Return the probability that so many runs of a failing version show no failure."""
    return sum(share * (1 - shows) ** runs for shows, share in get_belief(chance))


def count_good_runs(chance: float | ReproductionRate, confidence: float) -> int:
    """Count the runs without a failure after which a version is good with this confidence."""
    runs, doubt = 1, 1 - tighten_confidence(chance, confidence)
    # A failure that is too rare would need runs without end.
    while runs < 10 * MOST_RUNS and compute_doubt(chance, runs) > doubt:
        runs += 1
    return runs


Weights = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
# versions: the ancestry is a square of bits, 200 MB for as many
GRAPH_LIMIT = 40_000
_CERTAIN = 1 - 1e-9
_BLOCK = 512
# A noisy search takes this multiple of the bound (docs/benchmarks/bisect.md).
_NEAR = 1.09


class TestResult(Enum):
    """The result of a test in git bisect's terms; `BAD` always means the failure that is searched for."""

    # pytest: not a test class
    __test__ = False

    BAD = "bad"
    GOOD = "good"
    # It cannot be installed, built or tested
    SKIP = "skip"


class Direction(Enum):
    """Which change is looked for, oldest to newest: the failure's coming or its going."""

    REGRESSION = "regression"
    FIX = "fix"


class History(Protocol):
    """Versions 0 to size - 1, every version after its ancestors."""

    size: int

    def mark_ancestors(self, version: int) -> Mask:
        """Return a mask of the ancestors of a version, itself counted; shape (size,)."""

    def sum_ancestors(self, weights: Weights, versions: npt.NDArray[np.intp]) -> Weights:
        """Return the summed weights of the ancestors of each of `versions`; shape (len(versions),)."""

    def number_groups(self, testable: Mask) -> npt.NDArray[np.uint64]:
        """Number every version; equal numbers mean that testable versions cannot tell the two apart."""


class Chain:
    """Versions in a row: each has all earlier ones as ancestors."""

    def __init__(self, size: int):
        self.size = size

    def mark_ancestors(self, version: int) -> Mask:
        """Mark the versions up to and including `version`."""
        return np.arange(self.size) <= version

    def sum_ancestors(self, weights: Weights, versions: npt.NDArray[np.intp]) -> Weights:
        """Look the versions up in the running sum of the weights."""
        return np.cumsum(weights)[versions]

    def number_groups(self, testable: Mask) -> npt.NDArray[np.uint64]:
        """Number each version by the next testable one, at or after it."""
        places = np.where(testable, np.arange(self.size), self.size)
        return np.minimum.accumulate(places[::-1])[::-1].astype(np.uint64)


class VersionGraph:
    """Versions with merges: `parents[v]` lists the parents of v, all smaller than v; parents outside the
    graph are left out.
    """

    def __init__(self, parents: Sequence[Sequence[int]]):
        self.size = len(parents)
        if self.size > GRAPH_LIMIT:
            raise BadInput(
                f"the range holds {self.size} commits with merges, more than {GRAPH_LIMIT}; name nearer ends,"
                " or follow first parents only"
            )
        self._bits = np.zeros((self.size, (self.size + 7) // 8), np.uint8)
        for version, above in enumerate(parents):
            row = self._bits[version]
            for parent in above:
                if not 0 <= parent < version:
                    raise ValueError(f"version {version} stands before its parent {parent}")
                # Ancestors of a parent are ancestors too, and parents come first, so each row is complete
                # when it is read.
                row |= self._bits[parent]
            # The order of bits in which numpy unpacks them.
            row[version >> 3] |= 128 >> (version & 7)

    def mark_ancestors(self, version: int) -> Mask:
        """Unpack one row of the ancestry matrix."""
        return np.unpackbits(self._bits[version], count=self.size).astype(np.bool_)

    def sum_ancestors(self, weights: Weights, versions: npt.NDArray[np.intp]) -> Weights:
        """Multiply the ancestry rows of `versions` with the weights, a block of rows at a time."""
        total = np.empty(len(versions))
        # In blocks, since an unpacked row takes eight times the space.
        for start in range(0, len(versions), _BLOCK):
            rows = self._bits[versions[start : start + _BLOCK]]
            total[start : start + len(rows)] = np.unpackbits(rows, axis=1, count=self.size) @ weights
        return total

    def number_groups(self, testable: Mask) -> npt.NDArray[np.uint64]:
        """Sum one random number for each testable descendant.

        Equal sets have equal sums; different sets collide with a probability near 2^-64.
        """
        # Seeded, so that a resumed search asks for the same versions.
        random = np.random.Generator(np.random.PCG64(0)).integers(1, 1 << 63, self.size, dtype=np.uint64)
        number = np.zeros(self.size, np.uint64)
        for version in np.flatnonzero(testable):
            number[self.mark_ancestors(int(version))] += random[version]
        return number


@dataclass(frozen=True, slots=True)
class Suspects:
    """The answer: the culprit is one of `candidates` (one, unless untestable versions hide which) with this
    probability.
    """

    candidates: tuple[int, ...]
    confidence: float
    tests: int


def compute_entropy(share: float) -> float:
    """Return the entropy in bits of an event with this probability."""
    return -sum(part * math.log2(part) for part in (share, 1 - share) if 0 < part < 1)


def compute_capacity(chance: float) -> float:
    """Return the most bits that one test can give if the failure shows with this probability."""
    return 1.0 if chance >= 1 else math.log2(1 + (1 - chance) ** ((1 - chance) / chance) * chance)


def compute_best_share(chance: float) -> float:
    """Return the probability of failing at which a test of a version is most informative."""
    return 1 / (chance * (1 + 2 ** (compute_entropy(chance) / chance)))


def estimate_tests(candidates: int, chance: Given) -> int:
    """Estimate the number of tests that a search of `candidates` takes, including one of each end; without a
    number for `chance`, as if every test of a failing version failed.
    """
    bits = math.log2(max(2, candidates))
    if isinstance(chance, float) and chance < 1:
        bits *= _NEAR / compute_capacity(chance)
    return 2 + math.ceil(bits)


class Search:
    """One search: test `next_versions` and `record_result` each, until `suspects` is set (ask and tell).

    `prior` weighs the candidates (equal by default; 0 excludes one), shape (history.size,). `chance` is the
    probability that a failing version shows its failure in one test, or the measured distribution of it;
    below 1 the same version is tested several times. `confidence` is the probability at which a noisy search
    may stop; with a measured chance the doubt is halved. `width` versions are tested at once, for as many
    workers.
    """

    def __init__(
        self,
        history: History,
        *,
        direction: Direction = Direction.REGRESSION,
        prior: Sequence[float] | Weights | None = None,
        chance: float | ReproductionRate = 1.0,
        confidence: float = 0.99,
        width: int = 1,
    ):
        belief = get_belief(chance)
        if any(not 0 < value <= 1 for value, _ in belief) or not 0 < confidence < 1 or width < 1:
            raise ValueError("chance lies in (0, 1], confidence in (0, 1), width is at least 1")
        self.history, self.direction = history, direction
        self._chances = np.array([value for value, _ in belief])
        self.confidence = _CERTAIN if chance == 1 else tighten_confidence(chance, confidence)
        self.tests = 0
        self._width = width
        weights = np.ones(history.size) if prior is None else np.array(prior, dtype=np.float64)
        if weights.shape != (history.size,) or not weights.sum() > 0 or weights.min() < 0:
            raise ValueError("a prior is a weight of at least 0 for each version, not all of them 0")
        # One row for each value that the chance may have: what is believed of both together.
        self._joint: Weights = np.outer([share for _, share in belief], weights / weights.sum())
        self._testable = np.ones(history.size, np.bool_)
        self._tested = np.zeros(history.size, np.bool_)
        self._groups = history.number_groups(self._testable)

    @property
    def weights(self) -> Weights:
        """The probability of each candidate; shape (history.size,)."""
        total: Weights = self._joint.sum(axis=0)
        return total

    @property
    def chance(self) -> float:
        """The current estimate of the probability that a failing version shows its failure."""
        return float(self._chances @ self._joint.sum(axis=1))

    @property
    def suspects(self) -> Suspects | None:
        """The answer, or None until it reaches the requested confidence."""
        _, place = np.unique(self._groups, return_inverse=True)
        sums = np.bincount(place, self.weights)
        best = int(np.argmax(sums))
        # Where no test would tell more, the best group is the answer, however uncertain.
        if sums[best] < self.confidence and self._choose_versions():
            return None
        members = np.flatnonzero((place == best) & (self.weights > 0))
        return Suspects(tuple(map(int, members)), min(1.0, float(sums[best])), self.tests)

    @property
    def candidates(self) -> tuple[int, ...]:
        """The versions that can still be the culprit."""
        return tuple(map(int, np.flatnonzero(self.weights > 0)))

    @property
    def bits(self) -> float:
        """The entropy of the candidates' distribution in bits."""
        live = self.weights[self.weights > 0]
        return max(0.0, -float(np.sum(live * np.log2(live))))

    @property
    def tests_left(self) -> float:
        """An estimate of the number of tests still needed, one at a time."""
        return self.bits / compute_capacity(self.chance)

    def next_versions(self) -> list[int]:
        """Return the versions to test now, at most `width`; [] if the search is over."""
        return [] if self.suspects else self._choose_versions()

    def record_result(self, version: int, result: TestResult) -> None:
        """Update the weights with the result of one test, unless a search without noise ruled it out."""
        self.tests += 1
        if result is TestResult.SKIP:
            self._testable[version] = False
            self._groups = self.history.number_groups(self._testable)
            return
        self._tested[version] = True
        regression = self.direction is Direction.REGRESSION
        reach = self.history.mark_ancestors(version)
        failing = reach if regression else ~reach
        shows = self._chances[:, np.newaxis]
        if result is TestResult.BAD:
            # No false alarms: the culprit is where it explains this.
            updated = np.where(failing, self._joint * shows, 0.0)
        else:
            updated = np.where(failing, self._joint * (1 - shows), self._joint)
        # Of several changes, answers of one round may show two: the search stays with the one it met first.
        if (total := updated.sum()) > 0:
            self._joint = updated / total

    def _choose_versions(self) -> list[int]:
        """Choose the most informative testable versions, or [] if every test would be uninformative."""
        live = self._testable & (self.weights > 0)
        # Testing candidates only keeps the last bad version the culprit itself; others help where candidates
        # cannot be tested.
        return self._rank_versions(np.flatnonzero(live)) or self._rank_versions(
            np.flatnonzero(self._testable & ~live)
        )

    def _rank_versions(self, versions: npt.NDArray[np.intp]) -> list[int]:
        """Choose up to `width` of `versions` by the information that a test of each gives."""
        if not len(versions):
            return []
        mass = self.history.sum_ancestors(self.weights, versions)
        # A test whose result is certain tells nothing; sums of floats miss 0 and 1 by rounding.
        useful = (mass > 1e-12) & (mass < 1 - 1e-12)
        versions, mass = versions[useful], mass[useful]
        if self.direction is Direction.FIX:
            mass = 1 - mass
        chances = self._estimate_testable(versions)
        chosen: list[int] = []
        for number in range(1, self._width + 1):
            # Versions that are tested at once are spread around the best share, or they would all ask the
            # same.
            share = min(0.99, compute_best_share(self.chance) * 2 * number / (self._width + 1))
            score = chances * np.minimum(mass / share, (1 - mass) / (1 - share))
            score[np.isin(versions, chosen)] = -1
            if len(score) and score.max() > 0:
                chosen.append(int(versions[np.argmax(score)]))
        return chosen

    def _estimate_testable(self, versions: npt.NDArray[np.intp]) -> Weights:
        """Estimate how likely each version is testable, from its neighbours.

        Untestable versions come in stretches. A stretch of length L without a tested version in between still
        covers a version d beyond its end with probability L / (L + d) (a scale-free guess); inside the
        stretch the probability of being testable is at least 0.1.
        """
        chances = np.ones(len(versions))
        broken = np.flatnonzero(~self._testable)
        if not len(broken):
            return chances
        fine = np.flatnonzero(self._tested)
        # Equal numbers: no tested version between them
        starts = np.flatnonzero(np.r_[True, np.diff(np.searchsorted(fine, broken)) > 0])
        first, last = broken[starts], broken[np.r_[starts[1:] - 1, len(broken) - 1]]
        for low, high in zip(first, last, strict=True):
            length = high - low + 1
            away = np.maximum(np.maximum(low - versions, versions - high), 0)
            chances = np.minimum(chances, np.maximum(0.1, 1 - length / (length + away)))
        return chances
