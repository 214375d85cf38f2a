"""Places where ONNX leaves a result open, found from the values that the reference run met.

A mismatch on an output that such a place reaches is not a fault: the verdict is `invalid` and names the rule.
The rules stand in the operators' declarations (gen/declarations/properties.py); docs/explanation/oracles.md
tells why each is there.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import GraphProto

from opsieve.gen.declarations import catalogue, properties
from opsieve.gen.irs.onnx.view import list_captured


def open_results(
    operator: str, node: Any, inputs: properties.Values, outputs: properties.Values
) -> list[properties.Open]:
    """List the rules that one execution of a node of the standard domain met, with the elements that they
    leave open.

    `node` has the node's attributes as Python attributes; absent inputs are None.
    """
    declared = catalogue.known_operators().get(operator)
    return [met for rule in (declared.undefined if declared else ()) for met in rule(node, inputs, outputs)]


def leaves_open(rule: str) -> bool:
    """Return whether a rule says that a value is open, rather than random or rounded in an open order."""
    return rule != properties.RANDOM and not rule.startswith(properties.ACCUMULATION)


def disturb_value(value: Any, mask: Any) -> Any:
    """Return another result that ONNX allows as well: `value` with the open elements changed.

    What does not change behind it does not depend on the open elements.
    """
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.array(value)
    if array.dtype.kind == "f":
        # Twice and one more: no finite number except -1 stays, and 0 becomes 1.
        other = np.where(np.isfinite(array), array * 2 + 1, 0.5).astype(array.dtype)
    elif array.dtype.kind in "iub":
        other = ~array
    elif array.dtype.kind in "OUS":
        other = np.full(array.shape, "?", dtype=object)
    else:
        # bfloat16, float8, int4: whatever is not zero becomes zero, and the other way about.
        other = np.where(array == np.zeros((), array.dtype), 1, 0).astype(array.dtype)
    return other if mask is None else np.where(np.broadcast_to(mask, array.shape), other, array)


def nodes_reaching(graph: GraphProto) -> Mapping[int, frozenset[str]]:
    """Return the graph outputs that depend on each node, by its place in the graph; bodies count with their
    node.
    """
    reach: dict[str, set[str]] = {value.name: {value.name} for value in graph.output}
    found: dict[int, frozenset[str]] = {}
    # Backwards: ONNX sorts nodes so that each comes before those that read it.
    for place in range(len(graph.node) - 1, -1, -1):
        node = graph.node[place]
        outputs: set[str] = set().union(*(reach.get(name, set()) for name in node.output if name))
        found[place] = frozenset(outputs)
        for name in list_captured(node):
            reach.setdefault(name, set()).update(outputs)
    return found
