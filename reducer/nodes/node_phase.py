"""The node phase: from a whole model to the few nodes that the failure needs.

What the failure says comes first (names in a message, the outputs that differ), then the search of `opsieve.reducer.engine.subset_search`.
"""

import math
from collections.abc import Iterable, Sequence

from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.search import Places, passing_prefix
from opsieve.reducer.engine.subset_search import SubsetSearch
from opsieve.reducer.nodes.localise import foci
from opsieve.reducer.problem.graph import Graph, cut
from opsieve.reducer.problem.subject import Subject

ENOUGH = 6  # nodes that single edits deal with as cheaply
_FOCI = 3  # nodes whose neighbourhoods are tried
_SIZES = (4, 12)  # of those neighbourhoods
_HEAVY = 1 << 20  # bytes of a model of which each copy counts: then a few nodes are worth a search too
_GROWING = (
    2,
    4,
    8,
)  # of the neighbourhood of the last node that is needed; more are sooner searched than left out one by one
_TAPS = 12  # further outputs that a probe has


class NodePhase:
    """One run of the phase on the engine's best subject. `text` is all that the compiler said when it failed."""

    def __init__(self, engine: Engine[Subject], text: str):
        self.engine = engine
        self.text = text
        self.graph = Graph(engine.best)
        self.search = SubsetSearch(engine, self._kept, self.graph.nearest)

    def run(self) -> bool:
        """Replace the engine's best by fewer nodes; whether it was."""
        total = len(self.graph.nodes)
        if total <= (ENOUGH if self.engine.best.model.ByteSize() < _HEAVY else 2):
            return False
        self.engine.dimension = "nodes"
        found = self.search.minimal(self._hinted() or self._searched())
        return self.engine.improve(self._kept(found), f"keep {len(found)} of {total} nodes")

    def _kept(self, places: Sequence[int], tap: Iterable[str] = ()) -> Subject | None:
        return cut(self.graph, places, closure=True, tap=tap)

    def _hinted(self) -> Places | None:
        """The neighbourhood of a node that the failure points at, when that is enough."""
        everything = range(len(self.graph.nodes))
        tried, exact = foci(self.graph, self.text)
        if exact and len(tried) > 1 and self.search.test(sorted(tried)):
            return sorted(tried)
        for size in _SIZES:
            for focus in tried[:_FOCI]:
                if found := self.search.around(focus, size, everything):
                    return found
        return None

    def _narrowed(self) -> Places | None:
        """A region found by looking at which values differ first, for failures that are mismatches; not yet tried by itself."""
        everything = list(range(len(self.graph.nodes)))
        if not self.engine.result.wrong:
            return None
        region = self._above(everything, self.engine.result.wrong, ())
        while len(region) > 2 * ENOUGH:
            stride = max(3, math.ceil(len(region) / _TAPS))
            taps = [
                name for place in region[stride - 1 :: stride] for name in self.graph.nodes[place].output[:1] if name
            ]
            label = f"keep {len(region)} nodes and show values between them"
            result = self.engine.evaluate(self._kept(region, taps), label)
            if result.kind != "same" or not result.wrong:
                break  # a value that is shown can keep the failure away
            smaller = self._above(region, result.wrong, taps)
            if len(smaller) == len(region):
                break
            region = smaller
        return region

    def _above(self, region: Places, wrong: Iterable[str], taps: Iterable[str]) -> Places:
        """What the first wrong value depends on, without what right values depend on."""
        made = self.graph.producer
        bad = {made[name] for name in wrong if name in made}
        first = min(bad, default=region[-1])
        good = [made[name] for name in taps if made[name] not in bad and made[name] < first]
        inside = set(region)
        return sorted((self.graph.ancestors([first]) & inside) - (self.graph.ancestors(good) - {first}))

    def _searched(self) -> Places:
        """A small part of the graph that shows the failure."""
        region = self._narrowed()
        if region is not None:
            # The first value that is wrong comes from the last node of what computes it wrongly.
            order = self.graph.nearest(region[-1:], region)
            size, _ = passing_prefix(order, self.search.test, [size for size in _GROWING if size < len(order)])
            if size < len(order):
                return order[:size]
        if region is None or not self.search.test(region):
            region = list(range(len(self.graph.nodes)))
        return self.search.within(region)
