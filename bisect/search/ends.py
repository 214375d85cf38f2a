"""Verify the two ends before searching between them, and move one that cannot be tested. Pure.

A wrong end is the commonest reason for a wrong blame: "the good end is bad" is an answer, never a search that
goes on outside the named range. Here versions are a row, oldest first; for commits it is the row of first
parents.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from opsieve.bisect.search.search import Direction, ReproductionRate, TestResult, count_good_runs

Round = Generator[list[int], list[TestResult], "Ends"]
Testing = Generator[list[int], list[TestResult], None]
Moving = Generator[list[int], list[TestResult], tuple[int, int]]
Trouble = Literal["always", "never", "untestable", ""]
_TROUBLE: dict[TestResult, Trouble] = {
    TestResult.BAD: "always",
    TestResult.GOOD: "never",
    TestResult.SKIP: "untestable",
}


# Runs without a failure after which a version that should fail is taken for good (at 0.3 a run, one time in a
# hundred wrongly)
NEVER = 13


@dataclass(frozen=True, slots=True)
class Ends:
    """Two tested versions that differ, `old` before `new`; `trouble` says why there is no such pair.

    `always`: every tested version is bad; `never`: every one is good; `untestable`: every test was skipped.
    `wrong` holds the named ends whose result contradicts their name, with that result. `answers` maps each
    tested version to its result.
    """

    old: int = -1
    new: int = -1
    direction: Direction = Direction.REGRESSION
    trouble: Trouble = ""
    wrong: tuple[tuple[int, TestResult], ...] = ()
    answers: dict[int, TestResult] = field(default_factory=dict)


def settle_ends(
    count: int,
    good: int | None = None,
    bad: int | None = None,
    chance: float | ReproductionRate | None = 1.0,
    confidence: float = 0.99,
    known: Mapping[int, TestResult] = MappingProxyType({}),
    fixed: bool = False,
) -> Round:
    """Yield lists of versions to test out of `count`, receive their results, and return the ends.

    `good` and `bad` are the ends that the user named. The older of them is the old end; the oldest or the
    newest version stands in for a missing one. If both are named, the search stays between them, even if an
    end contradicts its name. An untestable end moves inward by half the distance each time, because
    untestable versions come in stretches. With `chance` below 1 an end is tested until it is bad, or until it
    is good with `confidence`. With an unknown chance (None) only the named bad end is tested again, because
    it is known to fail. Results in `known` are reused: a version that failed once stays bad. With `fixed` the
    search is for the end of the failure: after the bad end, or before the good one.
    """
    most = 1 if chance is None else count_good_runs(chance, confidence)
    patience = {bad: NEVER} if chance is None else {}
    return (yield from _Settling(count, good, bad, most, patience, known, fixed).find_ends())


class _Settling:
    """The state of `settle_ends`: the named ends and the results so far."""

    def __init__(
        self,
        count: int,
        good: int | None,
        bad: int | None,
        most: int,
        patience: Mapping[int | None, int],
        known: Mapping[int, TestResult],
        fixed: bool,
    ):
        self.good, self.bad, self.last, self.most, self.patience = good, bad, count - 1, most, patience
        self.answers = dict(known)
        self.fixed = fixed

    def find_ends(self) -> Round:
        """Try the pairs of ends in order and return the first pair that differs."""
        sides: list[int] = []
        for old, new in self.list_pairs():
            yield from self.test_versions(old, new)
            old, new = yield from self.find_testable_ends(old, new)
            if self.answers[old] is not self.answers[new]:
                break
            if self.answers[old] is TestResult.SKIP:
                continue
            # An untestable named end, on whose two sides the results differ.
            if sides and self.answers[sides[0]] is not self.answers[old]:
                old, new = sorted((*sides, old))
                break
            sides.append(old)
            # A named end that is not what it was named for is the answer.
            if any(result is not TestResult.SKIP for _, result in self.list_wrong_ends()):
                break
        # Everything on the second side may be untestable.
        if sides and self.answers[old] is TestResult.SKIP:
            old = new = sides[0]
        return self.make_ends(old, new)

    def list_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of ends to try, in order."""
        if self.good is not None and self.bad is not None:
            return [(min(self.good, self.bad), max(self.good, self.bad))]
        if self.fixed:
            return [(self.bad or 0, self.last if self.good is None else self.good)]
        # The failure came before the bad end; if that is not so, it went after it.
        if self.bad is not None:
            return [(0, self.bad), (self.bad, self.last)]
        if self.good is not None:
            return [(self.good, self.last), (0, self.good)]
        return [(0, self.last)]

    def test_versions(self, *versions: int) -> Testing:
        """Test these versions; repeat the test of one that may be bad although it looked good."""
        wanted = [version for version in dict.fromkeys(versions) if version not in self.answers]
        if wanted:
            answers = yield wanted
            self.answers.update(zip(wanted, answers, strict=True))
        for version in wanted:
            for _ in range(self.patience.get(version, self.most) - 1):
                if self.answers[version] is not TestResult.GOOD:
                    break
                (self.answers[version],) = yield [version]

    def find_testable_ends(self, old: int, new: int) -> Moving:
        """Move an untestable end inward.

        Returns the same version twice if all testable versions give one result.
        """
        if self.answers[old] is TestResult.SKIP and self.answers[new] is TestResult.SKIP:
            # Both ends are untestable: first something testable is needed to move towards.
            middle = yield from self.find_testable_between(old, new)
            if middle is None:
                return old, new
            # Both ways are tried from the testable version; the change may lie on either side of it.
            older = yield from self.move_inward(old, middle)
            if self.answers[older[0]] is not self.answers[older[1]]:
                return older
            newer = yield from self.move_inward(new, middle)
            return newer[1], newer[0]
        if self.answers[old] is TestResult.SKIP:
            return (yield from self.move_inward(old, new))
        if self.answers[new] is TestResult.SKIP:
            new, old = yield from self.move_inward(new, old)
        return old, new

    def find_testable_between(self, old: int, new: int) -> Generator[list[int], list[TestResult], int | None]:
        """Find a testable version in between: try halves first, then quarters, and so on."""
        # A power of two: halves of another number would step over some versions.
        step = 1 << (new - old - 1).bit_length()
        while step > 1:
            # Halves first reach the middle of a stretch of untestable versions in the fewest tests.
            half = step // 2
            for version in range(old + half, new, step):
                yield from self.test_versions(version)
                if self.answers[version] is not TestResult.SKIP:
                    return version
            step = half
        return None

    def move_inward(self, bare: int, known: int) -> Moving:
        """Return a replacement of the untestable end `bare`, and one of the end `known`.

        The two differ, and every version tested between `known` and its replacement gives the same result; or
        both are the testable version next to `bare`.
        """
        furthest = known
        while abs(furthest - bare) > 1:
            middle = (furthest + bare) // 2
            yield from self.test_versions(middle)
            if self.answers[middle] is TestResult.SKIP:
                bare = middle
            elif self.answers[middle] is not self.answers[known]:
                return middle, furthest
            else:
                furthest = middle
        return furthest, furthest

    def list_wrong_ends(self) -> tuple[tuple[int, TestResult], ...]:
        """List the named ends whose results contradict their names, with these results."""
        named = ((self.good, TestResult.GOOD), (self.bad, TestResult.BAD))
        return tuple(
            (end, self.answers[end])
            for end, right in named
            if end is not None and self.answers[end] is not right
        )

    def make_ends(self, old: int, new: int) -> Ends:
        """Build the answer from two ends and the results so far."""
        same = self.answers[old] is self.answers[new]
        if not same:
            old, new = self.find_nearest_pair(old, new)
        return Ends(
            old,
            new,
            Direction.REGRESSION if self.answers[old] is TestResult.GOOD else Direction.FIX,
            _TROUBLE[self.answers[old]] if same else "",
            self.list_wrong_ends(),
            self.answers,
        )

    def find_nearest_pair(self, old: int, new: int) -> tuple[int, int]:
        """Find the newest two neighbouring tested versions between the ends that differ."""
        known = [
            v for v in range(old, new + 1) if self.answers.get(v, TestResult.SKIP) is not TestResult.SKIP
        ]
        return next(
            (a, b)
            # From the newest on: of several changes people look for the latest.
            for a, b in zip(known[-2::-1], known[::-1], strict=False)
            if self.answers[a] is not self.answers[b]
        )
