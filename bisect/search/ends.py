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


@dataclass(frozen=True, slots=True)
class Ends:
    """Two versions that were tested and differ, `old` before `new`; or `trouble` says why there are none.

    `always`: bad in every version tested; `never`: good in every one; `untestable`: no version could be
    tested. `wrong` holds the versions that were named an end and are not what they were named for, with their
    answers. `answers` is all that was tested.
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
    chance: float | ReproductionRate = 1.0,
    confidence: float = 0.99,
    ask_good_once: bool = True,
    known: Mapping[int, TestResult] = MappingProxyType({}),
) -> Round:
    """Yield lists of versions to test out of `count`, get their answers, return the ends.

    `good` and `bad` are what the user named. The older of them is the old end; without a name it is the
    oldest version or the newest. Where both are named nothing outside of them is tested. An untestable end
    moves inward, half the way each time, for versions too old or too new for a question stand together. With
    `chance` below 1 an end is asked until it is bad, or until it is good with `confidence`; the good end only
    once with `ask_good_once` (for a search that doubts it itself). What is `known` is not asked again: a
    version that failed once stays bad.
    """
    most = count_good_runs(chance, confidence)
    return (yield from _Settling(count, good, bad, most, ask_good_once, known).run())


class _Settling:
    def __init__(
        self,
        count: int,
        good: int | None,
        bad: int | None,
        most: int,
        once: bool,
        known: Mapping[int, TestResult],
    ):
        self.good, self.bad, self.last, self.most, self.once = good, bad, count - 1, most, once
        self.answers = dict(known)

    def run(self) -> Round:
        for old, new in self.pairs():
            yield from self.test(old, new)
            old, new = yield from self.testable(old, new)
            if self.answers[old] is TestResult.SKIP:
                return self.outcome(old, new, "untestable")
            if self.answers[old] is not self.answers[new]:
                return self.outcome(old, new)
        return self.outcome(old, new)

    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of ends to try, in order."""
        if self.good is not None and self.bad is not None:
            return [(min(self.good, self.bad), max(self.good, self.bad))]
        if self.bad is not None:  # it came some time before; else it went some time after
            return [(0, self.bad), (self.bad, self.last)]
        if self.good is not None:
            return [(self.good, self.last), (0, self.good)]
        return [(0, self.last)]

    def test(self, *versions: int) -> Testing:
        """Have the answers of these versions; one that may be bad though it looked good is asked again."""
        wanted = [version for version in dict.fromkeys(versions) if version not in self.answers]
        if wanted:
            answers = yield wanted
            self.answers.update(zip(wanted, answers, strict=True))
        for version in wanted:
            for _ in range(self.most - 1):
                if self.answers[version] is not TestResult.GOOD or (self.once and version == self.good):
                    break
                (self.answers[version],) = yield [version]

    def testable(self, old: int, new: int) -> Moving:
        """Move an untestable end inward; the same version twice when all testable ones give one answer."""
        if self.answers[old] is TestResult.SKIP and self.answers[new] is TestResult.SKIP:
            middle = yield from self.any_testable(old, new)
            if middle is None:
                return old, new
            older = yield from self.inward(old, middle)
            if self.answers[older[0]] is not self.answers[older[1]]:
                return older
            newer = yield from self.inward(new, middle)
            return newer[1], newer[0]
        if self.answers[old] is TestResult.SKIP:
            return (yield from self.inward(old, new))
        if self.answers[new] is TestResult.SKIP:
            new, old = yield from self.inward(new, old)
        return old, new

    def any_testable(self, old: int, new: int) -> Generator[list[int], list[TestResult], int | None]:
        """A version between that can be tested: halves first, then quarters, and so on."""
        step = new - old
        while step > 1:
            half = step // 2
            for version in range(old + half, new, step):
                yield from self.test(version)
                if self.answers[version] is not TestResult.SKIP:
                    return version
            step = half
        return None

    def inward(self, bare: int, known: int) -> Moving:
        """The end in place of the untestable `bare`, and what replaces `known`.

        The two differ, and all asked between `known` and its replacement are equal; or both are the testable
        one next to `bare`.
        """
        furthest = known
        while abs(furthest - bare) > 1:
            middle = (furthest + bare) // 2
            yield from self.test(middle)
            if self.answers[middle] is TestResult.SKIP:
                bare = middle
            elif self.answers[middle] is not self.answers[known]:
                return middle, furthest
            else:
                furthest = middle
        return furthest, furthest

    def outcome(self, old: int, new: int, trouble: Trouble = "") -> Ends:
        answers = self.answers
        named = ((self.good, TestResult.GOOD), (self.bad, TestResult.BAD))
        wrong = tuple(
            (end, answers[end]) for end, right in named if end is not None and answers[end] is not right
        )
        if not trouble and answers[old] is answers[new]:
            trouble = "always" if answers[old] is TestResult.BAD else "never"
        if not trouble:
            old, new = self.nearest(old, new)
        direction = Direction.REGRESSION if answers[old] is TestResult.GOOD else Direction.FIX
        return Ends(old, new, direction, trouble, wrong, answers)

    def nearest(self, old: int, new: int) -> tuple[int, int]:
        """Of two ends that differ, the newest two in between that differ and have no other testable version
        known between.
        """
        known = [
            v for v in range(old, new + 1) if self.answers.get(v, TestResult.SKIP) is not TestResult.SKIP
        ]
        return next(
            (a, b)
            for a, b in zip(known[-2::-1], known[::-1], strict=False)
            if self.answers[a] is not self.answers[b]
        )
