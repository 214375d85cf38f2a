"""What a set of models covers: operators, their instances, their edges, and the three coverages of HirFuzz.
Grows by one model at a time.

Instances are counted as NNSmith does (operator, types of its inputs, attributes), over nodes that are no
Constant; edges are distinct pairs of operators of which the second reads what the first makes, neither of
them a Constant.

HirFuzz (section 3.1.3 of its paper): operator-datatype, operator-shape and operator-edge coverage, of the
dtypes and shapes of what a node gives. Its third counts constants, too.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

import onnx

from opsieve_research.graph import Operation, Type, operations

# What exporters put between operators; edges without them are counted beside all edges.
GLUE: Final = frozenset(("Constant", "Cast", "Shape", "ConstantOfShape", "Identity", "Unsqueeze"))

_Instance: TypeAlias = tuple[str, tuple[Type, ...], tuple[bytes, ...]]


class OperatorCoverage:
    """The coverage of the models added so far. `models` counts models, `frequencies` the nodes of each
    operator.
    """

    def __init__(self) -> None:
        self.models = 0
        self.frequencies: Counter[str] = Counter()
        self.edges: set[tuple[str, str]] = set()
        self._instances: set[_Instance] = set()
        self._dtypes: set[tuple[str, str]] = set()
        self._shapes: set[tuple[str, tuple[int | str, ...]]] = set()

    def add(self, model: onnx.ModelProto) -> int:
        """Count a model in; how many instances, edges, operator-datatype and operator-shape pairs are new."""
        return self.add_operations(operations(model))

    def add_operations(self, nodes: Sequence[Operation]) -> int:
        """Count in a model that is read already, and give what `add` does."""
        before = self._size()
        self.models += 1
        for node in nodes:
            operator = node.operator
            self.frequencies[operator] += 1
            for dtype, shape in node.outputs:
                if dtype:
                    self._dtypes.add((operator, dtype))
                if shape is not None:
                    self._shapes.add((operator, shape))
            for consumer in node.consumers:
                self.edges.add((operator, nodes[consumer].operator))
            if operator != "Constant":
                self._instances.add((operator, node.inputs, node.attributes))
        return self._size() - before

    @property
    def instances(self) -> int:
        """Distinct operators with the types of their inputs and their attributes, no Constant among them."""
        return len(self._instances)

    @property
    def proper_edges(self) -> int:
        """Distinct pairs of operators, no Constant among them."""
        return sum("Constant" not in edge for edge in self.edges)

    @property
    def glueless_edges(self) -> int:
        """Distinct pairs of operators, none of which is in `GLUE`."""
        return sum(GLUE.isdisjoint(edge) for edge in self.edges)

    @property
    def hirfuzz(self) -> dict[str, int]:
        """HirFuzz's coverages: pairs met of operator and dtype, operator and shape, operator and operator."""
        return {
            "operator-dtype": len(self._dtypes),
            "operator-shape": len(self._shapes),
            "operator-edge": len(self.edges),
        }

    def _size(self) -> int:
        return len(self._instances) + len(self.edges) + len(self._dtypes) + len(self._shapes)
