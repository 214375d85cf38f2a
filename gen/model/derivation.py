"""Derive the types of a model's outputs from its inputs alone, ignoring the types that the model declares for
its own results.

For workers only: shape inference is C++ that a hostile model can bring down.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto, helper, numpy_helper
from onnx.shape_inference import infer_shapes

from opsieve.gen.model import structure, tensors

# Inputs of so many integers are sizes, axes or repeats, which inference reads only where they are constant.
_MOST_SIZES = 64


def derive_types(model: ModelProto, inputs: Mapping[str, Any]) -> list[ValueInfoProto]:
    """Infer the types of a model's outputs strictly, from its operators and from what is fed.

    Args:
        model: Any model, which is changed.
        inputs: The value of each input, by name. Its type counts, not the one that the model declares.

    Returns:
        The graph's outputs in order, each with what follows of its type; behind an operator that ONNX does
        not define nothing does.

    Raises:
        onnx.shape_inference.InferenceError: If a node contradicts its inputs.
    """
    for function in model.functions:
        del function.value_info[:]
    _forget_types(model.graph)
    for node in structure.model_nodes(model):
        if node.op_type == "STFT" and not any(each.name == "onesided" for each in node.attribute):
            # onnx 1.23 infers the shape of a two-sided transform where the attribute is left out; its default
            # is 1.
            node.attribute.append(helper.make_attribute("onesided", 1))
        for body in structure.bodies(node):
            _forget_types(body)
            for info in body.input:
                _forget_shape(info.type)
    declared = {info.name: info.type for info in model.graph.input}
    for name in declared.keys() & inputs.keys():
        _feed(model.graph, name, declared[name], inputs[name])
    return list(infer_shapes(model, check_type=True, strict_mode=True, data_prop=True).graph.output)


def _forget_types(graph: GraphProto) -> None:
    del graph.value_info[:]
    for info in graph.output:
        info.ClearField("type")


def _forget_shape(type_: TypeProto) -> None:
    while (kind := type_.WhichOneof("value")) in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
    if kind == "tensor_type":
        type_.tensor_type.ClearField("shape")


def _feed(graph: GraphProto, name: str, declared: TypeProto, value: Any) -> None:
    """Give an input the type of its value, or the value itself where inference can read it."""
    type_ = tensors.type_of(value)
    # An empty sequence or an absent optional does not determine the shape of its elements.
    if type_ is None:
        _forget_shape(declared)
        return
    if declared.HasField("optional_type"):
        type_ = helper.make_optional_type_proto(type_)
    declared.CopyFrom(type_)
    for tensor in [tensor for tensor in graph.initializer if tensor.name == name]:
        graph.initializer.remove(tensor)
    if isinstance(value, np.ndarray) and value.dtype in (np.int64, np.int32) and value.size <= _MOST_SIZES:
        graph.input.remove(next(info for info in graph.input if info.name == name))
        graph.initializer.append(numpy_helper.from_array(value, name))
