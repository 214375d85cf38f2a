"""Scales of quantised operators: a step must not make one zero, negative or infinite, where nothing is
defined any more.
"""

from collections.abc import Iterator

import numpy as np
import onnx

from opsieve.gen.declarations.catalogue import declared
from opsieve.gen.irs.onnx.graphs import constant_array, graphs, tensor_array
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import Value


def bad_scale(subject: Subject) -> str:
    """The operator whose scale, an input or a stored tensor, is not positive and finite everywhere; ""
    without one.
    """
    nodes = [(node, found) for node in all_nodes(subject.model.graph.node) if (found := _scales(node))]
    if not nodes:
        return ""
    known = dict(_known(subject))
    for node, scales in nodes:
        for place in scales:
            value = known.get(node.input[place]) if place < len(node.input) else None
            if isinstance(value, np.ndarray) and not _sound(value):
                return str(node.op_type)
    return ""


def _scales(node: onnx.NodeProto) -> tuple[int, ...]:
    """Which inputs of a node are scales."""
    operator = declared(node.domain, node.op_type)
    return () if operator is None else operator.scales


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
