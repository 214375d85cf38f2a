"""Search the few parts that a failure needs among all parts of a program: parts are numbered, and any subset
makes a candidate.

It serves every form whose programs have ordered parts (nodes, bindings, statements): bisection finds the last
needed part, growing around it finds its neighbours, QuickXplain the distant ones; then parts are left out
until all remaining ones are needed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Generic, Literal, TypeVar

from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.search import (
    Places,
    minimal_prefix,
    one_minimal,
    passing_prefix,
    prefix_sizes,
    quickxplain,
    smaller_window,
)

S = TypeVar("S")
# parts, beyond which lists are halved before a prefix is bisected
MANY = 1024


class SubsetSearch(Generic[S]):
    """The search on an engine: `keep` makes the candidate of some parts, `nearest` sorts parts by their
    distance from others, `likely` says how likely each part is needed, where that is known.
    """

    def __init__(
        self,
        engine: Engine[S],
        keep: Callable[[Sequence[int]], S | None],
        nearest: Callable[[Iterable[int], Iterable[int]], Places],
        what: str = "nodes",
        likely: Sequence[float] = (),
    ):
        self.engine, self.keep, self.nearest, self.what, self.likely = engine, keep, nearest, what, likely

    def evaluate(self, places: Iterable[int]) -> CheckResult:
        """Return the test's result for these parts."""
        kept = sorted(places)
        return self.engine.evaluate(self.keep(kept), f"keep {len(kept)} {self.what}")

    def test(self, places: Places) -> bool:
        """Return whether these parts show the failure."""
        return bool(places) and self.evaluate(places).kind == "same"

    def prefetch(self, likely: Iterator[Places]) -> None:
        """Test some of these lists ahead, on other workers."""
        self.engine.prefetch(
            (partial(self.keep, sorted(places)), f"keep {len(places)} {self.what}") for places in likely
        )

    def within(self, region: Places) -> Places:
        """Return a small part of a region that shows the failure, as the whole region does."""
        self.engine.left = len(region).bit_length() + 1
        while len(region) > MANY and (shorter := smaller_window(region, self.test, self.prefetch)):
            region = shorter
        weights = [self.likely[place] for place in region] if self.likely else None
        size = minimal_prefix(region, self.test, self.prefetch, weights=weights)
        last = region[size - 1]
        order = self.nearest([last], region[:size])
        sizes = prefix_sizes(len(order))
        found, failing = passing_prefix(order, self.test, sizes, self.prefetch)
        if found <= _FEW:
            return order[:found]
        size = minimal_prefix(order, self.test, self.prefetch, known=found, failing=failing)
        ends = [order[0], order[size - 1]]
        self.engine.left = size.bit_length() + 1
        return ends if self.test(ends) else quickxplain(ends, order[1 : size - 1], self.test, self.prefetch)

    def minimal(self, places: Places) -> Places:
        """Return the parts of which none can be left out alone."""
        return one_minimal(places, self.test, self.prefetch)


# With this few parts, leaving them out one by one is cheaper than a search.
_FEW = 8


# A sequential test of a share: as many trials as the evidence needs, and no more. Pure.


# The success rate of pure chance.
FAIR = 0.5
# The success rate that counts as significant.
CLEAR = 0.9
# The probability of either error, about
ERROR = 0.01
# The limit on trials; an open result then counts as `no`.
MOST = 40

Decision = Literal["yes", "no", "open"]


@dataclass(frozen=True, slots=True)
class Trials:
    """Successes among trials so far: eight in a row are enough for `yes`, three failures in a row for
    `no`.
    """

    successes: int = 0
    failures: int = 0

    def with_one(self, success: bool) -> "Trials":
        """Return the counts after one more trial."""
        return Trials(self.successes + success, self.failures + (not success))

    @property
    def count(self) -> int:
        """The number of trials."""
        return self.successes + self.failures

    @property
    def decision(self) -> Decision:
        """Decide by the trials; `no` if `MOST` of them left it open."""
        evidence = self.successes * log(CLEAR / FAIR) + self.failures * log((1 - CLEAR) / (1 - FAIR))
        bound = log((1 - ERROR) / ERROR)
        if evidence >= bound:
            return "yes"
        return "no" if evidence <= -bound or self.count >= MOST else "open"
