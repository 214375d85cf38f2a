"""Rank lowered: a leading dimension of size 1 taken from one stored tensor or input, or any of size 1 from
everything of the highest rank; or one element left of a tensor, where broadcasting gives the others back.

With a dimension of everything go the items that windows, paddings and shapes have for it.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx

from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.irs.onnx.edits import put_array, replace_tensor, set_attribute
from opsieve.gen.irs.onnx.view import Subject, attribute_of, held_array, node_at, stored_tensor
from opsieve.gen.model.structure import copied
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.dimension_classes import integer, integers, is_counted
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import (
    ABSENT,
    GraphTensor,
    Step,
    View,
    changing,
    only_simpler,
    view,
)
from opsieve.reducer.problem.order import OnnxEdit

_WINDOWS = ("kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape")


def lower_ranks(subject: Subject) -> Iterator[OnnxEdit]:
    """Drop dimensions of all tensors at once first; then of single tensors, if broadcasting restores them."""
    seen = view(subject)
    rank = max((len(tensor.shape) for tensor in seen.tensors if tensor.shape is not None), default=0)
    highest = [tensor for tensor in seen.tensors if tensor.shape is not None and len(tensor.shape) == rank]
    for axis in range(rank):
        if all(tensor.shape and tensor.shape[axis] == 1 for tensor in highest):
            names = {
                "/".join((*tensor.path, f"{tensor.name}[{axis}]")) for tensor in highest if tensor.source
            }
            what = f"lower rank {rank} everywhere" + (f" by axis {axis}" if axis else "")
            change = partial(_lower_rank, rank=rank, axis=axis)
            yield only_simpler(OnnxEdit(what, frozenset((*names, "the highest rank")), change))
    for number, tensor in enumerate(seen.tensors):
        if tensor.source and tensor.shape and not is_counted(seen, number):
            yield _narrow(tensor, tensor.shape)


def _narrow(tensor: GraphTensor, shape: tuple[int, ...]) -> OnnxEdit:
    """Take a leading dimension of size 1, or all elements of a tensor but one."""
    lowers = shape[0] == 1

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        old = held_array(model, inputs, tensor.path, tensor.name)
        if old is None or (old.shape[:1] != (1,) if lowers else old.size < 2):
            return None
        new = old.reshape(old.shape[1:]) if lowers else old.ravel()[:1].reshape(())
        return inputs if put_array(model, inputs, tensor.path, tensor.name, new) else None

    key = "/".join((*tensor.path, tensor.name))
    if lowers:
        return only_simpler(changing(f"lower the rank of {tensor.name[:40]!r}", {key + "[0]"}, change))
    sizes = [f"{key}[{axis}]" for axis in range(len(shape))]
    return only_simpler(changing(f"one element of {tensor.name[:40]!r}", {key}, change, sizes))


def _lower_rank(subject: Subject, rank: int, axis: int) -> Subject | None:
    """Remove a dimension of size 1 from every tensor of this rank, and update the attributes and constants
    that count axes.
    """
    seen = view(subject)
    model = copied(subject.model)
    inputs = dict(subject.inputs)
    for number, tensor in enumerate(seen.tensors):
        if tensor.shape is None or len(tensor.shape) != rank or not tensor.source:
            continue
        old = held_array(model, inputs, tensor.path, tensor.name)
        if tensor.shape[axis] != 1 or old is None or (number in seen.known and rank == 1):
            return None
        less = old.reshape((*old.shape[:axis], *old.shape[axis + 1 :]))
        if not put_array(model, inputs, tensor.path, tensor.name, less):
            return None
    for step in seen.steps:
        if not _recount_axes(seen, step, rank, axis, model):
            return None
    return settle(subject, model, inputs)


def _recount_axes(seen: View, step: Step, rank: int, axis: int, model: onnx.ModelProto) -> bool:
    """Update attributes and shape constants of one node for tensors of a lower rank; returns False if it
    names the dropped axis.
    """
    numbers = [number for number in (*step.inputs[:1], *step.outputs[:1]) if number != ABSENT]
    shapes = [seen.tensors[number].shape for number in numbers]
    if not any(shape is not None and len(shape) == rank for shape in shapes):
        return True
    node = node_at(model, step.path, step.key)
    if node is None:
        return False
    # The output of a Reshape may have this rank although its input does not: only the output's sizes count.
    counted = shapes[-1] is not None and len(shapes[-1]) == rank
    operator = find_operator(step.node.domain, step.node.op_type) if counted else None
    for place in operator.per_axis if operator is not None else ():
        number = step.inputs[place] if place < len(step.inputs) else ABSENT
        if number != ABSENT and not _shorter(seen, number, rank, axis, model):
            return False
    named = integer(step, "axis", -1)
    if attribute_of(node, "axis") is not None:
        if named % rank == axis:
            return False
        set_attribute(node, "axis", _behind(named, rank, axis))
    axes, perm = integers(step, "axes"), integers(step, "perm")
    if axes is not None:
        left = _others(axes, rank, axis)
        if not left:
            return False
        set_attribute(node, "axes", left)
    if len(step.inputs) > 1 and step.inputs[1] in seen.known and _names_axes(step.node):
        target = seen.tensors[step.inputs[1]]
        left = _others([int(item) for item in seen.known[step.inputs[1]].ravel()], rank, axis)
        if not left or sum(step.inputs[1] in other.inputs for other in seen.steps) > 1:
            return False
        if target.source == "input" or not replace_tensor(
            model, target.path, target.name, np.array(left, np.int64)
        ):
            return False
    if perm is not None:
        if len(perm) != rank or perm[axis] != axis:
            return False
        set_attribute(node, "perm", [_behind(item, rank, axis) for item in perm if item != axis])
    for name in _WINDOWS:
        items = integers(step, name)
        if items is None:
            continue
        # Windows have items for the spatial axes only, which follow batch and channels. Pooling needs one
        # such axis.
        if rank < 4 or axis < 2 or len(items) % (rank - 2):
            return False
        set_attribute(node, name, [item for at, item in enumerate(items) if at % (rank - 2) != axis - 2])
    return True


def _names_axes(node: onnx.NodeProto) -> bool:
    """Return whether the operator's second input is called `axes`."""
    try:
        formal = onnx.defs.get_schema(node.op_type, node.domain).inputs
    except onnx.defs.SchemaError:
        # An operator of another domain has no schema that says which inputs may be scalars.
        return False
    return len(formal) > 1 and formal[1].name == "axes"


def _others(axes: list[int], rank: int, axis: int) -> list[int]:
    """Return the axes without one, renumbered."""
    return [_behind(item, rank, axis) for item in axes if item % rank != axis]


def _behind(item: int, rank: int, axis: int) -> int:
    """Return the same axis after another one is removed, counted from the same end."""
    if item < 0:
        return item + 1 if item % rank < axis else item
    return item - 1 if item > axis else item


def _shorter(seen: View, number: int, rank: int, axis: int, model: onnx.ModelProto) -> bool:
    """Remove a constant's items for an axis; returns False if that is impossible, or another node reads the
    constant too.
    """
    target = seen.tensors[number]
    old = stored_tensor(model, target.path, target.name)
    # An empty tensor stands for an input that is left out.
    if old is not None and not old.size:
        return True
    shared = sum(number in other.inputs for other in seen.steps) > 1
    if target.source == "input" or old is None or old.ndim != 1 or old.size % rank or shared:
        return False
    # Pads list all begins and then all ends, so each run of `rank` items has one for the axis.
    return replace_tensor(model, target.path, target.name, np.delete(old, range(axis, old.size, rank)))


PASS = ListedPass("ranks", lower_ranks)
