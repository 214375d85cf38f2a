"""The choices of the baselines, apart from those of the core: Isra's own script was run on the models that
they lead to.
"""

from collections.abc import Sequence
from typing import TypeVar

from opsieve.gen.data.inputs import Stream

T = TypeVar("T")


class StreamRng:
    """Choices that depend on the seed only, on every machine and release of numpy and Python."""

    def __init__(self, seed: int) -> None:
        self._stream = Stream(seed, "small program")
        self._block: list[int] = []

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        if not self._block:
            self._block = self._stream.integers(0, 2**62 - 1, 256).tolist()
        return self._block.pop() % count

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True that often of a hundred."""
        return self.below(100) < percent

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items, in their order."""
        left = list(range(len(items)))
        chosen = sorted(left.pop(self.below(len(left))) for _ in range(count))
        return [items[place] for place in chosen]
