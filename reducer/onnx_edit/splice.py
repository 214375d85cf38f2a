"""A body put in the place of the node that owns it: the branch of an If, one turn of a Loop."""

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import helper

from opsieve.reducer.onnx_edit.graphs import Path, add_initializers, attribute_of, encoded, graph_at, graphs, node_of


def splice_branch(model: onnx.ModelProto, path: Path, key: str, branch: str) -> bool:
    """Replace an If by one of its branches, in place; False when it is not there (any more)."""
    graph = graph_at(model, path)
    node = None if graph is None else node_of(graph, key)
    body = None if node is None else attribute_of(node, branch)
    if graph is None or node is None or body is None or node.op_type != "If":
        return False
    return _splice(model, graph, node, body.g, {}, [], list(zip(node.output, body.g.output, strict=True)), [])


def splice_turn(model: onnx.ModelProto, path: Path, key: str) -> bool:
    """Replace a Loop by its first turn, in place; False when it is not there or cannot be unrolled."""
    graph = graph_at(model, path)
    node = None if graph is None else node_of(graph, key)
    held = None if node is None else attribute_of(node, "body")
    if graph is None or node is None or held is None or node.op_type != "Loop":
        return False
    body = held.g
    carried = len(node.input) - 2
    if carried < 0 or len(body.input) != carried + 2 or len(body.output) < len(node.output) + 1:
        return False
    constants = [
        encoded(np.zeros(_rank(body.input[0]), np.int64), body.input[0].name),
        encoded(np.ones(_rank(body.input[1]), np.bool_), body.input[1].name),
    ]
    bound = {info.name: name for info, name in zip(list(body.input)[2:], list(node.input)[2:], strict=True)}
    results = list(zip(list(node.output), list(body.output)[1:], strict=False))
    return _splice(model, graph, node, body, bound, constants, results[:carried], results[carried:])


def _rank(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    return (1,) * len(info.type.tensor_type.shape.dim)


def _splice(
    model: onnx.ModelProto,
    graph: onnx.GraphProto,
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    bound: Mapping[str, str],
    constants: Iterable[onnx.TensorProto],
    results: list[tuple[str, onnx.ValueInfoProto]],
    stacked: list[tuple[str, onnx.ValueInfoProto]],
) -> bool:
    """`bound` are names of the body that mean outer ones; `results` and `stacked` pair outputs, the latter one axis apart."""
    body_copy = onnx.GraphProto()
    body_copy.CopyFrom(body)
    for info in body_copy.output:
        info.ClearField("type")
    taken = _names(model)
    made = {name for inner in body_copy.node for name in inner.output if name}
    names = dict(bound)
    direct: set[str] = set()
    for outer, info in results:
        if outer and info.name in made and info.name not in names:
            names[info.name] = outer
            direct.add(outer)
    initial = [*body_copy.initializer, *constants]
    for name in (*(tensor.name for tensor in initial), *sorted(made)):
        if name not in names:
            names[name] = _fresh(name, taken)
            taken.add(names[name])
    for tensor in initial:
        tensor.name = names[tensor.name]
    _rename(body_copy, names)
    extra = [
        helper.make_node("Identity", [names.get(info.name, info.name)], [outer])
        for outer, info in results
        if outer and outer not in direct
    ]
    for outer, info in stacked:
        if outer:
            axes = _fresh("axes", taken)
            taken.add(axes)
            initial.append(encoded(np.zeros(1, np.int64), axes))
            extra.append(helper.make_node("Unsqueeze", [names.get(info.name, info.name), axes], [outer]))
    place = list(graph.node).index(node)
    nodes = [*list(graph.node)[:place], *body_copy.node, *extra, *list(graph.node)[place + 1 :]]
    fresh = [onnx.NodeProto.FromString(item.SerializeToString()) for item in nodes]
    del graph.node[:]
    graph.node.extend(fresh)
    used = {name for _, inner in graphs(graph) for item in inner.node for name in item.input}
    add_initializers(model, graph, [tensor for tensor in initial if tensor.name in used])
    return True


def _names(model: onnx.ModelProto) -> set[str]:
    found: set[str] = set()
    for _, graph in graphs(model.graph):
        found.update(info.name for info in (*graph.input, *graph.output))
        found.update(tensor.name for tensor in graph.initializer)
        for node in graph.node:
            found.update((*node.input, *node.output))
    return found


def _fresh(name: str, taken: set[str]) -> str:
    number = 0
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for field in (node.input, node.output):
            for place, name in enumerate(field):
                if name in names:
                    field[place] = names[name]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                own = {info.name for info in attribute.g.input}
                own.update(tensor.name for tensor in attribute.g.initializer)
                own.update(name for inner in attribute.g.node for name in inner.output)
                _rename(attribute.g, {old: new for old, new in names.items() if old not in own})
    for info in graph.output:
        info.name = names.get(info.name, info.name)
