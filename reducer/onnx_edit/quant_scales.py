"""Scales of quantised operators: a step must not make one zero, negative or infinite, where nothing is defined any more."""

from collections.abc import Iterator

import numpy as np

from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import Value
from opsieve.reducer.onnx_edit.graphs import constant_array, graphs, tensor_array
from opsieve.reducer.problem.subject import Subject

# Which inputs of an operator are scales.
_SCALES = {
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "QLinearAdd": (1, 4, 6),
    "QLinearMul": (1, 4, 6),
    "QGemm": (1, 4, 7),
    "QLinearSigmoid": (1, 3),
    "QLinearLeakyRelu": (1, 3),
    "QLinearGlobalAveragePool": (1, 3),
}


def bad_scale(subject: Subject) -> str:
    """The operator whose scale, an input or a stored tensor, is not positive and finite everywhere; "" without one."""
    nodes = [node for node in all_nodes(subject.model.graph.node) if node.op_type in _SCALES]
    if not nodes:
        return ""
    known = dict(_known(subject))
    for node in nodes:
        for place in _SCALES[node.op_type]:
            value = known.get(node.input[place]) if place < len(node.input) else None
            if isinstance(value, np.ndarray) and not _sound(value):
                return str(node.op_type)
    return ""


def _known(subject: Subject) -> Iterator[tuple[str, Value]]:
    yield from subject.inputs.items()
    for _, graph in graphs(subject.model.graph):
        for tensor in graph.initializer:
            yield tensor.name, tensor_array(tensor)
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                yield node.output[0], constant_array(node)


def _sound(scale: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bool:
    with np.errstate(all="ignore"):
        wide = scale.astype(np.float64)
    return bool((np.isfinite(wide) & (wide > 0)).all())
