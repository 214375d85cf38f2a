"""Programs that depend only on the programs before them in their batch of seeds.

A strategy that learns from its programs (coverage, broken rules) learns within a batch, so any program can be
made again from its seed alone. Progress within the last batch is kept, so seeds in order cost nothing extra.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.generation.request import draw_nodes

Memory = TypeVar("Memory")
Made = TypeVar("Made")


class Batches(Generic[Memory, Made]):
    """Batches of `size` seeds. `blank` returns the memory at the start of a batch; `make` makes a program and
    records it in the memory.
    """

    def __init__(
        self, size: int, blank: Callable[[], Memory], make: Callable[[GenRequest, int, Memory], Made]
    ) -> None:
        self.size = size
        self._blank = blank
        self._make = make
        self._last: tuple[GenRequest, int, Memory] | None = (
            # The request, the next seed, and the memory of the seeds before it.
            None
        )

    def make_at(self, request: GenRequest, seed: int) -> Made:
        """Make the program of a seed after those before it in its batch, each with its own number of
        nodes.
        """
        # A drawn number of nodes differs from seed to seed, and must not start a new batch.
        same = request if request.between is None else replace(request, nodes=0)
        # After an exception the memory is incomplete, so it is dropped.
        last, self._last = self._last, None
        coming = seed - seed % self.size
        if last is not None and last[0] == same and coming < last[1] <= seed:
            _, coming, memory = last
        else:
            memory = self._blank()
        while coming < seed:
            self._make(draw_nodes(request, coming), coming, memory)
            coming += 1
        found = self._make(draw_nodes(request, seed), seed, memory)
        self._last = same, seed + 1, memory
        return found
