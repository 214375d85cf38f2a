"""The node phase: from a whole model to the few nodes that the failure needs.

What the failure says comes first (what the optimiser rewrote there, names in a message, the outputs that
differ), then the search of `opsieve.reducer.engine.subset_search`.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import onnx

from opsieve.gen.irs.onnx import edits, view
from opsieve.gen.model.printable import count_noun
from opsieve.gen.model.structure import is_static
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.search import Places, passing_prefix, smaller_window
from opsieve.reducer.engine.subset_search import MANY, SubsetSearch
from opsieve.reducer.nodes.localise import beside, hint, likelihood, made_into, rewritten
from opsieve.reducer.onnx_edit.inference import infer, types_of, without_types

# The number of nodes up to which single edits are as cheap as a search.
ENOUGH = 6
# The number of nodes whose neighbourhoods are tried.
_FOCI = 3
# The sizes of those neighbourhoods.
_SIZES = (4, 12)
# The model size, in bytes, from which on each copy is expensive, so that even a few nodes are worth a search.
_HEAVY = 1 << 20
# Sizes of the neighbourhood of the last needed node. Larger ones are cheaper to search than to reduce node by
# node.
_GROWING = (
    2,
    4,
    8,
)
# The most nodes that an optimiser fuses into one; a larger group says little.
_FUSED = 16
# The number of groups whose results are exposed at once.
_SHOWN = 96
# The number of nodes from which, for a wrong result, testing half of the model is cheaper than asking for the
# optimised graph and exposing values.
_TRACED = 20_000
# The number of intermediate values that a probe exposes. More would keep the optimiser from fusing nodes.
_TAPS = 12


class NodePhase:
    """One run of the phase on the engine's best subject. `text` is the compiler's whole output of the
    failure; `optimised` requests its optimised graph.
    """

    def __init__(
        self,
        engine: Engine[view.Subject],
        text: str,
        optimised: Callable[[view.Subject], onnx.GraphProto | None] = lambda _: None,
    ):
        self.engine = engine
        self.text = text
        self.optimised = optimised
        self._begin()

    def _begin(self) -> None:
        model = self.engine.best.model
        self.graph = view.Graph(self.engine.best)
        # A value that becomes an input keeps sizes that the whole model leaves open.
        found = (
            infer(without_types(model, {}), strict=False)
            if model.ByteSize() < _HEAVY and not all(is_static(info.type) for info in model.graph.input)
            else None
        )
        if found is not None:
            self.graph.__dict__["declared"] = types_of(found.graph) | dict(self.graph.declared)
        self.search = SubsetSearch(
            self.engine, self._cut_nodes, self.graph.nearest, likely=likelihood(self.graph, ())
        )

    def run(self) -> bool:
        """Replace the engine's best by fewer nodes; returns whether that succeeded."""
        total = len(self.graph.nodes)
        if total <= (ENOUGH if self.engine.best.model.ByteSize() < _HEAVY else 2):
            return False
        self.engine.dimension = "nodes"
        while len(self.graph.nodes) > _TRACED and self.engine.result.wrong and self._halve_graph():
            self._begin()
        found = (
            self._rewritten() or self._search_hinted() or self._trace_wrong_value() or self._search_graph()
        )
        if len(found) > ENOUGH:
            found = self.search.minimal(found)
        return self.engine.improve(
            self._cut_nodes(found), f"keep {len(found)} of {count_noun(total, 'node')}"
        )

    def _cut_nodes(self, places: Sequence[int], tap: Iterable[str] = ()) -> view.Subject | None:
        return edits.cut(self.graph, places, closure=True, tap=tap)

    def _rewritten(self) -> Places | None:
        """Try the nodes that the optimiser fused at the place of the failure; returns them if they
        suffice.
        """
        graph = self.optimised(self.engine.best)
        groups = [] if graph is None else rewritten(self.graph, graph)
        if graph is None or not groups:
            return None
        self.search.likely = likelihood(self.graph, groups)
        if self.engine.result.wrong:
            found = self._first_wrong(groups)
        else:
            named = hint(self.graph, self.text).foci
            found = next((group for focus in named for group in groups if focus in group), None)
            found = found or made_into(self.graph, graph, self.text, groups)
        for places in () if found is None else (found, beside(self.graph, found, groups)):
            if len(places) <= _FUSED and self.search.test(places):
                return places
        return None

    def _first_wrong(self, groups: Sequence[Places]) -> Places | None:
        """Find the first of these groups that produces a wrong value. It exposes the results of a sample of
        groups, and then again of those between the last right and the first wrong value.
        """
        region = self._above(range(len(self.graph.nodes)), self.engine.result.wrong, ())
        while True:
            inside = set(region)
            groups = [group for group in groups if group[-1] in inside]
            if len(groups) <= 1:
                return groups[0] if groups else None
            stride = math.ceil(len(groups) / _SHOWN)
            # Counted from the back, so that the last group is always among them.
            shown = groups[::-1][::stride][::-1]
            taps = [name for group in shown for name in self.graph.results[group[-1]][:1]]
            result = self.engine.evaluate(
                self._cut_nodes(region, taps),
                f"keep {count_noun(len(region), 'node')} and show what was rewritten",
            )
            if result.kind != "same":
                return None
            wrong = {*result.wrong, *self.engine.result.wrong}
            bad = [group for group in shown if not wrong.isdisjoint(self.graph.results[group[-1]])] or groups[
                -1:
            ]
            smaller = self._above(region, self.graph.results[bad[0][-1]], taps)
            if stride == 1 or len(smaller) == len(region):
                return bad[0]
            region = smaller

    def _search_hinted(self) -> Places | None:
        """Try the neighbourhood of a node that the failure points at; returns it if it suffices."""
        everything = range(len(self.graph.nodes))
        found = hint(self.graph, self.text)
        tried = found.foci
        if len(everything) > MANY:
            self._record_around(tried[:_FOCI])
        for places in (found.enough, sorted(tried) if found.exact and len(tried) > 1 else []):
            if places and len(places) <= _FUSED and self.search.test(places):
                return places
        for size in _SIZES:
            for focus in tried[:_FOCI]:
                near = self.graph.nearest([focus], everything, size)
                if self.search.test(near):
                    return near
        return None

    def _record_around(self, tried: Places) -> None:
        """Record in one run of the whole model the inputs and results of the nodes' neighbourhoods."""
        everything = range(len(self.graph.nodes))
        near = {place for focus in tried for place in self.graph.nearest([focus], everything, _SIZES[-1])}
        wanted = {name for place in near for name in (*self.graph.reads[place], *self.graph.results[place])}
        edits.want(self.graph, [name for name in self.graph.producer if name in wanted])

    def _narrow_by_values(self) -> Places | None:
        """Find a region by comparing values, for mismatches; it is not tested by itself yet."""
        everything = range(len(self.graph.nodes))
        if not self.engine.result.wrong:
            return None
        region = self._above(everything, self.engine.result.wrong, ())
        while len(region) > 2 * ENOUGH:
            stride = max(3, math.ceil(len(region) / _TAPS))
            taps = [
                name
                for place in region[stride - 1 :: stride]
                for name in self.graph.nodes[place].output[:1]
                if name
            ]
            label = f"keep {count_noun(len(region), 'node')} and show values between them"
            result = self.engine.evaluate(self._cut_nodes(region, taps), label)
            if result.kind != "same" or not result.wrong:
                # Exposing a value can prevent the fusion that fails.
                break
            smaller = self._above(region, result.wrong, taps)
            if len(smaller) == len(region):
                break
            region = smaller
        return region

    def _above(self, region: Sequence[int], wrong: Iterable[str], taps: Iterable[str]) -> Places:
        """Return the ancestors of the first wrong value, without the ancestors of right values."""
        made = self.graph.producer
        bad = {made[name] for name in wrong if name in made}
        first = min(bad, default=region[-1])
        good = [made[name] for name in taps if made[name] not in bad and made[name] < first]
        inside = set(region)
        return sorted((self.graph.ancestors([first]) & inside) - (self.graph.ancestors(good) - {first}))

    def _trace_wrong_value(self) -> Places | None:
        """Find the nodes that compute the first wrong value, for mismatches; returns them if they show the
        failure.
        """
        region = self._narrow_by_values()
        if region is None:
            return None
        # The first wrong value comes from the last node of the faulty group, so the group ends there.
        order = self.graph.nearest(region[-1:], region, _GROWING[-1])
        sizes = [size for size in _GROWING if size < len(region)]
        size, failed = passing_prefix(order, self.search.test, sizes)
        if failed < size < len(region):
            return order[:size]
        return self.search.within(region) if self.search.test(region) else None

    def _search_graph(self) -> Places:
        """Search a small part of the graph that shows the failure."""
        while len(self.graph.nodes) > MANY and self._halve_graph():
            self._begin()
        return self.search.within(list(range(len(self.graph.nodes))))

    def _halve_graph(self) -> bool:
        """Replace the engine's best by a run of its nodes, with its values recorded again, because later
        steps cost in proportion to its size.
        """
        total = len(self.graph.nodes)
        found = smaller_window(range(total), self.search.test, self.search.prefetch)
        if found is None or not self.engine.improve(
            self._cut_nodes(found), f"keep {len(found)} of {count_noun(total, 'node')}"
        ):
            return False
        self.engine.refresh()
        return True
