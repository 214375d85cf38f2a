"""The eleven metrics of Isra's evaluation (its paper, section IV.C; the formulas are those of its source,
which tells more).

C is a corpus, n its size; only nodes of its operators count. Of an operator o, over all models:

    OTC  1 when o occurs
    IDC  distinct input counts seen / input counts that C allows; counts are held inside C's range
    ODC  distinct output degrees seen: one for each reading of an output and for an output that nobody reads,
    without the readings
         by operators outside C, held between 1 and 12
    SEC  distinct operators that read what o makes / n
    DEC  distinct pairs (p, q) such that p reads what o makes and q what p makes / n²
    SAC  distinct lists of attributes, the empty one left out, + distinct shapes of single inputs

and the metric is the mean over C, where an operator that does not occur has 0. Of a graph:

    NOO  nodes          NOT  distinct operators
    NOP  distinct pairs of operators along an edge          NTR  distinct triples along two edges that meet
    NSA  distinct shapes of the nodes' inputs + distinct pairs of operator and list of attributes

and the metric is the mean over the graphs. Departures from the source, all to make figures independent of
order and of names: its NSA counts attribute lists that no graph before had, this one those of the graph; it
drops the edges of values that are graph outputs as well; it leaves out the nodes that its own generator names
`flatten_node...` and `concat_outputs`, here they count. Input counts above C's range, which newer operator
sets allow, count as its largest, so that IDC is a ratio.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from opsieve_research.corpus import Corpus
from opsieve_research.graph import Operation, Shape

OPERATION_LEVEL = ("OTC", "IDC", "ODC", "SEC", "DEC", "SAC")
GRAPH_LEVEL = ("NOO", "NOT", "NOP", "NTR", "NSA")
_MOST_READERS = 12


@dataclass(slots=True)
class _Counts:
    """What was seen of one operator."""

    inputs: set[int] = field(default_factory=set)
    degrees: set[int] = field(default_factory=set)
    readers: set[str] = field(default_factory=set)
    chains: set[tuple[str, str]] = field(default_factory=set)
    attributes: set[tuple[bytes, ...]] = field(default_factory=set)
    shapes: set[Shape] = field(default_factory=set)


class Isra:
    """The eleven metrics over one corpus, grown model by model."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._seen: dict[str, _Counts] = {}
        self._totals: Counter[str] = Counter()
        self._graphs = 0

    def add(self, nodes: Sequence[Operation]) -> None:
        """Count in the operations of one model."""
        corpus = self._corpus
        inside = [node.operator in corpus for node in nodes]
        readers = [
            {nodes[reader].operator for reader in node.consumers if inside[reader]}
            if inside[place]
            else set()
            for place, node in enumerate(nodes)
        ]
        # The chains through a node, by the operators on its two sides: never more than the square of the
        # corpus.
        makers: list[set[str]] = [set() for _ in nodes]
        pairs: set[tuple[str, str]] = set()
        shapes: set[Shape] = set()
        lists: set[tuple[str, tuple[bytes, ...]]] = set()
        for place, node in enumerate(nodes):
            if not inside[place]:
                continue
            operator = node.operator
            seen = self._seen.setdefault(operator, _Counts())
            low, high = corpus[operator]
            seen.inputs.add(min(max(len(node.inputs), low), high))
            outside = sum(not inside[reader] for reader in node.consumers)
            seen.degrees.add(min(max(node.out_degree - outside, 1), _MOST_READERS))
            seen.readers |= readers[place]
            pairs.update((operator, reader) for reader in readers[place])
            for reader in set(node.consumers):
                makers[reader].add(operator)
            if node.attributes:
                seen.attributes.add(node.attributes)
                lists.add((operator, node.attributes))
            for _, shape in node.inputs:
                if shape is not None:
                    seen.shapes.add(shape)
                    shapes.add(shape)
        triples = {
            (first, node.operator, last)
            for place, node in enumerate(nodes)
            if inside[place]
            for first in makers[place]
            for last in readers[place]
        }
        for first, middle, last in triples:
            self._seen[first].chains.add((middle, last))
        self._graphs += 1
        kinds = {node.operator for node, counts in zip(nodes, inside, strict=True) if counts}
        figures = (sum(inside), len(kinds), len(pairs), len(triples), len(shapes) + len(lists))
        self._totals.update(dict(zip(GRAPH_LEVEL, figures, strict=True)))

    def figures(self) -> dict[str, float]:
        """The eleven metrics by name; all 0 before the first model."""
        size = len(self._corpus)
        terms: list[tuple[float, ...]] = []
        for operator, seen in self._seen.items():
            low, high = self._corpus[operator]
            degrees = len(seen.inputs) / (high - low + 1)
            sac = len(seen.attributes) + len(seen.shapes)
            terms.append(
                (1, degrees, len(seen.degrees), len(seen.readers) / size, len(seen.chains) / size**2, sac)
            )
        # In any order equal.
        sums = map(math.fsum, zip(*terms, strict=True)) if terms else (0.0,) * len(OPERATION_LEVEL)
        graph_level = {name: self._totals[name] / max(1, self._graphs) for name in GRAPH_LEVEL}
        return {
            **{name: total / size for name, total in zip(OPERATION_LEVEL, sums, strict=True)},
            **graph_level,
        }
