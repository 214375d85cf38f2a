"""The state of a program under construction: tensors that nodes may read, connected pieces, and totals."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from opsieve.gen.declarations.builder import FREE, Budget, Style
from opsieve.gen.declarations.catalogue import OpTable
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import ANY, LARGEST, Attributes, Domain, Number, Tensor
from opsieve.gen.graph.graph import Shape


class Pieces:
    """Sets of results that nodes connect. `count` is the number of sets that hold a node of the main
    graph.
    """

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._main: set[str] = set()
        self.count = 0

    def find_root(self, name: str) -> str:
        """Return the result that represents the piece of another."""
        parent = self._parent
        top = parent.setdefault(name, name)
        while top != parent[top]:
            # Path halving: later look-ups take half as many steps.
            parent[top] = parent[parent[top]]
            top = parent[top]
        parent[name] = top
        return top

    def is_apart(self, name: str, root: str) -> bool:
        """Return whether a result belongs to another piece than the one of `root`."""
        return self._parent.get(name) != root and self.find_root(name) != root

    def connect(self, names: Iterable[str], main: bool) -> None:
        """Connect these results; with `main` a node of the main graph makes or reads them."""
        parent, mains, top, held = self._parent, self._main, "", 0
        for name in names:
            # A new name is a result of this node and joins the piece of its inputs.
            if name not in parent:
                top = top or name
                parent[name] = top
                continue
            root = self.find_root(name)
            if root == top:
                continue
            if root in mains:
                held += 1
            if top:
                mains.discard(root)
                parent[root] = top
            else:
                top = root
        if top and (held or main):
            mains.add(top)
            self.count += 1 - held


# Draws before a search gives up: the time of an answer must not grow with the program.
_TRIES: Final = 3
# Searching all results would cost time in proportion to the program.
_RECENT: Final = 8
BY_DEPTH: Final = operator.attrgetter("depth")
# The dtypes of numbers.
NUMERIC: Final = LARGEST.keys() - {"string"}


class TensorScope:
    """Existing tensors.

    With `ranged`, tensors outside the requested domain are skipped. `loose` are tensors without a reader at
    their entry; some have been read since. `recent` are the last numeric results.
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
        """The number of graphs around this one."""
        return 0 if self.outer is None else 1 + self.outer.depth

    def find_deepest(self) -> Tensor | None:
        """Return the recent result that the most nodes lead to: the end of the longest path."""
        recent = self.recent[-_RECENT:]
        return max(recent, key=BY_DEPTH) if recent else None

    def add_tensor(self, tensor: Tensor) -> None:
        """Add a tensor, so that later nodes can read it."""
        dtype, shape = tensor.dtype, tensor.shape
        self.pools[dtype, len(shape)].append(tensor)
        self.shapes[dtype, shape].append(tensor)
        self.loose.append(tensor)
        if not tensor.leaf and dtype in NUMERIC:
            self.recent.append(tensor)
            # Cut in blocks, so that adding a tensor takes constant time on average.
            if len(self.recent) > 2 * _RECENT:
                del self.recent[:_RECENT]

    def remove_tensor(self, tensor: Tensor) -> None:
        """Remove a result whose node is removed."""
        pools = self.pools[tensor.dtype, tensor.rank], self.shapes[tensor.dtype, tensor.shape]
        for known in (*pools, self.loose, self.recent):
            # Usually the removed tensor was added last.
            if known and known[-1] is tensor:
                known.pop()
            elif tensor in known:
                known.remove(tensor)

    def pick(
        self, dtypes: frozenset[str], low: int, high: int, safe: Domain = ANY, unread: bool = True
    ) -> Tensor | None:
        """Return a tensor of one of the dtypes, with `low` to `high` dimensions, inside a domain; None if the
        search finds none.

        With `unread`, tensors without a reader are preferred, so that graphs are connected.
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
                # Tensors that were read since are removed lazily, by swapping with the last: constant time.
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
        """Return a tensor of this dtype and shape (FREE fits any size) inside the domain, preferably a
        result; None if the search finds none.
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

    def list_of_rank(self, dtype: str, rank: int) -> list[Tensor]:
        """List the tensors of a dtype and rank in this graph."""
        return self.pools.get((dtype, rank), [])


def is_numeric_result(tensor: Tensor) -> bool:
    """Return whether a tensor is a numeric result with elements, which adapters can bring into most types."""
    return not tensor.leaf and tensor.dtype in NUMERIC and 0 not in tensor.shape


_NO_CHOICES: Final = OpTable()
Supports = Callable[[Operator, Sequence[Tensor | None], Attributes, int], bool]


class ProgramState:
    """The settings of a program, its leaves, and its size so far.

    `supports` tells whether the compilers under test support an instance. `only` are the requested operators
    (None: all), `choices` those that bodies are grown from, `plant` adds a rewrite to some bodies (None:
    none). `inner` counts the nodes inside bodies. `exposed` are tensors that become outputs although nodes
    read them. `states` names the states of rewrites that are built (gen/strategies/patterns). `opened` says
    that sizes will be left open. `leaves` are inputs, initializers and constants; `numbers` those with known
    numbers. `held` maps names of leaves to the elements that a model gave them: they are written unchanged.
    """

    def __init__(self, rng: Rng, opset: int, style: Style, budget: Budget) -> None:
        self.rng = rng
        self.opset = opset
        self.style = style
        self.budget = budget
        self.supports: Supports | None = None
        self.only: frozenset[str] | None = None
        self.choices: OpTable = _NO_CHOICES
        self.plant: Callable[[Any], object] | None = None
        self.leaves: list[Tensor] = []
        self.numbers: dict[tuple[str, Shape, tuple[Number, ...]], Tensor] = {}
        self.held: dict[str, Any] = {}
        self.exposed: list[Tensor] = []
        self.states: list[str] = []
        self.has_input = False
        self.opened = False
        self.count = 0
        self.inner = 0
        self.elements = 0
        self.work = 0
        self.pieces = Pieces()

    def make_name(self, kind: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{kind}{self.count}"
