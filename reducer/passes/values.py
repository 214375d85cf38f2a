"""Values of inputs, initializers and constants made plain: splats, small whole numbers, fewer distinct ones,
fewer digits.

An input may also become an initializer (an input less), equal initializers become one, and every tensor takes
its smallest encoding. What is simpler is decided by `opsieve.reducer.problem.order.value_complexity`; nothing
that is not is proposed.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto

from opsieve.gen.irs.onnx.graphs import (
    Array,
    Path,
    add_initializers,
    constant_array,
    copied,
    encoded,
    graphs,
    replace_tensor,
    stored_tensor,
    tensor_array,
)
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.detached import part_of
from opsieve.gen.model.tensors import Value, dtype_name
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import changing
from opsieve.reducer.problem.onnx_form import OnnxEdit
from opsieve.reducer.problem.order import value_complexity

_SINGLE = 16  # elements up to which each is simplified by itself
_Place = tuple[Path, str, str]  # graph, name, `input` or `stored`


class ValuePass:
    """Plainer values, fewer and smaller stored tensors."""

    name = "values"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """Whole tensors first, the largest first; then single elements; encodings last."""
        yield from _freezes(subject)
        yield from _shares(subject)
        found = sorted(_places(subject), key=lambda item: -item[1].size)
        for place, array in found:
            cost = value_complexity(array)
            for what, plainer in _plainer(array):
                if value_complexity(plainer) < cost:
                    yield _edit(place, array, plainer, what)
        for place, array in found:
            if 1 < array.size <= _SINGLE:
                yield from _elements(place, array)
        if any(_encodings(copied(subject.model))):
            yield OnnxEdit("encode every tensor at its smallest", frozenset(("encodings",)), _encode)


def _places(subject: Subject) -> Iterator[tuple[_Place, Array]]:
    for name, value in subject.inputs.items():
        if isinstance(value, np.ndarray):
            yield ((), name, "input"), value
    for path, graph in graphs(subject.model.graph):
        for tensor in graph.initializer:
            array = tensor_array(tensor)
            if array is not None:
                yield (path, tensor.name, "stored"), array
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                array = constant_array(node)
                if array is not None:
                    yield (path, node.output[0], "stored"), array


def _plainer(array: Array) -> Iterator[tuple[str, Array]]:
    """Arrays of the same type and shape that may be plainer, the plainest first."""
    if array.size == 0 or dtype_name(array).startswith("complex"):
        return
    if dtype_name(array) == "string":
        yield "empty strings", np.full_like(array, "")
        yield "one string", np.full_like(array, array.ravel()[0])
        return
    yield "zeros", np.zeros_like(array)
    yield "ones", np.ones_like(array)
    if array.dtype == bool:
        return
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        first = np.full_like(array, array.ravel()[0])
        if array.size > 1:
            yield "its first value", first
            yield "small whole numbers", (np.arange(array.size) % 4).reshape(array.shape).astype(array.dtype)
            yield "its signs", np.nan_to_num(np.sign(wide)).astype(array.dtype)
            yield (
                "two values",
                np.where(wide > np.nanmedian(wide), array.ravel()[-1], array.ravel()[0]).astype(array.dtype),
            )
        if "int" not in dtype_name(array):
            for what, parts in (("whole numbers", 1.0), ("halves", 2.0), ("eighths", 8.0)):
                rounded = np.where(np.isfinite(wide), np.rint(np.clip(wide, -1e6, 1e6) * parts) / parts, wide)
                yield f"rounded to {what}", rounded.astype(array.dtype)
            yield "finite numbers", np.nan_to_num(wide, nan=0, posinf=2, neginf=-2).astype(array.dtype)
        else:
            yield "halved", (wide / 2).astype(array.dtype)
            yield "at most 2", np.clip(array, -1 if array.dtype.kind == "i" else 0, 2).astype(array.dtype)
        yield "absolute values", np.abs(wide).astype(array.dtype)


def _elements(place: _Place, array: Array) -> Iterator[OnnxEdit]:
    if dtype_name(array) == "string" or dtype_name(array).startswith("complex"):
        return
    cost = value_complexity(array)
    flat = array.ravel()
    for index in range(array.size):
        seen = set()
        for item in (
            0,
            1,
            flat[0],
            np.rint(flat[index].astype(np.float64)),
            flat[index].astype(np.float64) / 2,
        ):
            changed = flat.copy()
            with np.errstate(all="ignore"):
                changed[index] = np.asarray(item).astype(array.dtype)
            key = changed.tobytes()
            if key not in seen and value_complexity(changed) < cost:
                seen.add(key)
                yield _edit(place, array, changed.reshape(array.shape), f"a plainer element {index}")


def _edit(place: _Place, old: Array, new: Array, what: str) -> OnnxEdit:
    path, name, kind = place

    def same(found: Value) -> bool:
        return (
            isinstance(found, np.ndarray)
            and found.dtype == old.dtype
            and found.shape == old.shape
            and bool(np.array_equal(found, old, equal_nan=found.dtype.kind == "f"))
        )

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        if kind == "input":
            if not same(inputs.get(name)):
                return None
            return {**inputs, name: new}
        return (
            inputs
            if same(stored_tensor(model, path, name)) and replace_tensor(model, path, name, new)
            else None
        )

    return changing(f"give {name[:40]!r} {what}", {"/".join((*path, name + "="))}, change)


def _freezes(subject: Subject) -> Iterator[OnnxEdit]:
    """An input made an initializer: an input less, and its value is part of the model."""
    for name, value in subject.inputs.items():
        if not isinstance(value, np.ndarray):
            continue

        def change(
            model: onnx.ModelProto, inputs: dict[str, Value], name: str = name
        ) -> dict[str, Value] | None:
            value = inputs.get(name)
            places = [index for index, info in enumerate(model.graph.input) if info.name == name]
            if not places or not isinstance(value, np.ndarray):
                return None
            if any(info.name == name for info in model.graph.output):
                return None
            del model.graph.input[places[0]]
            add_initializers(model, model.graph, [encoded(value, name)])
            return {key: item for key, item in inputs.items() if key != name}

        yield changing(f"make the input {name[:40]!r} a constant", {name, name + "="}, change, {name})


def _shares(subject: Subject) -> Iterator[OnnxEdit]:
    """Equal initializers of one graph made one."""
    for path, graph in graphs(subject.model.graph):
        if path:
            continue
        kept: dict[tuple[int, tuple[int, ...], bytes], str] = {}
        outputs = {info.name for info in graph.output} | {info.name for info in graph.input}
        for tensor in graph.initializer:
            array = tensor_array(tensor)
            if array is None or array.dtype.kind == "O":
                continue
            key = (tensor.data_type, array.shape, array.tobytes())
            if key in kept and tensor.name not in outputs:
                yield _sharing(tensor.name, kept[key])
            kept.setdefault(key, tensor.name)


def _sharing(name: str, other: str) -> OnnxEdit:
    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        a, b = stored_tensor(model, (), name), stored_tensor(model, (), other)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            return None
        if not _renamed(model, name, other):
            return None
        return inputs

    return changing(f"share {other[:40]!r} instead of {name[:40]!r}", {name, other}, change, {name})


def _renamed(model: onnx.ModelProto, name: str, other: str) -> bool:
    """Let every reader of an initializer read another; False when a body defines one of the names anew."""
    for path, graph in graphs(model.graph):
        defined = {info.name for info in graph.input} | {item for node in graph.node for item in node.output}
        if path:
            defined |= {tensor.name for tensor in graph.initializer}
            if any(info.name == name for info in graph.output):
                return False
        if {name, other} & defined:
            return False
    for _, graph in graphs(model.graph):
        for node in graph.node:
            for place, item in enumerate(node.input):
                if item == name:
                    node.input[place] = other
    index = next((place for place, tensor in enumerate(model.graph.initializer) if tensor.name == name), None)
    if index is None:
        return False
    del model.graph.initializer[index]
    return True


def _encodings(model: onnx.ModelProto) -> Iterator[bool]:
    """Re-encode the tensors of a copy one by one; an item for each that got smaller."""
    for _, graph in graphs(model.graph):
        tensors: list[TensorProto] = list(graph.initializer)
        tensors += [
            attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")
        ]
        for tensor in tensors:
            # what is that large has no smaller encoding
            array = None if part_of(tensor) else tensor_array(tensor)
            if array is None:
                continue
            smaller = encoded(array, tensor.name)
            if smaller.ByteSize() < tensor.ByteSize():
                tensor.CopyFrom(smaller)
                yield True


def _encode(subject: Subject) -> Subject | None:
    model = copied(subject.model)
    changed = sum(_encodings(model))
    return settle(subject, model) if changed else None


PASS = ValuePass()
