"""Values of ONNX models: equal initializers become one, and every tensor takes its smallest encoding."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from opsieve.gen.irs.onnx.edits import encode_array, keep, reread
from opsieve.gen.irs.onnx.view import Subject, graphs, list_definitions, stored_tensor
from opsieve.gen.model.attributes import tensor_array
from opsieve.gen.model.detached import part_of
from opsieve.gen.model.structure import copied
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.edits import EDITS
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import changing
from opsieve.reducer.passes.values import freeze_inputs, simplify_values
from opsieve.reducer.problem.order import OnnxEdit


def simplify_tensors(subject: Subject) -> Iterator[OnnxEdit]:
    """Inputs and initializers that go, then plainer values; encodings last."""
    yield from freeze_inputs(EDITS, subject)
    yield from _shares(subject)
    yield from simplify_values(EDITS, subject)
    if any(_encodings(copied(subject.model))):
        yield OnnxEdit("encode every tensor at its smallest", frozenset(("encodings",)), _encode)


def _shares(subject: Subject) -> Iterator[OnnxEdit]:
    """Replace equal initializers of the main graph by one of them."""
    for path, graph in graphs(subject.model.graph):
        if path:
            continue
        kept: dict[tuple[int, tuple[int, ...], bytes], str] = {}
        outputs = {info.name for info in graph.output} | {info.name for info in graph.input}
        for tensor in graph.initializer:
            array = tensor_array(tensor)
            # Strings are objects, whose bytes in numpy are addresses.
            if array is None or array.dtype.kind == "O":
                continue
            # Bytes, not values: 0.0 and -0.0 are equal numbers, but a failure may depend on the sign.
            key = (tensor.data_type, array.shape, array.tobytes())
            if key in kept and tensor.name not in outputs:
                yield _sharing(tensor.name, kept[key])
            kept.setdefault(key, tensor.name)


def _sharing(name: str, other: str) -> OnnxEdit:
    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        a, b = stored_tensor(model, (), name), stored_tensor(model, (), other)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            return None
        if not _rename_readers(model, name, other):
            return None
        return inputs

    return changing(f"share {other[:40]!r} instead of {name[:40]!r}", {name, other}, change, {name})


def _rename_readers(model: onnx.ModelProto, name: str, other: str) -> bool:
    """Redirect every reader of an initializer to another; returns False if a body redefines one of the
    names.
    """
    for path, graph in graphs(model.graph):
        defined = list_definitions(graph) if path else {info.name for info in graph.input}
        if {name, other} & defined or (path and any(info.name == name for info in graph.output)):
            return False
    reread(model.graph.node, {name: other})
    return keep(model.graph.initializer, lambda tensor: tensor.name != name)


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
