"""Scales of quantised operators: an edit must not make one zero, negative or infinite, which is undefined."""

import numpy as np
import onnx

from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.structure import all_nodes
from opsieve.reducer.onnx_edit.typed_view import stored_tensors


def bad_scale(subject: Subject) -> str:
    """The operator whose scale, an input or a stored tensor, is not positive and finite everywhere; ""
    without one.
    """
    nodes = [(node, found) for node in all_nodes(subject.model.graph.node) if (found := _scales(node))]
    if not nodes:
        return ""
    known = {tensor.name: tensor.array for tensor in stored_tensors(subject)}
    for node, scales in nodes:
        for place in scales:
            value = known.get(node.input[place]) if place < len(node.input) else None
            if value is not None and not _sound(value):
                return str(node.op_type)
    return ""


def _scales(node: onnx.NodeProto) -> tuple[int, ...]:
    """Which inputs of a node are scales."""
    operator = find_operator(node.domain, node.op_type)
    return () if operator is None else operator.scales


def _sound(scale: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bool:
    with np.errstate(all="ignore"):
        wide = scale.astype(np.float64)
    return bool((np.isfinite(wide) & (wide > 0)).all())
