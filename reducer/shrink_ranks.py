"""Rank lowered: a leading dimension of size 1 taken from one stored tensor or input, or from everything of the highest rank."""

from collections.abc import Iterator

import numpy as np
import onnx

from opsieve.gen.tensors import DTYPES, Value
from opsieve.reducer.edit import Edit
from opsieve.reducer.shrink_classes import integer, integers
from opsieve.reducer.shrink_graph import (
    Array,
    copied,
    node_at,
    replace_tensor,
    retyped_input,
    set_attribute,
    stored_tensor,
)
from opsieve.reducer.shrink_view import ABSENT, Step, Tensor, View, changing, only_simpler, settle, view
from opsieve.reducer.subject import Subject

_COUNTED = ("Reshape", "Expand", "ConstantOfShape")


class RankPass:
    """Leading dimensions of size 1 dropped."""

    name = "ranks"

    def edits(self, subject: Subject) -> Iterator[Edit]:
        """From everything at once first, then from each tensor, where broadcasting gives the dimension back."""
        seen = view(subject)
        rank = max((len(tensor.shape) for tensor in seen.tensors if tensor.shape is not None), default=0)
        leading = [tensor for tensor in seen.tensors if tensor.shape is not None and len(tensor.shape) == rank]
        if rank and all(tensor.shape and tensor.shape[0] == 1 for tensor in leading):
            names = frozenset("/".join((*tensor.path, tensor.name + "[0]")) for tensor in leading if tensor.source)
            yield only_simpler(Edit(f"lower rank {rank} everywhere", names, lambda subject: _lowered(subject, rank)))
        for tensor in seen.tensors:
            vector = (
                tensor.shape is not None and len(tensor.shape) == 1 and DTYPES.get(tensor.dtype) in ("int64", "int32")
            )
            if (
                tensor.source and tensor.shape and tensor.shape[0] == 1 and not vector
            ):  # such a vector names axes or sizes
                yield _single(tensor)


def _single(tensor: Tensor) -> Edit:
    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        old = inputs.get(tensor.name) if tensor.source == "input" else stored_tensor(model, tensor.path, tensor.name)
        if not isinstance(old, np.ndarray) or old.ndim == 0 or old.shape[0] != 1:
            return None
        return inputs if _put(model, inputs, tensor, old.reshape(old.shape[1:])) else None

    touch = "/".join((*tensor.path, tensor.name + "[0]"))
    return only_simpler(changing(f"lower the rank of {tensor.name[:40]!r}", {touch}, change))


def _put(model: onnx.ModelProto, inputs: dict[str, Value], tensor: Tensor, array: Array) -> bool:
    if tensor.source != "input":
        return replace_tensor(model, tensor.path, tensor.name, array)
    inputs[tensor.name] = array
    retyped_input(model, tensor.name, array)
    return True


def _lowered(subject: Subject, rank: int) -> Subject | None:
    """Take the leading dimension from every tensor of this rank; attributes that count axes follow."""
    seen = view(subject)
    model = copied(subject.model)
    inputs = dict(subject.inputs)
    for number, tensor in enumerate(seen.tensors):
        if tensor.shape is None or len(tensor.shape) != rank or not tensor.source:
            continue
        old = inputs.get(tensor.name) if tensor.source == "input" else stored_tensor(model, tensor.path, tensor.name)
        if tensor.shape[0] != 1 or not isinstance(old, np.ndarray) or (number in seen.known and rank == 1):
            return None
        if not _put(model, inputs, tensor, old.reshape(old.shape[1:])):
            return None
    for step in seen.steps:
        if not _recounted(seen, step, rank, model):
            return None
    return settle(subject, model, inputs)


def _recounted(seen: View, step: Step, rank: int, model: onnx.ModelProto) -> bool:
    """Attributes and shape constants of one node, for tensors of a rank less; False where an axis is the dropped one."""
    numbers = [number for number in (*step.inputs[:1], *step.outputs[:1]) if number != ABSENT]
    shapes = [seen.tensors[number].shape for number in numbers]
    if not any(shape is not None and len(shape) == rank for shape in shapes):
        return True
    node = node_at(model, step.path, step.key)
    if node is None:
        return False
    if step.node.op_type in _COUNTED and (shape := shapes[-1]) is not None and len(shape) == rank:
        target = seen.tensors[step.inputs[-1]]
        old = stored_tensor(model, target.path, target.name)
        shared = sum(step.inputs[-1] in other.inputs for other in seen.steps) > 1
        if target.source == "input" or old is None or old.size != rank or old[0] != 1 or shared:
            return False
        return replace_tensor(model, target.path, target.name, old[1:])
    axis = integer(step, "axis", -1)
    if axis == 0 or axis == -rank:
        return False
    if axis > 0:
        set_attribute(node, "axis", axis - 1)
    axes, perm = integers(step, "axes"), integers(step, "perm")
    if axes is not None:
        if any(item % rank == 0 for item in axes):
            return False
        set_attribute(node, "axes", [item - 1 if item > 0 else item for item in axes])
    if perm is not None:
        if perm[0] != 0:
            return False
        set_attribute(node, "perm", [item - 1 for item in perm[1:]])
    return True


PASS = RankPass()
