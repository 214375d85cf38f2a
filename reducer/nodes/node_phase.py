"""The node phase: from a whole model to the few nodes that the failure needs.

What the failure tells comes first (names in a message, the outputs that differ), then bisection of the topological order and a
neighbourhood that grows by graph distance, then a search for needed nodes one after the other, for triggers that lie far apart.
"""

import math
from collections.abc import Iterable
from functools import partial

from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.search import minimal_prefix, one_minimal, passing_prefix, quickxplain
from opsieve.reducer.nodes.localise import foci
from opsieve.reducer.oracle.interestingness import CheckResult
from opsieve.reducer.problem.graph import Graph, cut

ENOUGH = 6  # nodes that single edits deal with as cheaply
_FOCI = 3  # nodes whose neighbourhoods are tried
_SIZES = (4, 12)  # of those neighbourhoods
_HEAVY = 1 << 20  # bytes of a model of which each copy counts: then a few nodes are worth a search too
_GROWING = (
    2,
    4,
    8,
)  # of the neighbourhood of the last node that is needed; more nodes are faster searched than one_minimal out
_TAPS = 12  # further outputs that a probe asks for


class NodePhase:
    """One run of the phase on the engine's best subject. `text` is all that the compiler said when it failed."""

    def __init__(self, engine: Engine, text: str):
        self.engine = engine
        self.text = text
        self.graph = Graph(engine.best)

    def run(self) -> bool:
        """Replace the engine's best by fewer nodes; whether it was."""
        total = len(self.graph.nodes)
        if total <= (ENOUGH if self.engine.best.model.ByteSize() < _HEAVY else 2):
            return False
        self.engine.dimension = "nodes"
        found = self._hinted() or self._searched()
        found = one_minimal(found, self._test)
        return self.engine.improve(cut(self.graph, found, closure=True), f"keep {len(found)} of {total} nodes")

    def _evaluate(self, places: Iterable[int], tap: Iterable[str] = ()) -> CheckResult:
        kept = sorted(places)
        label = f"keep {len(kept)} nodes" + (" and show values between them" if tap else "")
        return self.engine.evaluate(cut(self.graph, kept, closure=True, tap=tap), label)

    def _test(self, places: list[int]) -> bool:
        return bool(places) and self._evaluate(places).kind == "same"

    def _prefetch(self, likely: list[list[int]]) -> None:
        self.engine.prefetch(
            (partial(cut, self.graph, places, closure=True), f"keep {len(places)} nodes, ahead") for places in likely
        )

    def _hinted(self) -> list[int] | None:
        """The neighbourhood of a node that the failure points at, when that is enough."""
        everything = range(len(self.graph.nodes))
        tried, exact = foci(self.graph, self.text)
        if exact and len(tried) > 1 and self._test(sorted(tried)):
            return sorted(tried)
        for size in _SIZES:
            for focus in tried[:_FOCI]:
                found = passing_prefix(self.graph.nearest([focus], everything), self._test, [size])
                if found:
                    return found
        return None

    def _narrowed(self) -> list[int] | None:
        """A region found by looking at which values differ first, for failures that are mismatches; not yet tried by itself."""
        everything = list(range(len(self.graph.nodes)))
        if not self.engine.answer.wrong:
            return None
        region = self._above(everything, self.engine.answer.wrong, ())
        while len(region) > 2 * ENOUGH:
            stride = max(3, math.ceil(len(region) / _TAPS))
            taps = [
                name for place in region[stride - 1 :: stride] for name in self.graph.nodes[place].output[:1] if name
            ]
            answer = self._evaluate(region, taps)
            if answer.kind != "same" or not answer.wrong:
                break  # a value that is shown can keep the failure away
            smaller = self._above(region, answer.wrong, taps)
            if len(smaller) == len(region):
                break
            region = smaller
        return region

    def _above(self, region: list[int], wrong: Iterable[str], taps: Iterable[str]) -> list[int]:
        """What the first wrong value depends on, without what right values depend on."""
        made = self.graph.producer
        bad = {made[name] for name in wrong if name in made}
        first = min(bad, default=region[-1])
        good = [made[name] for name in taps if made[name] not in bad and made[name] < first]
        inside = set(region)
        return sorted((self.graph.ancestors([first]) & inside) - (self.graph.ancestors(good) - {first}))

    def _searched(self) -> list[int]:
        """A small part of the graph that shows the failure."""
        region = self._narrowed()
        if region is not None:
            # The first value that is wrong comes from the last node of what computes it wrongly.
            found = passing_prefix(self.graph.nearest(region[-1:], region), self._test, _GROWING)
            if found:
                return found
        if region is None or not self._test(region):
            region = list(range(len(self.graph.nodes)))
        size = minimal_prefix(region, self._test, self._prefetch)
        last, rest = region[size - 1], region[: size - 1]
        found = passing_prefix(self.graph.nearest([last], region[:size]), self._test, _GROWING)
        return found or quickxplain([last], rest, self._test, self._prefetch)
