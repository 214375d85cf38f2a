"""Simplify inputs that are sequences: fewer tensors, smaller ones, zeros."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx

from opsieve.gen.irs.onnx.view import Array, Subject
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.typed_view import changing
from opsieve.reducer.problem.order import OnnxEdit


def simplify_sequences(subject: Subject) -> Iterator[OnnxEdit]:
    """Feed sequences of fewer tensors first, then of smaller ones, then of plainer ones; skips sequences that
    hold anything but tensors.
    """
    for name, value in subject.inputs.items():
        if isinstance(value, list) and value and all(isinstance(each, np.ndarray) for each in value):
            for what, plainer in _plainer([np.asarray(each) for each in value]):
                change = partial(_feed, name=name, old=value, plainer=plainer)
                yield changing(f"{what} of {name[:40]!r}", {name, name + "="}, change)


def _plainer(held: list[Array]) -> Iterator[tuple[str, list[Array]]]:
    count = len(held)
    yield "no tensor", []
    for left in dict.fromkeys((1, count // 2, count - 1)):
        if 0 < left < count:
            yield f"the first {left}", held[:left]
            yield f"the last {left}", held[-left:]
    yield "scalars", [each.ravel()[:1].reshape(()) if each.size else each for each in held]
    for most in (1, 2):
        cut = [each[tuple(slice(most) for _ in each.shape)].copy() for each in held]
        yield f"at most {most} in each dimension", cut
    for what, number in (("zeros", 0), ("ones", 1)):
        yield what, [np.full_like(each, "" if each.dtype.kind in "OUS" else number) for each in held]


def _feed(
    model: onnx.ModelProto, inputs: dict[str, Value], name: str, old: Value, plainer: list[Array]
) -> dict[str, Value] | None:
    info = next((each for each in model.graph.input if each.name == name), None)
    if info is None or inputs.get(name) is not old:
        return None
    element = info.type.sequence_type.elem_type
    if element.HasField("tensor_type"):
        # The declared shape was that of the old tensors.
        element.tensor_type.ClearField("shape")
    return {**inputs, name: plainer}


PASS = ListedPass("sequences", simplify_sequences)
