"""Dimensions shrunk together by symbolic classes, with re-inference: batch, channels, spatial sizes, sequence
lengths.

Values of inputs and stored tensors are cut to their leading elements, or their last; constants and attributes
that repeat a size (targets of Reshape and Expand, parts of Split, `kernel_shape`, `group`, indices of Gather)
follow. A dimension that the model leaves symbolic stays so: only the values that are fed shrink
(`opsieve.reducer.passes.model` makes it static).
"""

import numpy as np
import onnx

from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.irs.onnx.edits import put_array, set_attribute
from opsieve.gen.irs.onnx.view import Array, Subject, held_array, node_at
from opsieve.gen.irs.view import SizeClass
from opsieve.gen.model.structure import copied
from opsieve.reducer.onnx_edit.dimension_classes import Classes, Dim, integer
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.sizes import Sizes, adjust_attributes
from opsieve.reducer.onnx_edit.typed_view import ABSENT, Step, View, view


class _DimensionPlan:
    """A view with its classes, made once for all edits of a subject."""

    def __init__(self, seen: View) -> None:
        self.view = seen
        self.classes = Classes(seen)
        self.sizes = Sizes(self.classes)
        self.numbers = {(tensor.path, tensor.name): number for number, tensor in enumerate(seen.tensors)}
        # Tensors of which a constant states the sizes.
        self.targets = {
            step.outputs[0]
            for step in seen.steps
            if (listed := catalogue.shape_input(step.node.domain, step.node.op_type)) is not None
            and listed < len(step.inputs)
            and step.inputs[listed] in seen.known
        }

    def elements(self, number: int) -> int:
        """Return the number of elements of a tensor."""
        return int(np.prod(self.view.tensors[number].shape or (), dtype=np.int64))


def size_classes(subject: Subject) -> list[SizeClass]:
    """List the classes of dimensions of stored and fed tensors, and of those that a constant states; the
    classes with most elements come first.
    """
    plan = _DimensionPlan(view(subject))
    found = []
    for root, dims in plan.sizes.members.items():
        stored = [dim for dim in dims if plan.view.tensors[dim[0]].source]
        made = [dim for dim in dims if dim[0] in plan.targets]
        if stored or made:
            gain = sum(plan.elements(number) for number, _ in stored)
            found.append((-gain, root, stored or made))
    return [_class(plan, root, dims) for _, root, dims in sorted(found)]


def _class(plan: _DimensionPlan, root: Dim, dims: list[Dim]) -> SizeClass:
    tensors = plan.view.tensors
    names = [(tensors[number].path, tensors[number].name, axis) for number, axis in dims]
    path, name, axis = names[0]
    return SizeClass(
        f"dimension {axis} of {name[:40]!r}",
        plan.classes.size(root),
        frozenset("/".join((*path, f"{name}[{axis}]")) for path, name, axis in names),
        plan.sizes.is_held(root),
        (plan, (path, name), axis),
    )


def resize(subject: Subject, sizes: SizeClass, size: int, keep_last: bool) -> Subject | None:
    """Give the dimensions of a class a smaller size."""
    plan, key, axis = sizes.place
    # A plan is expensive, and edits that were merged before make the old one useless.
    here = plan if subject.model is plan.view.subject.model else _DimensionPlan(view(subject))
    number = here.numbers.get(key)
    if number is None or here.classes.size((number, axis)) <= size:
        return None
    return _shrunk(here, {here.classes.root((number, axis)): size}, keep_last)


def _shrunk(plan: _DimensionPlan, seeds: dict[Dim, int], last: bool) -> Subject | None:
    new = plan.sizes.solve(seeds)
    if new is None:
        return None
    subject = plan.view.subject
    model = copied(subject.model)
    inputs = dict(subject.inputs)
    values = _repeated_sizes(plan, new)
    if values is None:
        return None
    for root in new:
        for number, _ in plan.sizes.members.get(root, ()):
            tensor = plan.view.tensors[number]
            # Only stored and fed tensors are cut; what nodes compute follows from them.
            if tensor.source and number not in values:
                shape = plan.sizes.shape(number, new)
                old = held_array(model, inputs, tensor.path, tensor.name)
                if shape is None or old is None:
                    return None
                values[number] = old[
                    tuple(
                        slice(have - size, have) if last else slice(size)
                        for have, size in zip(old.shape, shape, strict=True)
                    )
                ]
    if not values:
        return None
    for number, array in values.items():
        tensor = plan.view.tensors[number]
        new_array = np.ascontiguousarray(array).reshape(array.shape)
        if not put_array(model, inputs, tensor.path, tensor.name, new_array):
            return None
    for place in plan.sizes.steps(new):
        _follow(plan, plan.view.steps[place], new, model)
    return settle(subject, model, inputs)


