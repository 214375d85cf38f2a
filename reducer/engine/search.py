"""Searches for a small set of items that passes a test, when the whole set does. Pure: the test is all they know.

A test is asked of a list of items and is taken to be monotone where that saves questions; what comes back always passed the test.
Bisection of a prefix and growing over an order are those of the measured prototype (docs/benchmarks/reduce.md); finding the needed items one
after the other is the linear form of QuickXplain (Junker 2004), each by bisection.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Places = list[int]
Test = Callable[[Places], bool]
Prefetch = Callable[[list[Places]], None]


def minimal_prefix(order: Sequence[int], test: Test, ahead: Prefetch = lambda likely: None) -> int:
    """How many items of `order`, from its beginning, the smallest prefix has that passes; the whole is known to pass.

    `ahead` hears of the lists that are tested next, whatever the answers.
    """
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        ahead([list(order[:size]) for size in (middle, (low + middle) // 2, (middle + high) // 2) if size > low])
        if test(list(order[:middle])):
            high = middle
        else:
            low = middle
    return high


def passing_prefix(order: Sequence[int], test: Test, sizes: Sequence[int]) -> Places | None:
    """The first prefix of one of these sizes that passes; None when none does."""
    for size in sizes:
        if size > len(order):
            break
        if test(list(order[:size])):
            return list(order[:size])
    return None


@dataclass(frozen=True)
class _WithFixed:
    """A test of lists that some items are always part of."""

    fixed: Places
    test: Test

    def __call__(self, part: Places) -> bool:
        return self.test(self.fixed + part)


@dataclass(frozen=True)
class _PrefetchWithFixed:
    """What hears of such lists."""

    fixed: Places
    ahead: Prefetch

    def __call__(self, likely: list[Places]) -> None:
        self.ahead([self.fixed + part for part in likely])


def quickxplain(fixed: Places, rest: Places, test: Test, ahead: Prefetch = lambda likely: None) -> Places:
    """The items that are needed beside `fixed`, found one after the other.

    `fixed` is known to fail alone, unless `rest` is empty, and to pass with all of `rest`. The item that is found is the last one of the shortest prefix of `rest` that passes. It costs log2(rest) questions an item, and
    one to see whether it was the last.
    """
    fixed, rest = list(fixed), list(rest)
    while rest:
        size = minimal_prefix(rest, _WithFixed(fixed, test), _PrefetchWithFixed(fixed, ahead))
        fixed = [*fixed, rest[size - 1]]
        rest = rest[: size - 1]
        if test(fixed):
            break
    return fixed


def one_minimal(items: Sequence[int], test: Test) -> Places:
    """The items without those that can go, the last ones tried first: in chunks of a quarter, then one by one.

    No single item of what comes back can go, as long as the test is monotone.
    """
    left = list(items)
    size = max(1, len(left) // 4) if len(left) > 6 else 1
    end = len(left)
    while end > 0:
        start = max(0, end - size)
        rest = left[:start] + left[end:]
        if rest and test(rest):
            left, end = rest, start
        elif size > 1 and end - start > 1:
            size = max(1, (end - start) // 2)
        else:
            end = start
            size = max(size, 1)
    return left
