"""Random choices that depend on the seed only: on every machine, release of Python and hash seed."""

import functools
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Rng:
    """Choices for one program. Python promises that `random()` of a seeded generator gives the same numbers
    for good.

    `bins` is NNSmith's k (section 4.3): numbers are drawn from bins of exponential width, [1, 2), [2, 4), ...
    k of them, so that small and large ones are equally likely; 0 draws uniformly.
    """

    __slots__ = ("bins", "random")

    def __init__(self, seed: int | str, bins: int = 7) -> None:
        # Only `random` is used: Python does not promise the numbers of `randint` or `choice` across releases.
        self.random = random.Random(seed).random
        self.bins = bins

    def below(self, count: int) -> int:
        """Draw a number from 0 to `count` - 1."""
        return int(self.random() * count)

    def between(self, low: int, high: int) -> int:
        """Draw a number from `low` to `high`, both included, all equally likely."""
        return low + int(self.random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        """Return True at the given rate: 0.25 is once in four."""
        return self.random() < share

    def choice(self, items: Sequence[T]) -> T:
        """Draw one of the items."""
        return items[int(self.random() * len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Draw `count` different items, in their order."""
        left = list(range(len(items)))
        chosen = sorted(left.pop(self.below(len(left))) for _ in range(count))
        return [items[place] for place in chosen]

    def shuffle_items(self, items: Sequence[T]) -> list[T]:
        """Return the items in random order."""
        random, left = self.random, list(items)
        return [left.pop(int(random() * count)) for count in range(len(left), 0, -1)]

    def draw_binned(self, low: int, high: int) -> int:
        """Draw a number from `low` (at least 0) to `high`, both included, by bins of exponential width."""
        bins = _bins(low, high, self.bins)
        first, width = bins[int(self.random() * len(bins))]
        return first + int(self.random() * width)


@functools.lru_cache(maxsize=4096)
def _bins(low: int, high: int, count: int) -> tuple[tuple[int, int], ...]:
    """Return the first number and the width of each bin; 0 has one of its own, and the last is open."""
    if high <= low or not count:
        return ((low, max(high - low, 0) + 1),)
    found = [(0, 1)] if low == 0 else []
    bottom = max(low, 1).bit_length() - 1
    for place in range(bottom, min(high.bit_length(), bottom + count)):
        first = max(low, 1 << place)
        last = min(high, (2 << place) - 1) if place < bottom + count - 1 else high
        found.append((first, last - first + 1))
    return tuple(found)
