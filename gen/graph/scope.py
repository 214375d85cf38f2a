"""The tensors that nodes of one graph may read, indexed by type: the program's, or a body's and those of the
graphs around it.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import Final

from opsieve.gen.declarations.builder import FREE
from opsieve.gen.declarations.domains import ANY, Domain
from opsieve.gen.declarations.dtype_facts import LARGEST
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.graph.graph import Shape

_TRIES: Final = 3
_RECENT: Final = 8
BY_DEPTH: Final = operator.attrgetter("depth")
NUMERIC: Final = LARGEST.keys() - {"string"}  # dtypes of numbers


class TensorScope:
    """Existing tensors. With `ranged` one outside of the domain that is asked for is passed over.

    `loose` are those that no node reads yet; some have been read since they were entered. `recent` are the
    last results of numbers.
    """

    def __init__(self, rng: Rng, ranged: bool, outer: TensorScope | None = None) -> None:
        self.rng = rng
        self.ranged = ranged
        self.outer = outer
        self.loose: list[Tensor] = []
        self.recent: list[Tensor] = []
        self.pools: defaultdict[tuple[str, int], list[Tensor]] = defaultdict(list)
        self.shapes: defaultdict[tuple[str, Shape], list[Tensor]] = defaultdict(list)

    @property
    def depth(self) -> int:
        """How many graphs are around it."""
        return 0 if self.outer is None else 1 + self.outer.depth

    def deepest(self) -> Tensor | None:
        """Of the last results the one that most nodes lead to: where the longest path goes on."""
        recent = self.recent[-_RECENT:]
        return max(recent, key=BY_DEPTH) if recent else None

    def enter(self, tensor: Tensor) -> None:
        """Make a tensor known, so that later nodes can read it."""
        dtype, shape = tensor.dtype, tensor.shape
        self.pools[dtype, len(shape)].append(tensor)
        self.shapes[dtype, shape].append(tensor)
        self.loose.append(tensor)
        if not tensor.leaf and dtype in NUMERIC:
            self.recent.append(tensor)
            if len(self.recent) > 2 * _RECENT:
                del self.recent[:_RECENT]

    def forget(self, tensor: Tensor) -> None:
        """Take back a result, whose node is taken back."""
        pools = self.pools[tensor.dtype, tensor.rank], self.shapes[tensor.dtype, tensor.shape]
        for known in (*pools, self.loose, self.recent):
            if known and known[-1] is tensor:  # mostly: what is taken back came last
                known.pop()
            elif tensor in known:
                known.remove(tensor)

    def pick(
        self, dtypes: frozenset[str], low: int, high: int, safe: Domain = ANY, unread: bool = True
    ) -> Tensor | None:
        """A tensor of one of the dtypes and `low` to `high` dimensions, inside a domain; None when none is
        met.

        With `unread` one that nobody reads yet is preferred: graphs hang together so.
        """
        ranged = self.ranged and safe is not ANY
        found = self._pick_loose(dtypes, low, high, safe if ranged else None) if unread else None
        if found is not None:
            return found
        pools = [
            pool
            for (dtype, rank), pool in self.pools.items()
            if pool and dtype in dtypes and low <= rank <= high
        ]
        if not pools:
            return self.outer.pick(dtypes, low, high, safe, unread) if self.outer else None
        random = self.rng.random
        for _ in range(_TRIES):
            pool = pools[int(random() * len(pools))]
            tensor = pool[int(random() * len(pool))]
            if not ranged or tensor.within(safe):
                return tensor
        return None

    def _pick_loose(self, dtypes: frozenset[str], low: int, high: int, safe: Domain | None) -> Tensor | None:
        random, loose = self.rng.random, self.loose
        tries = _TRIES
        while loose and tries:
            tries -= 1
            place = int(random() * len(loose))
            tensor = loose[place]
            if tensor.reads:
                loose[place] = loose[-1]
                loose.pop()
                tries += 1
            elif (
                tensor.dtype in dtypes
                and low <= len(tensor.shape) <= high
                and (safe is None or tensor.within(safe))
            ):
                return tensor
        return None

    def match(self, dtype: str, shape: Shape, domain: Domain = ANY) -> Tensor | None:
        """A tensor of this dtype and shape (FREE sizes fit anything) inside the domain, a result rather than
        a leaf; None when none is met.
        """
        ranged = self.ranged and domain is not ANY
        free = FREE in shape
        pool = self.pools.get((dtype, len(shape))) if free else self.shapes.get((dtype, shape))
        if not pool:
            return self.outer.match(dtype, shape, domain) if self.outer else None
        leaf = None
        for _ in range(_TRIES):
            tensor = pool[int(self.rng.random() * len(pool))]
            if ranged and not tensor.within(domain):
                continue
            if not free or all(a in (FREE, b) for a, b in zip(shape, tensor.shape, strict=True)):
                if not tensor.leaf:
                    return tensor
                leaf = tensor
        return leaf

    def of_rank(self, dtype: str, rank: int) -> list[Tensor]:
        """The tensors of a dtype and rank in this graph."""
        return self.pools.get((dtype, rank), [])


def is_numeric_result(tensor: Tensor) -> bool:
    """Whether it is a result of numbers, which can be made fit for most operators; of what is empty hardly
    anything can be made.
    """
    return not tensor.leaf and tensor.dtype in NUMERIC and 0 not in tensor.shape
