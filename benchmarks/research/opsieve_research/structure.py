"""How programs hang together: pieces, paths, fan-out, motifs, and the chains of operators that optimisers
rewrite.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import networkx

from opsieve_research.graph import Operation
from opsieve_research.motifs import MOTIFS, motifs

_CHAINS = (3, 4)  # operators in a row
_MOST = 4096  # chains that begin at one operation: a model can have more than anyone counts


class Structure:
    """Figures over the models added so far. Edges run from an operation to those that read it; what a body
    reads from around it counts.

    A Constant is a stored value and no operation; what stands in a body or a function hangs together with the
    node that has it.
    """

    def __init__(self) -> None:
        self._models = 0
        self._nodes = 0
        self._components = 0
        self._largest: list[float] = []
        self._longest = 0
        self._shared = 0
        self._motifs: Counter[str] = Counter()
        self._chains: dict[int, set[tuple[str, ...]]] = {length: set() for length in _CHAINS}

    def add(self, nodes: Sequence[Operation]) -> None:
        """Count in the operations of a model."""
        nodes = without_constants(nodes)
        if not nodes:
            return
        sizes = component_sizes(nodes)
        self._models += 1
        self._nodes += len(nodes)
        self._components += len(sizes)
        self._largest.append(max(sizes) / len(nodes))
        self._longest += longest_path(nodes)
        self._shared += sum(len(node.consumers) > 1 for node in nodes)
        self._motifs.update(motifs(nodes))
        for length, met in self._chains.items():
            met |= chains(nodes, length)

    def figures(self) -> dict[str, Any]:
        """Means over the models (of components, the share of nodes in the largest, operations on the longest
        path), the share of operations that are read more than once, how many different chains of operators
        were met, and motifs a model by name.
        """
        models = max(self._models, 1)
        return {
            "components": self._components / models,
            "largest_component": math.fsum(self._largest) / models,
            "longest_path": self._longest / models,
            "fan_out": self._shared / max(self._nodes, 1),
            **{f"chains_of_{length}": len(met) for length, met in self._chains.items()},
            "motifs": {name: self._motifs[name] / models for name in MOTIFS},
        }


def without_constants(nodes: Sequence[Operation]) -> list[Operation]:
    """The operations that compute something, with the places of each other."""
    places = {
        old: new for new, old in enumerate(n for n, node in enumerate(nodes) if node.operator != "Constant")
    }
    return [
        replace(
            nodes[old],
            consumers=[places[reader] for reader in nodes[old].consumers],
            holder=places.get(nodes[old].holder, -1),
        )
        for old in places
    ]


def component_sizes(nodes: Sequence[Operation]) -> list[int]:
    """How many operations each weakly connected piece has."""
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(nodes)))
    graph.add_edges_from((place, reader) for place, node in enumerate(nodes) for reader in node.consumers)
    graph.add_edges_from((place, node.holder) for place, node in enumerate(nodes) if node.holder >= 0)
    return [len(piece) for piece in networkx.connected_components(graph)]


def longest_path(nodes: Sequence[Operation]) -> int:
    """The operations on the longest path. Operations are in order, so that readers stand behind what they
    read.
    """
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    graph.add_edges_from(
        (place, reader) for place, node in enumerate(nodes) for reader in node.consumers if reader > place
    )
    return len(networkx.dag_longest_path(graph, weight=""))


def chains(nodes: Sequence[Operation], length: int) -> set[tuple[str, ...]]:
    """The different sequences of so many operators each of which reads the one before it."""
    found: list[set[tuple[str, ...]]] = [{(node.operator,)} for node in nodes]
    for _ in range(length - 1):
        found = [
            _few(
                {
                    (node.operator, *chain)
                    for reader in set(node.consumers)
                    if reader > place
                    for chain in found[reader]
                }
            )
            for place, node in enumerate(nodes)
        ]
    return set().union(*found)


def _few(found: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return found if len(found) <= _MOST else set(sorted(found)[:_MOST])
