"""Find the optimiser's rewrites: the places where its optimised graph differs from the model, which are tried
first.
"""

import re
from collections.abc import Sequence

import numpy as np
import onnx

from opsieve.gen.irs.onnx.view import Graph, Subject
from opsieve.gen.model.tensors import decode
from opsieve.reducer.engine.search import Places
from opsieve.reducer.nodes.localise import MOST_TEXT
from opsieve.reducer.oracle.target_test import TargetTest

# The model size, in bytes, from which on the optimised graph is not requested.
_HEAVY = 64 << 20


def optimised_graph(test: TargetTest, subject: Subject) -> onnx.GraphProto | None:
    """Return the target's optimised graph; `None` if it cannot show it, or fails before it has one. A graph
    that another compiler runs is available even if that compiler refuses it.
    """
    target = test.target.showing_graph
    was_made = test.failure.verdict.stage == "run" or test.target.runtime is not None
    if target is None or not was_made or subject.program.byte_size > _HEAVY:
        return None
    shown = (test.workers.observe(target, subject.program, subject.inputs).outputs or {}).get("model")
    model = decode(onnx.ModelProto(), shown.tobytes()) if isinstance(shown, np.ndarray) else None
    return None if model is None else model.graph


def rewritten(graph: Graph, optimised: onnx.GraphProto) -> list[Places]:
    """Group the nodes that the optimised graph changed, in the graph's order.

    Two nodes belong together if one reads the other's result and the optimised graph lacks that value, or if
    another operator computes it from all inputs of the first: then an old name has a new value. Linear in
    both graphs.
    """
    after = {tuple(node.output): (node.op_type, tuple(node.input)) for node in optimised.node}
    left = {name for node in optimised.node for name in (*node.input, *node.output)}
    for place, node in enumerate(graph.nodes):
        another = after.get(tuple(node.output), (node.op_type,))[0] != node.op_type
        if another and all(name in left or name in graph.initializers for name in graph.reads[place]):
            left.difference_update(node.output)
    changed = {
        place
        for place, node in enumerate(graph.nodes)
        if after.get(tuple(node.output)) != (node.op_type, tuple(node.input))
    }
    groups: list[Places] = []
    seen: set[int] = set()
    for place in sorted(changed):
        if place in seen:
            continue
        group, waiting = [], [place]
        seen.add(place)
        while waiting:
            here = waiting.pop()
            group.append(here)
            gone = [name for name in graph.results[here] if name not in left]
            near = [reader for name in gone for reader in graph.readers.get(name, ())]
            near += [
                graph.producer[name]
                for name in graph.reads[here]
                if name in graph.producer and name not in left
            ]
            fresh = [other for other in dict.fromkeys(near) if other in changed and other not in seen]
            seen.update(fresh)
            waiting += fresh
        groups.append(sorted(group))
    return groups


def made_into(graph: Graph, optimised: onnx.GraphProto, text: str, groups: Sequence[Places]) -> Places | None:
    """Return the first group that the optimiser replaced by a new operator that the text names; `None`
    without such a group.
    """
    # Operators of the model itself say nothing about a rewrite: only new ones point at it.
    words = set(re.findall(r"\w+", text[:MOST_TEXT])) - {node.op_type for node in graph.nodes}
    results = {name for node in optimised.node if node.op_type in words for name in node.output}
    made = {graph.producer[name] for name in results if name in graph.producer}
    return next((group for group in groups if not made.isdisjoint(group)), None)


def beside(graph: Graph, group: Places, groups: Sequence[Places]) -> Places:
    """Return a group with the nodes and groups that it reads from, because an optimiser may reuse the name of
    a value for another one.
    """
    sources = {source for place in group for source in graph.producers[place]}
    return sorted(
        {*group, *sources, *(place for other in groups if not sources.isdisjoint(other) for place in other)}
    )
