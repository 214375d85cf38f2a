"""Values of ONNX models: inputs that become constants, plainer values, and the smallest encoding."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from opsieve.gen.irs.onnx.edits import encode_array
from opsieve.gen.irs.onnx.view import Subject, graphs
from opsieve.gen.model.attributes import tensor_array
from opsieve.gen.model.detached import part_of
from opsieve.gen.model.structure import copied
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.edits import EDITS
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.passes.values import freeze_inputs, simplify_values
from opsieve.reducer.problem.order import OnnxEdit


def simplify_tensors(subject: Subject) -> Iterator[OnnxEdit]:
    """Inputs and initializers that go, then plainer values; encodings last."""
    yield from freeze_inputs(EDITS, subject)
    yield from simplify_values(EDITS, subject)
    if any(_encodings(copied(subject.model))):
        yield OnnxEdit("encode every tensor at its smallest", frozenset(("encodings",)), _encode)


def _encodings(model: onnx.ModelProto) -> Iterator[bool]:
    """Re-encode the tensors of a copy one by one; an item for each that got smaller."""
    for _, graph in graphs(model.graph):
        tensors: list[TensorProto] = list(graph.initializer)
        tensors += [
            attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")
        ]
        for tensor in tensors:
            # Detached tensors are large and already stored as raw bytes.
            array = None if part_of(tensor) else tensor_array(tensor)
            if array is None:
                continue
            smaller = encode_array(array, tensor.name)
            if smaller.ByteSize() < tensor.ByteSize():
                tensor.CopyFrom(smaller)
                yield True


def _encode(subject: Subject) -> Subject | None:
    model = copied(subject.model)
    changed = sum(_encodings(model))
    return settle(subject, model) if changed else None


PASS = ListedPass("values", simplify_tensors)
