"""Guess where in a graph a failure lies: from the names of nodes, values and operators in the compiler's
message, and from the places where the optimiser's graph differs from the model.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from opsieve.gen.irs.onnx.view import Graph, Subject, inner_operators
from opsieve.gen.model.tensors import decode
from opsieve.reducer.engine.search import Places
from opsieve.reducer.oracle.target_test import TargetTest

# Characters of a message that are read. A compiler's log may have megabytes; the start names the failure.
MOST_TEXT = 20_000
# Each place is tried by checks. A message that names more places says little about one of them.
_MOST_FOCI = 6
_WORD = re.compile(r"[^\s'\"(),;=\[\]{}<>]+")
_CAMEL = re.compile(r"[A-Z][a-z0-9]+|[A-Z]+(?![a-z])|[a-z0-9]+")
# Abbreviations of operators in the names of compilers' passes.
_SHORT = {
    "bn": "batchnormalization",
    "mm": "matmul",
    "ln": "layernormalization",
    "layernorm": "layernormalization",
    "maxpool": "maxpool",
    "avgpool": "averagepool",
}
# English words in most messages, so that they do not point at the operators of the same name.
_PLAIN = frozenset(
    ["if", "loop", "scan", "constant", "shape", "size", "identity", "cast", "not", "and", "or", "where"]
)


@dataclass(frozen=True, slots=True)
class Hint:
    """The nodes to try first.

    `foci` are the likeliest first; `exact` says whether the text names them; `enough` are the few that may
    suffice together.
    """

    foci: list[int]
    exact: bool
    enough: list[int]


def hint(graph: Graph, text: str) -> Hint:
    """Find the nodes that a compiler's message points at.

    Without names of nodes, they are those that bring together the operators it names. Linear in the graph and
    the text; the text is untrusted and only compared.
    """
    text = text[:MOST_TEXT]
    own, made = _find_named(graph, text)
    named = list(dict.fromkeys((*own, *made)))
    if named:
        # A message that names a node also names its tensors: producers of those it reads are not the place.
        fed = {source for place in own for source in graph.producers[place]}
        return Hint(named[:_MOST_FOCI], True, sorted({*own, *(place for place in made if place not in fed)}))
    operators = _hinted_operators(graph, text)
    places = _rank_hinted(graph, operators)
    return Hint(places[:_MOST_FOCI], False, _meeting(graph, operators, places[0]) if places else [])


def likelihood(graph: Graph, groups: Sequence[Sequence[int]]) -> list[float]:
    """Return the likelihood of each node to be needed by the failure; the sum is 1.

    A third is shared by all nodes. A third is shared by the operators, and for each by its nodes. A third is
    shared by `groups`, the nodes that the optimiser rewrote.
    """
    counts = Counter(node.op_type for node in graph.nodes)
    shares = [1 / len(graph.nodes) + 1 / (len(counts) * counts[node.op_type]) for node in graph.nodes]
    for group in groups:
        for place in group:
            shares[place] += 1 / (len(groups) * len(group))
    whole = sum(shares)
    return [share / whole for share in shares]


def _find_named(graph: Graph, text: str) -> tuple[list[int], list[int]]:
    """Find nodes whose own name occurs in the text as a word or between slashes, and nodes with a result that
    does.
    """
    words: dict[str, None] = {}
    for word in _WORD.findall(text):
        words[word.strip(".:")] = None
        words.update(dict.fromkeys(part for part in word.split("/") if part))
    by_name = {node.name: place for place, node in enumerate(graph.nodes) if node.name}
    # A single letter occurs in almost every text.
    long = [word for word in words if len(word) > 1]
    own = [by_name[word] for word in long if word in by_name]
    return own, [graph.producer[word] for word in long if word in graph.producer and word not in by_name]


def _hinted_operators(graph: Graph, text: str) -> list[dict[str, float]]:
    """Return the operators of each node that the text names, and how rare they are."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    parts = {part.lower() for word in re.findall(r"\w+", text) for part in _CAMEL.findall(word)}
    operators = [{name.lower() for name in inner_operators(node)} for node in graph.nodes]
    counts = Counter(name for names in operators for name in names)
    # Short names occur inside other words, so they must be a word of their own.
    hinted = {
        name for name in counts if name not in _PLAIN and (name in plain if len(name) > 3 else name in parts)
    }
    hinted |= {full for short, full in _SHORT.items() if short in parts and full in counts}
    return [{name: 1.0 / counts[name] for name in sorted(names & hinted)} for names in operators]


def _near(graph: Graph, place: int) -> tuple[int, ...]:
    return (*graph.producers[place], *graph.consumers[place])


def _rank_hinted(graph: Graph, operators: Sequence[dict[str, float]]) -> list[int]:
    """Rank nodes of hinted operators by how many different ones meet in their neighbourhood, then by
    rarity.
    """
    scores: list[tuple[int, float, int]] = []
    for place, own in enumerate(operators):
        if own:
            around = set(own).union(*(operators[near] for near in _near(graph, place)))
            scores.append((len(around), sum(own.values()), -place))
    return [-place for _, _, place in sorted(scores, reverse=True)]


def _meeting(graph: Graph, operators: Sequence[dict[str, float]], focus: int) -> list[int]:
    """Return a node and one neighbour for each other hinted operator; an empty list if two never meet."""
    met, found = set(operators[focus]), [focus]
    for near in _near(graph, focus):
        if not operators[near].keys() <= met:
            met |= operators[near].keys()
            found.append(near)
    return sorted(found) if len(met) > 1 else []


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
