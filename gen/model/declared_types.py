"""Types that a model declares: whether some are missing, and a copy that has those that inference found."""

from collections.abc import Iterator

import onnx

from opsieve.gen.model.structure import all_nodes, bodies


def lacks_types(model: onnx.ModelProto) -> bool:
    """Whether some value of the main graph or of a body has no declared rank: shape inference could tell
    more.
    """
    return any(_graph_lacks(graph) for graph in _graphs(model.graph))


def with_types(model: onnx.ModelProto, inferred: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` with the `value_info` of `inferred`, the same model after shape inference."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for graph, typed_part in zip(_graphs(typed.graph), _graphs(inferred.graph), strict=False):
        del graph.value_info[:]
        graph.value_info.extend(typed_part.value_info)
        known = {info.name: info for info in typed_part.output}
        for info in graph.output:
            if info.name in known and not is_ranked(info.type):
                info.type.CopyFrom(known[info.name].type)
    return typed


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in all_nodes(graph.node):
        yield from bodies(node)


def _graph_lacks(graph: onnx.GraphProto) -> bool:
    known = {info.name for info in (*graph.value_info, *graph.output) if is_ranked(info.type)}
    return any(name and name not in known for node in graph.node for name in node.output)


def is_ranked(type_: onnx.TypeProto) -> bool:
    """Return whether a declared type has a rank; types other than tensors do not need one."""
    kind = type_.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or type_.tensor_type.HasField("shape"))
