"""Where in a graph a failure is likely to sit, judged by what the compiler said: names of nodes and values, and operators."""

import re
from collections import Counter
from collections.abc import Sequence

from opsieve.reducer.problem.graph import Graph, inner_operators

_MOST_TEXT = 20_000
_MOST_FOCI = 6
_WORD = re.compile(r"[^\s'\"(),;=\[\]{}<>]+")
_CAMEL = re.compile(r"[A-Z][a-z0-9]+|[A-Z]+(?![a-z])|[a-z0-9]+")
# What compilers call operators in the names of their passes.
_SHORT = {
    "bn": "batchnormalization",
    "mm": "matmul",
    "ln": "layernormalization",
    "layernorm": "layernormalization",
    "maxpool": "maxpool",
    "avgpool": "averagepool",
}
_PLAIN = frozenset(["if", "loop", "scan", "constant", "shape", "size", "identity", "cast", "not", "and", "or", "where"])


def foci(graph: Graph, text: str) -> tuple[list[int], bool]:
    """Nodes to look at first, the likeliest first, and whether `text` names them (as far as it names any).

    Where it names none, they are those that bring the operators it names together. Linear in the graph and the text; the
    text is untrusted and only compared.
    """
    text = text[:_MOST_TEXT]
    named = _named(graph, text)
    return (named or _by_operators(graph, text))[:_MOST_FOCI], bool(named)


def _named(graph: Graph, text: str) -> list[int]:
    """Nodes whose own name or one of whose results the text has as a word, or as a part of one between slashes."""
    words: dict[str, None] = {}
    for word in _WORD.findall(text):
        words[word.strip(".:")] = None
        words.update(dict.fromkeys(part for part in word.split("/") if part))
    places: dict[int, None] = {}
    by_name = {node.name: place for place, node in enumerate(graph.nodes) if node.name}
    for word in words:
        if len(word) < 2:
            continue
        if word in by_name:
            places[by_name[word]] = None
        elif word in graph.producer:
            places[graph.producer[word]] = None
    return list(places)


def _by_operators(graph: Graph, text: str) -> list[int]:
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    parts = {part.lower() for word in re.findall(r"\w+", text) for part in _CAMEL.findall(word)}
    operators = [inner_operators(node) for node in graph.nodes]
    counts = Counter(name.lower() for names in operators for name in set(names))
    hinted = {name for name in counts if name not in _PLAIN and (name in plain if len(name) > 3 else name in parts)}
    hinted |= {full for short, full in _SHORT.items() if short in parts and full in counts}
    if not hinted:
        return []
    return _scored(graph, operators, {name: 1.0 / counts[name] for name in hinted})


def _scored(graph: Graph, operators: Sequence[Sequence[str]], weights: dict[str, float]) -> list[int]:
    """Nodes of hinted operators, by how many different ones meet in their neighbourhood, then by how rare their own is."""
    mine = [{name.lower() for name in names} & weights.keys() for names in operators]
    scores: list[tuple[int, float, int]] = []
    for place, own in enumerate(mine):
        if own:
            around = set(own).union(*(mine[near] for near in (*graph.producers[place], *graph.consumers[place])))
            scores.append((len(around), sum(weights[name] for name in own), -place))
    return [-place for _, _, place in sorted(scores, reverse=True)]
