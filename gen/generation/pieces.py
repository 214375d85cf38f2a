"""Pieces of models among the nodes of other programs: cut them out, and plant them with tensors of the
program as inputs.
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
    # The nodes of an architecture are cached, because they recur; models of a corpus are not.
    200
)


def cut_piece(source: Source, rng: Rng, most: int) -> Source:
    """Cut a connected part of at most `most` nodes out of a model; what other nodes compute for it becomes
    its inputs.

    A model without more nodes is returned whole.
    """
    if len(source.nodes) <= most:
        return source
    beside = (_map_neighbours if len(source.nodes) <= _FEW else _map_neighbours.__wrapped__)(source.nodes)
    places = list(beside)
    if not places:
        return source
    taken = {rng.choice(places)}
    while len(taken) < most:
        edge = sorted({near for place in taken for near in beside[place]} - taken)
        if not edge:
            break
        taken.add(rng.choice(edge))
    return _isolate(source, sorted(taken))


@functools.lru_cache(maxsize=64)
def _map_neighbours(nodes: tuple[Node, ...]) -> dict[int, set[int]]:
    """Map each node that can stand alone to the nodes connected to it, by index."""
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
    """Return whether a node depends on its surroundings: it has bodies, sequences or tensors of unknown
    size.
    """
    bodies = any(isinstance(value, BodyGraph) for value in node.attrs.values())
    there = [each for each in (*node.ins, *node.outs) if each is not None and each.name]
    return bodies or any(each.dtype not in LARGEST or not is_closed(each.shape) for each in there)


def _isolate(source: Source, places: list[int]) -> Source:
    """Return a source with only these nodes, whose outer inputs are leaves."""
    made = {out.name for place in places for out in source.nodes[place].outs}
    leaves: dict[str, Tensor] = {}

    def own(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.leaf or tensor.name in made:
            return tensor
        # The interval of a computed value may be wider than its type; a leaf must stay inside its type.
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


def plant_piece(builder: GraphBuilder, piece: Source, joined: float) -> None:
    """Add the nodes of a piece; at the rate `joined` an input with data becomes a tensor of the program."""
    replay = ModelReplay(builder, Changes({}))
    leaves = {
        tensor.name: tensor
        for node in piece.nodes
        for tensor in node.ins
        if tensor is not None and tensor.leaf
    }
    for leaf in leaves.values():
        # Float inputs are data that any numbers can replace; integers and booleans may be a condition of the
        # piece.
        is_data = (
            leaf.leaf == "input"
            and leaf.dtype in FLOATS
            and all(type(side) is int and side for side in leaf.shape)
        )
        if is_data and builder.nodes and builder.rng.chance(joined):
            replay.now[leaf.name] = builder.match(leaf.dtype, leaf.shape)
    replay.replay_nodes(piece)
