"""How diverse a set of models is, all figures together: what `opsieve metrics` tells."""

from collections import Counter
from typing import Any

import onnx

from opsieve_research.corpus import FAMILIES, ISRA_CORPUS, family, standard_corpus
from opsieve_research.coverage import OperatorCoverage
from opsieve_research.graph import operations
from opsieve_research.isra import Isra
from opsieve_research.structure import Structure


class Metrics:
    """The diversity of the models added so far. `growth` holds, after each model, the instances and the edges
    met.
    """

    def __init__(self) -> None:
        self.coverage = OperatorCoverage()
        self.structure = Structure()
        self.growth: list[tuple[int, int]] = []
        self._isra = {"isra": Isra(ISRA_CORPUS), "isra_all": Isra(standard_corpus())}

    def add(self, model: onnx.ModelProto) -> None:
        """Count in a model of sound structure, with the types that it declares (see
        `metrics_graph.lacks_types`).
        """
        nodes = operations(model)
        self.coverage.add_operations(nodes)
        self.structure.add(nodes)
        for isra in self._isra.values():
            isra.add(nodes)
        self.growth.append((self.coverage.instances, self.coverage.proper_edges))

    def report(self) -> dict[str, Any]:
        """All figures; the keys are those of `opsieve metrics --json` (benchmarks/research/README.md)."""
        frequencies = self.coverage.frequencies
        return {
            "models": self.coverage.models,
            "nodes": frequencies.total(),
            "operators": len(frequencies),
            "instances": self.coverage.instances,
            "edges": self.coverage.proper_edges,
            "edges_without_glue": self.coverage.glueless_edges,
            **{name: isra.figures() for name, isra in self._isra.items()},
            "hirfuzz": self.coverage.hirfuzz,
            "structure": self.structure.figures(),
            "families": families(frequencies),
            "spread": spread(frequencies),
            "frequencies": dict(sorted(frequencies.items(), key=lambda item: (-item[1], item[0]))),
        }


def families(frequencies: Counter[str]) -> dict[str, dict[str, int]]:
    """Of every family: its nodes, the operators met, how many of ai.onnx there are, the nodes of the rarest
    and commonest met.
    """
    met: dict[str, list[int]] = {name: [] for name in FAMILIES}
    for operator, nodes in frequencies.items():
        met.setdefault(family(operator), []).append(nodes)
    return {
        name: {
            "nodes": sum(counts),
            "operators": len(counts),
            "of": len(FAMILIES.get(name, ())),
            "least": min(counts, default=0),
            "most": max(counts, default=0),
        }
        for name, counts in met.items()
    }


def spread(frequencies: Counter[str]) -> dict[str, float]:
    """How many times more often the commonest is met than the rarest: of the operators met, and of the
    families met.

    A family counts by its nodes for each of its operators that was met, so that a large family may have more.
    0 when nothing was met.
    """
    means = [met["nodes"] / met["operators"] for met in families(frequencies).values() if met["operators"]]
    return {
        name: max(values) / min(values) if values else 0.0
        for name, values in (("operators", list(frequencies.values())), ("families", means))
    }
