"""Programs that depend on those before them in their batch of seeds, and on nothing else.

A strategy that learns from what it made (what is covered, what was broken) learns within a batch only, so
that any program can be made again from its seed alone. Who asks for seeds in order pays nothing for that: how
far the last batch has come is kept.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.generation.request import draw_nodes

Memory = TypeVar("Memory")
Made = TypeVar("Made")


class Batches(Generic[Memory, Made]):
    """Batches of `size` seeds. `blank` gives the memory that a batch begins with, `make` one program, and
    notes it in the memory.
    """

    def __init__(
        self, size: int, blank: Callable[[], Memory], make: Callable[[GenRequest, int, Memory], Made]
    ) -> None:
        self.size = size
        self._blank = blank
        self._make = make
        self._last: tuple[GenRequest, int, Memory] | None = (
            None  # the request, the seed that comes next, the memory of those before it
        )

    def made(self, request: GenRequest, seed: int) -> Made:
        """What `make` gives for a seed after those before it in its batch, each with its own number of
        nodes.
        """
        same = request if request.between is None else replace(request, nodes=0)
        last, self._last = self._last, None  # what ends in an exception leaves no memory behind
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
