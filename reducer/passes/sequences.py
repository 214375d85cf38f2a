"""Simplify inputs that are sequences: fewer tensors, smaller ones, zeros."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import onnx

from opsieve.gen.irs.onnx.view import Array, Subject
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.typed_view import changing
from opsieve.reducer.problem.order import OnnxEdit

_Tensors = list[Array]


def simplify_sequences(subject: Subject) -> Iterator[OnnxEdit]:
    """Feed sequences of fewer tensors first, then of smaller ones, then of plainer ones; skips sequences that
    hold anything but tensors.
    """
    for name, value in subject.inputs.items():
        if isinstance(value, list) and value and all(isinstance(each, np.ndarray) for each in value):
            for what, change in _changes(len(value)):
                yield changing(
                    f"{what} of {name[:40]!r}",
                    {name, name + "="},
                    partial(_change_input, name=name, change=change),
                )


def _changes(count: int) -> Iterator[tuple[str, Callable[[_Tensors], _Tensors]]]:
    for left in dict.fromkeys((1, count // 2, count - 1)):
        if 0 < left < count:
            yield f"the first {left}", partial(_part, part=slice(left))
            yield f"the last {left}", partial(_part, part=slice(-left, None))
    yield "scalars", partial(_each, change=_scalar)
    for most in (1, 2):
        yield f"at most {most} in each dimension", partial(_each, change=partial(_cut, most=most))
    yield "zeros", partial(_each, change=partial(_fill_array, number=0))
    yield "ones", partial(_each, change=partial(_fill_array, number=1))


def _part(held: _Tensors, part: slice) -> _Tensors:
    return held[part]


def _each(held: _Tensors, change: Callable[[Array], Array]) -> _Tensors:
    return list(map(change, held))


def _scalar(array: Array) -> Array:
    return array.ravel()[:1].reshape(()) if array.size else array


def _fill_array(array: Array, number: int) -> Array:
    return np.full_like(array, "" if array.dtype.kind in "OUS" else number)


def _cut(array: Array, most: int) -> Array:
    return np.ascontiguousarray(array[tuple(slice(most) for _ in array.shape)]).reshape(
        [min(most, side) for side in array.shape]
    )


def _change_input(
    model: onnx.ModelProto, inputs: dict[str, Value], name: str, change: Callable[[_Tensors], _Tensors]
) -> dict[str, Value] | None:
    held = inputs.get(name)
    info = next((each for each in model.graph.input if each.name == name), None)
    if info is None or not isinstance(held, list) or not all(isinstance(each, np.ndarray) for each in held):
        return None
    element = info.type.sequence_type.elem_type
    if element.HasField("tensor_type"):
        # The declared shape was that of the old tensors.
        element.tensor_type.ClearField("shape")
    return {**inputs, name: change([np.asarray(each) for each in held])}


PASS = ListedPass("sequences", simplify_sequences)
