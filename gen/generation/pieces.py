"""Pieces of programs that are laid among the nodes of others: cut out of a model, and planted where their
inputs are tensors of the program.
"""

import functools
from typing import Final

from opsieve.gen.analysis.reading import Source
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import FLOATS, LARGEST, LEAST, Tensor
from opsieve.gen.generation.mutation import Changes, ModelReplay
from opsieve.gen.graph.graph import BodyGraph, Node, is_closed
from opsieve.gen.graph.graph_builder import GraphBuilder

_FEW: Final = (
    200  # nodes of an architecture, of which the same come again and again; models of a corpus are not kept
)


def cut(source: Source, rng: Rng, most: int) -> Source:
    """A connected part of a model with at most so many nodes; what other nodes make of what it reads are its
    inputs. All of a model that has no more.
    """
    if len(source.nodes) <= most:
        return source
    beside = (_neighbours if len(source.nodes) <= _FEW else _neighbours.__wrapped__)(source.nodes)
    places = list(beside)
    if not places:
        return source
    taken = {rng.choice(places)}
    while len(taken) < most:
        edge = sorted({near for place in taken for near in beside[place]} - taken)
        if not edge:
            break
        taken.add(rng.choice(edge))
    return _alone(source, sorted(taken))


@functools.lru_cache(maxsize=64)
def _neighbours(nodes: tuple[Node, ...]) -> dict[int, set[int]]:
    """By place, of the nodes that can stand alone, those that each hangs together with."""
    makers = {out.name: place for place, node in enumerate(nodes) for out in node.outs if out.name}
    beside: dict[int, set[int]] = {place: set() for place, node in enumerate(nodes) if not _is_whole(node)}
    for place, near in beside.items():
        for tensor in nodes[place].ins:
            maker = makers.get(tensor.name) if tensor is not None else None
            if maker in beside and maker is not None:
                near.add(maker)
                beside[maker].add(place)
    return beside


def _is_whole(node: Node) -> bool:
    """Whether a node cannot stand without what is around it: it has bodies, or has sequences or tensors whose
    sizes nobody knows.
    """
    bodies = any(isinstance(value, BodyGraph) for value in node.attrs.values())
    there = [each for each in (*node.ins, *node.outs) if each is not None and each.name]
    return bodies or any(each.dtype not in LARGEST or not is_closed(each.shape) for each in there)


def _alone(source: Source, places: list[int]) -> Source:
    made = {out.name for place in places for out in source.nodes[place].outs}
    leaves: dict[str, Tensor] = {}

    def own(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.leaf or tensor.name in made:
            return tensor
        # Intervals of what is computed can be wider than their types.
        low, high = max(tensor.low, LEAST[tensor.dtype]), min(tensor.high, LARGEST[tensor.dtype])
        return leaves.setdefault(
            tensor.name, Tensor(tensor.name, tensor.dtype, tensor.shape, low, high, None, "input")
        )

    nodes = []
    for place in places:
        node = source.nodes[place]
        nodes.append(
            Node(node.op, node.domain, [own(each) for each in node.ins], node.outs, node.attrs, node.name)
        )
    read = {tensor.name for node in nodes for tensor in node.ins if tensor is not None}
    outputs = [out for node in nodes for out in node.outs if out.name and out.name not in read]
    return Source(source.opset, tuple(nodes), tuple(outputs), source.held, frozenset(leaves))


def plant(builder: GraphBuilder, piece: Source, joined: float) -> None:
    """Lay the nodes of a piece; an input that holds data is a tensor of the program at the rate `joined`."""
    replay = ModelReplay(builder, Changes({}))
    leaves = {
        tensor.name: tensor
        for node in piece.nodes
        for tensor in node.ins
        if tensor is not None and tensor.leaf
    }
    for leaf in leaves.values():
        # Numbers that any others can stand for, rather than a condition of the piece.
        is_data = (
            leaf.leaf == "input"
            and leaf.dtype in FLOATS
            and all(type(side) is int and side for side in leaf.shape)
        )
        if is_data and builder.nodes and builder.rng.chance(joined):
            replay.now[leaf.name] = builder.match(leaf.dtype, leaf.shape)
    replay.run(piece)
