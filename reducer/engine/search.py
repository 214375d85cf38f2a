"""Searches for a small set of items that passes a test, when the whole set does. Pure: the test is all they
know.

A test is run of a list of items and is taken to be monotone where that saves tests; what comes back always
passed it. Bisection of a prefix and growing over an order are those of the measured prototype
(docs/benchmarks/reduce.md); finding the needed items one after the other is the linear form of QuickXplain
(Junker 2004), each by bisection.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

Places = list[int]
Test = Callable[[Places], bool]
Prefetch = Callable[[Iterator[Places]], None]
# The number of items up to which sizes of prefixes double; beyond it they grow by the factor `_STEEP`.
_LARGE = 8
_STEEP = 4
_NEIGHBOURS = (
    # The number of items before a distant find that are tried first.
    4
)
# With more found items than this, a dense rest is returned whole.
_FEW = 3
# A rest is dense if it has at most this many items for each found one.
_DENSE = 3


def no_prefetch(likely: Iterator[Places]) -> None:
    """For tests that run one after the other."""


def minimal_prefix(
    order: Sequence[int],
    test: Test,
    prefetch: Prefetch = no_prefetch,
    *,
    known: int | None = None,
    failing: int = 0,
    weights: Sequence[float] | None = None,
) -> int:
    """Find the length of the smallest prefix of `order` that passes.

    The prefix of `known` items (all of them by default) is known to pass, that of `failing` items to fail.
    `weights` holds for each item of `order` how likely it is the last of that prefix: the bisection halves
    the likelihood, and an item with the share p is found in about log2(1/p) tests. `prefetch` gets the lists
    that may be tested next, whatever the results: the next one, then its two possible successors, and so on.
    """
    low, high = failing, len(order) if known is None else known
    before = [0.0, *accumulate(weights)] if weights else range(len(order) + 1)
    # Invariant: the prefix of `high` passes, that of `low` fails.
    while high - low > 1:
        prefetch(list(order[:size]) for size in _middles(low, high, before))
        middle = _middle(low, high, before)
        if test(list(order[:middle])):
            high = middle
        else:
            low = middle
    return high


def _middle(low: int, high: int, before: Sequence[float]) -> int:
    """Return the size between two others that halves their weight; `before` is the weight of a prefix by its
    size.
    """
    half = (before[low] + before[high]) / 2
    size = bisect_left(before, half, low + 1, high - 1)
    return size - 1 if size - 1 > low and half - before[size - 1] <= before[size] - half else size


def _middles(low: int, high: int, before: Sequence[float]) -> Iterator[int]:
    """Yield the sizes that a bisection may test, those that it tests soonest first."""
    # Breadth first: the next step of both outcomes is tested before a step beyond one of them.
    waiting = deque([(low, high)])
    while waiting:
        low, high = waiting.popleft()
        if high - low > 1:
            middle = _middle(low, high, before)
            yield middle
            waiting += [(low, middle), (middle, high)]


def prefix_sizes(count: int) -> list[int]:
    """Return the sizes of growing prefixes of `count` items that are worth a test: 1, 2, 4 and 8, then four
    times as many each time.
    """
    sizes, size = [], 1
    while size < count:
        sizes.append(size)
        size *= 2 if size < _LARGE else _STEEP
    return sizes


def passing_prefix(
    order: Sequence[int], test: Test, sizes: Sequence[int], prefetch: Prefetch = no_prefetch
) -> tuple[int, int]:
    """Return the first of these sizes whose prefix passes, and the size before it, which failed; the whole
    length if all fail.
    """
    failing = 0
    for place, size in enumerate(sizes):
        if size > len(order):
            break
        prefetch(list(order[:later]) for later in sizes[place:] if later <= len(order))
        if test(list(order[:size])):
            return size, failing
        failing = size
    return len(order), failing


@dataclass(frozen=True)
class _WithFixed:
    """A test of lists that some items are always part of."""

    fixed: Places
    test: Test

    def __call__(self, part: Places) -> bool:
        return self.test(self.fixed + part)


@dataclass(frozen=True)
class _PrefetchWithFixed:
    """Prefetches lists to which fixed places are added."""

    fixed: Places
    prefetch: Prefetch

    def __call__(self, likely: Iterator[Places]) -> None:
        self.prefetch(self.fixed + part for part in likely)


def smaller_window(order: Sequence[int], test: Test, prefetch: Prefetch = no_prefetch) -> Places | None:
    """Find a run of neighbours in `order` that passes and is at most half as long; returns `None` if the
    search fails. The whole of `order` passes.

    It is for lists so long that a test costs in proportion to their length: a bisection of prefixes keeps its
    lists long, while here each test costs half of the one before it. If a first half fails, the other half is
    assumed to pass, and is tested only after three such guesses. If they were wrong, the needed items lie
    across a cut, and the runs around the cuts are tested.
    """
    items = list(order)
    size = len(items)
    # 1/2 + 1/4 + 1/8 + 1/8: each guess takes half of what the failed ones leave.
    starts = [0, size // 2, size - size // 4, size - size // 8]
    guesses = [
        (low, high) for low, high in zip(starts, [*starts[1:], size], strict=True) if low < high < size
    ]
    across = [(size // 2, size), (size // 4, size // 4 + (size + 1) // 2)]
    runs = [*guesses, (starts[-1], size), *across]
    for place, (low, high) in enumerate(runs):
        prefetch(items[first:last] for first, last in runs[place:])
        if test(items[low:high]):
            return items[low:high]
    return None


def quickxplain(fixed: Places, rest: Places, test: Test, prefetch: Prefetch = no_prefetch) -> Places:
    """Find the items that are needed beside `fixed`, one after the other.

    `fixed` is known to fail alone, unless `rest` is empty, and to pass with all of `rest`. Each found item is
    the last one of the shortest prefix of `rest` that passes: at most log2(rest) tests per item, and one to
    check whether it was the last. `rest` may have any order; if needed items lie near the fixed ones, putting
    near items first makes the search cheap, because the prefix grows. After an item far away, the few before
    it are tested first, because patterns stand together, also at the end of the order. If the found items are
    dense, the remaining `rest` is returned whole: leaving out its items one by one is then cheaper.
    """
    fixed, rest = list(fixed), list(rest)
    far = False
    while rest:
        # Each further item would cost log2(rest) tests and its proof one, more than dropping the rest one by
        # one.
        if len(fixed) > _FEW and len(rest) <= _DENSE * len(fixed):
            return fixed + rest
        grown, more = _WithFixed(fixed, test), _PrefetchWithFixed(fixed, prefetch)
        if far:
            shorter = len(rest) - min(_NEIGHBOURS, len(rest) // 2)
            more(iter([rest[:shorter], rest[: shorter // 2]]))
            known, failing = (shorter, 0) if grown(rest[:shorter]) else (len(rest), shorter)
        else:
            sizes = [size for size in prefix_sizes(len(rest)) if size >= _LARGE]
            known, failing = passing_prefix(rest, grown, sizes, more)
        size = minimal_prefix(rest, grown, more, known=known, failing=failing)
        # Further needed items lie as likely beside it as near the beginning.
        far = size > _LARGE
        fixed = [*fixed, rest[size - 1]]
        rest = rest[: size - 1]
        if rest and test(fixed):
            break
    return fixed


def one_minimal(items: Sequence[int], test: Test, prefetch: Prefetch = no_prefetch) -> Places:
    """Remove items while the test passes, the last ones first: in chunks of a quarter, then one by one.

    Every remaining item is needed, as long as the test is monotone.
    """
    left = list(items)
    # With six items or fewer, a failed chunk costs as much as it could save.
    size = max(1, len(left) // 4) if len(left) > 6 else 1
    end = len(left)
    while end > 0:
        prefetch(
            left[: max(0, later - size)] + left[later:]
            for later in range(end, 0, -size)
            if len(left) > min(size, later)
        )
        start = max(0, end - size)
        rest = left[:start] + left[end:]
        if rest and test(rest):
            left, end = rest, start
        elif size > 1 and end - start > 1:
            size = max(1, (end - start) // 2)
        else:
            # This item is needed: go on before it.
            end = start
            size = max(size, 1)
    return left
