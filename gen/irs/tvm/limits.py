"""Limits on the size and depth of a graph of nodes, which may be hostile.

Shared nodes make a small text stand for a huge tree, and a deep tree overflows the stack of recursive code;
both are refused while the nodes are read, before any walk.
"""

from collections.abc import Callable, Iterable

# In the list
NODES = 2_000_000
# Nodes of the tree that the graph unfolds to
TREE = 50_000_000
# A nested branch takes about six
DEPTH = 400


class Measure:
    """Depth and unfolded size of each node of a list whose references go backwards."""

    def __init__(self, fail: Callable[[str], Exception]) -> None:
        self._fail = fail
        self._depths: list[int] = []
        self._sizes: list[int] = []

    def add(self, references: Iterable[int]) -> None:
        """The next node, which refers to these earlier ones."""
        depth, size = 1, 1
        for index in references:
            depth = max(depth, self._depths[index] + 1)
            size += self._sizes[index]
        self._depths.append(depth)
        self._sizes.append(size)
        if len(self._depths) > NODES or size > TREE:
            raise self._fail(f"the graph unfolds to more than {TREE:,} nodes")
        if depth > DEPTH:
            raise self._fail(f"the graph is nested more than {DEPTH} deep")
