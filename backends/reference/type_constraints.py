"""Whether the operators of a model take the types that they are given, by ONNX's schemas at the model's
opset.

onnx.checker looks at whether types agree with each other, not at whether an operator has them: a Conv of
bfloat16 at opset 21 passes, which has one from opset 22 on. A compiler that refuses such a program is right,
whoever else is lenient.
"""

import functools
from collections.abc import Iterable, Mapping

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

# Begins the note that the native reference leaves on a model that it ran all the same
ILL_TYPED = "ONNX has no such operator: "


def ill_typed(inferred: ModelProto) -> str:
    """The first operator of the graph or a body of its that does not take an input's type, as text; "" where
    none is seen.

    Types are those that onnx.shape_inference left in the model. Functions are not looked into.
    """
    opsets = {opset.domain: opset.version for opset in inferred.opset_import}
    return next(iter(_faults(inferred.graph, opsets, {})), "")


def _faults(graph: GraphProto, opsets: Mapping[str, int], outer: Mapping[str, int]) -> Iterable[str]:
    declared = (*graph.input, *graph.value_info, *graph.output)
    types = {**outer, **{value.name: value.type.tensor_type.elem_type for value in declared}}
    types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    for node in graph.node:
        taken = _list_input_types(node.op_type, opsets.get(node.domain, 0), node.domain)
        for place, name in enumerate(node.input if taken else ()):
            element = types.get(name, TensorProto.UNDEFINED)
            spelt = f"tensor({TensorProto.DataType.Name(element).lower()})"
            if element != TensorProto.UNDEFINED and spelt not in taken[min(place, len(taken) - 1)]:
                yield f"{node.op_type} of opset {opsets[node.domain]} takes no {spelt} as input {place + 1}"
        for body in _bodies(node):
            yield from _faults(body, opsets, types)


def _bodies(node: NodeProto) -> Iterable[GraphProto]:
    for attribute in node.attribute:
        yield from ([attribute.g] if attribute.HasField("g") else attribute.graphs)


@functools.lru_cache(maxsize=4096)
def _list_input_types(operator: str, opset: int, domain: str) -> tuple[frozenset[str], ...]:
    """Return the types that each input of an operator accepts, the last entry for all further inputs of a
    variadic one; () for an unknown operator.
    """
    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return ()
    return tuple(frozenset(given.types) for given in schema.inputs)
