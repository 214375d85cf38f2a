"""What fingerprints take of a model's graph: the names that it gives, ranks of tensors, classes of
attributes.
"""

import functools
import re
from collections.abc import Iterable, Iterator

import onnx

from opsieve.gen.model.structure import all_nodes, bodies

_NOT_IN_A_NAME = re.compile(r"\W")


def given_names(model: onnx.ModelProto) -> set[str]:
    """Return the names of inputs, outputs, initializers, values and nodes, of bodies and functions too.

    Each also as a compiler writes that takes only letters, digits and underscores (`conv1/relu:0`,
    `conv1_relu_0`). Words that ONNX's operator pages use (`constant_value`, `ReduceL1`) are left out.
    """
    nodes = list(
        all_nodes([*model.graph.node, *(node for function in model.functions for node in function.node)])
    )
    found = {name for graph in _graphs(model.graph, nodes) for name in _of_graph(graph)}
    found |= {name for node in nodes for name in (node.name, *node.input, *node.output)}
    found |= {name for function in model.functions for name in (*function.input, *function.output)}
    # protobuf gives a name that is not UTF-8 as bytes.
    texts = {name for name in found if isinstance(name, str)}
    texts |= {_NOT_IN_A_NAME.sub("_", name) for name in texts}
    return texts - _words_of_onnx() - {node.op_type for node in nodes}


def _graphs(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in nodes:
        yield from bodies(node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[str]:
    for part in (graph.input, graph.output, graph.value_info, graph.initializer):
        yield from (item.name for item in part)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


@functools.cache
def _words_of_onnx() -> frozenset[str]:
    """Operators, their parameters and attributes, as the installed onnx documents them."""
    found: set[str] = set()
    for schema in onnx.defs.get_all_schemas():
        found.add(schema.name)
        found.update(schema.attributes)
        found.update(parameter.name for parameter in (*schema.inputs, *schema.outputs))
    return frozenset(found)


def graph_details(model: onnx.ModelProto) -> tuple[set[str], set[str]]:
    """Return the rank of each operator's first input (`Relu:4`), and the class of each attribute
    (`Pad.mode=edge`).
    """
    graph = model.graph
    declared = {
        item.name: len(item.type.tensor_type.shape.dim)
        for item in [*graph.input, *graph.output, *graph.value_info]
        if item.type.tensor_type.HasField("shape")
    }
    ranks = declared | {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    ranked: set[str] = set()
    attributes: set[str] = set()
    for node in all_nodes(model.graph.node):
        first = next(filter(None, node.input), None)
        if first in ranks:
            ranked.add(f"{node.op_type}:{ranks[first]}")
        attributes.update(
            f"{node.op_type}.{item.name}={kind}"
            for item in node.attribute
            if (kind := _attribute_class(item)) is not None
        )
    return ranked, attributes


def _attribute_class(item: onnx.AttributeProto) -> str | None:
    """Classify an attribute's value; returns `None` for tensors, graphs and real numbers, which are too
    specific.
    """
    if item.type == onnx.AttributeProto.INT:
        return str(item.i) if item.i in (0, 1) else "n"
    if item.type == onnx.AttributeProto.STRING:
        return item.s.decode("utf-8", "replace")[:40]
    if item.type == onnx.AttributeProto.INTS:
        values = set(item.ints)
        return "zeros" if values <= {0} else "equal" if len(values) == 1 else "mixed"
    return None