def _follow(plan: _DimensionPlan, step: Step, new: dict[Dim, int], model: onnx.ModelProto) -> None:
    """Update the attributes of a node that repeat sizes."""
    shapes = [plan.sizes.shape(number, new) if number != ABSENT else None for number in step.inputs]
    changed = adjust_attributes(step, shapes)
    target = node_at(model, step.path, step.key) if changed is not step.node else None
    if target is not None:
        target.CopyFrom(changed)
    if catalogue.size_rule(step.node.domain, step.node.op_type) is declaration.SizeRule.PARTED and any(
        attribute.name == "split" for attribute in step.node.attribute
    ):
        node = node_at(model, step.path, step.key)
        if node is not None:
            set_attribute(node, "split", _parts(plan, step, new))


def _parts(plan: _DimensionPlan, step: Step, new: dict[Dim, int]) -> list[int]:
    shapes = [plan.sizes.shape(number, new) or (1,) for number in step.outputs]
    axis = integer(step, "axis", 0)
    return [shape[axis] for shape in shapes]


def _repeated_sizes(plan: _DimensionPlan, new: dict[Dim, int]) -> dict[int, Array] | None:
    """Return the constants and inputs whose values repeat sizes, with their new values; `None` if two nodes
    disagree on one.
    """
    values: dict[int, Array] = {}
    known = plan.view.known
    for place in plan.sizes.steps(new):
        step = plan.view.steps[place]
        number, array = _sizes_of(plan, step, new)
        if array is None or not plan.view.tensors[number].source:
            continue
        shape = plan.sizes.shape(number, new)
        if shape != array.shape:
            array = array[tuple(slice(size) for size in shape or ())]
        if number in values and not np.array_equal(values[number], array):
            return None
        values[number] = array
    # A node that reads a shared constant and is not touched still wants the old value.
    for step in plan.view.steps:
        for number in values.keys() & set(step.inputs):
            wanted = _sizes_of(plan, step, new)
            if (
                wanted[0] == number
                and wanted[1] is not None
                and not np.array_equal(wanted[1], values[number])
            ):
                return None
    return {
        number: array for number, array in values.items() if not np.array_equal(array, known.get(number, ()))
    }


def _sizes_of(plan: _DimensionPlan, step: Step, new: dict[Dim, int]) -> tuple[int, Array | None]:
    """Return the input of a node that repeats sizes, and the value it must have."""
    known, rule = plan.view.known, catalogue.size_rule(step.node.domain, step.node.op_type)
    out = plan.sizes.shape(step.outputs[0], new) if step.outputs and step.outputs[0] != ABSENT else None
    if out is None or not step.inputs:
        return ABSENT, None
    place = 0 if rule is declaration.SizeRule.FILLED else 1
    number = step.inputs[place] if place < len(step.inputs) else ABSENT
    if rule is declaration.SizeRule.INDEXED and number != ABSENT:
        return number, _indices(plan, step, new)
    old = known.get(number)
    if old is None or old.ndim != 1:
        return ABSENT, None
    wanted = _list_sizes(plan, step, rule, old, out, new)
    return (ABSENT if wanted is None else number), wanted


def _list_sizes(
    plan: _DimensionPlan,
    step: Step,
    rule: declaration.SizeRule,
    old: Array,
    out: tuple[int, ...],
    new: dict[Dim, int],
) -> Array | None:
    """Return the vector of sizes that gives an output its shape; `None` if it is not such a vector."""
    if rule is declaration.SizeRule.FILLED and old.size == len(out):
        return np.array(out, dtype=old.dtype)
    if (
        rule is declaration.SizeRule.REGROUPED
        and catalogue.shape_input(step.node.domain, step.node.op_type) is not None
        and old.size == len(out)
    ):
        keep = [
            # In a Reshape -1 is inferred, and 0 copies the input's size unless `allowzero` is set: both
            # follow by themselves.
            item if item == -1 or (item == 0 and not integer(step, "allowzero", 0)) else size
            for item, size in zip(old.tolist(), out, strict=True)
        ]
        return np.array(keep, dtype=old.dtype)
    if rule is declaration.SizeRule.GROWN:
        # An Expand aligns shapes at their last axes, and 1 keeps the input's size.
        tail = out[len(out) - old.size :]
        return np.array([1 if item == 1 else size for item, size in zip(old, tail, strict=True)], old.dtype)
    if rule is declaration.SizeRule.PARTED:
        return np.array(_parts(plan, step, new), dtype=old.dtype)
    return None


def _indices(plan: _DimensionPlan, step: Step, new: dict[Dim, int]) -> Array | None:
    """Return stored indices, wrapped into the remaining size of the axis they point into."""
    data = plan.sizes.shape(step.inputs[0], new)
    tensor = plan.view.tensors[step.inputs[1]]
    if not data or not tensor.source:
        return None
    subject = plan.view.subject
    old = held_array(subject.model, subject.inputs, tensor.path, tensor.name)
    if old is None:
        return None
    size = data[integer(step, "axis", 0) % len(data)]
    # Indices from -size to size - 1 are valid; only those that the smaller axis leaves out are wrapped.
    return np.where((old >= size) | (old < -size), old % size, old).astype(old.dtype)
