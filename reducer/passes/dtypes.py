"""Dtypes simplified: float64 to float32, int64 to int32, float16, bool and string to float32 and so on, as
far as the operators' types allow.

Tensors that an operator's schema binds to one type variable, or that a body hands on, change together: they
form a class by union-find. A class may take a dtype when every type variable in it allows that and no member
is pinned (a shape that must be int64, the output of Shape, an operator without a schema). The dtype an
operator names in an attribute (Cast's `to`) follows.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.gen.irs.onnx.graphs import (
    Array,
    attribute_of,
    copied,
    encoded,
    node_at,
    replace_tensor,
    retyped_input,
    set_attribute,
    stored_tensor,
)
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.tensors import DTYPES, NUMBERS, dtype_name
from opsieve.reducer.onnx_edit.parts import DTYPE_ATTRIBUTES
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import ABSENT, Step, View, view
from opsieve.reducer.passes.attributes import schema_of
from opsieve.reducer.problem.onnx_form import OnnxEdit
from opsieve.reducer.problem.order import DTYPE_RANKS

_NAMING = frozenset(("to", "dtype", "output_dtype", "output_datatype"))
_TARGETS = ("float32", "int32", "int64")
_NUMERIC = "biufV"
_TEXTS = 5  # numbers that stand for texts, one after the other


class DtypePass:
    """All classes of a dtype at once, then each by itself."""

    name = "dtypes"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """From each dtype to every simpler one of float32, int32 and int64."""
        plan = _DtypePlan(view(subject))
        together: dict[tuple[int, int], list[int]] = {}
        for root, members in plan.members.items():
            for target in _targets(plan.view.tensors[root].dtype):
                if plan.allows(members, target):
                    together.setdefault((plan.view.tensors[root].dtype, target), []).append(root)
        for (dtype, target), roots in sorted(together.items(), key=lambda item: -len(item[1])):
            if len(roots) > 1:
                yield _edit(plan, roots, dtype, target)
        for (dtype, target), roots in together.items():
            for root in roots:
                yield _edit(plan, [root], dtype, target)


class _DtypePlan:
    def __init__(self, seen: View) -> None:
        self.view = seen
        self._parent = list(range(len(seen.tensors)))
        self._allowed: dict[int, list[frozenset[str]]] = {}
        self._pinned: set[int] = set()
        local = {(function.domain, function.name) for function in seen.subject.model.functions}
        for step in seen.steps:
            if step.bodies:
                self._join_bodies(step)
            elif (step.node.domain, step.node.op_type) in local:
                self._pinned.update({*step.inputs, *step.outputs} - {ABSENT})
            else:
                self._join_variables(step)
        self.members: dict[int, list[int]] = {}
        for number, tensor in enumerate(seen.tensors):
            if tensor.dtype:
                self.members.setdefault(self.root(number), []).append(number)
        self.numbers = {(tensor.path, tensor.name): number for number, tensor in enumerate(seen.tensors)}

    def root(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number

    def allows(self, members: list[int], target: int) -> bool:
        """Whether every member may have the dtype."""
        wanted = f"tensor({helper.tensor_dtype_to_string(target).removeprefix('TensorProto.').lower()})"
        wanted = wanted.replace("(float32)", "(float)")
        return not any(
            number in self._pinned or any(wanted not in allowed for allowed in self._allowed.get(number, ()))
            for number in members
        )

    def _join(self, a: int, b: int) -> None:
        if a != ABSENT and b != ABSENT:
            x, y = self.root(a), self.root(b)
            self._parent[max(x, y)] = min(x, y)

    def _join_bodies(self, step: Step) -> None:
        kind = step.node.op_type
        first = {"Loop": 2, "Scan": 0}.get(kind, len(step.inputs))
        self._pinned.update(set(step.inputs[:first]) - {ABSENT})
        for body in step.bodies:
            skipped = 1 if kind == "Loop" else 0
            self._pinned.update(set(body.outputs[:skipped]) - {ABSENT})
            self._pinned.update(set(body.inputs[: first if kind == "Loop" else 0]) - {ABSENT})
            for outer, inner in zip(step.outputs, body.outputs[skipped:], strict=False):
                self._join(outer, inner)
            given = step.inputs[first:]
            for outer, inner in zip(given, body.inputs[first if kind == "Loop" else 0 :], strict=False):
                self._join(outer, inner)
            if kind != "If":
                carried = len(given) if kind == "Loop" else len(step.outputs)
                inner_inputs = body.inputs[first if kind == "Loop" else 0 :]
                for inner, after in zip(inner_inputs[:carried], body.outputs[skipped:], strict=False):
                    if kind == "Loop":
                        self._join(inner, after)

    def _join_variables(self, step: Step) -> None:
        schema = schema_of(step.node.op_type, step.node.domain, step.version)
        if schema is None:
            self._pinned.update({*step.inputs, *step.outputs} - {ABSENT})
            return
        if step.node.op_type == "Constant":
            return
        allowed = {item.type_param_str: frozenset(item.allowed_type_strs) for item in schema.type_constraints}
        first: dict[str, int] = {}
        for numbers, parameters in ((step.inputs, schema.inputs), (step.outputs, schema.outputs)):
            for place, number in enumerate(numbers):
                if number == ABSENT or not parameters:
                    continue
                parameter = parameters[min(place, len(parameters) - 1)]
                variable = parameter.type_str
                if variable not in allowed:
                    self._pinned.add(number)  # a fixed type
                    continue
                self._allowed.setdefault(number, []).append(allowed[variable])
                if place < len(parameters) or parameter.is_homogeneous:
                    self._join(first.setdefault(variable, number), number)


def _targets(dtype: int) -> list[int]:
    name = DTYPES.get(dtype, "")
    rank = DTYPE_RANKS.get(name, len(DTYPE_RANKS))
    if not name:
        return []
    whole = "int" in name or name == "bool"
    return [
        NUMBERS[target]
        for target in (_TARGETS if whole else _TARGETS[:1])
        if DTYPE_RANKS[target] < rank and target != name
    ]


def _edit(plan: _DtypePlan, roots: list[int], dtype: int, target: int) -> OnnxEdit:
    tensors = plan.view.tensors
    names = [(tensors[root].path, tensors[root].name) for root in roots]
    members = [number for root in roots for number in plan.members[root]]

    def apply(subject: Subject) -> Subject | None:
        here = plan if subject.model is plan.view.subject.model else _DtypePlan(view(subject))
        found = {here.root(here.numbers[name]) for name in names if name in here.numbers}
        left = {
            number
            for root in found
            if here.view.tensors[root].dtype == dtype and here.allows(here.members[root], target)
            for number in here.members[root]
        }
        return _converted(here, left, target) if left else None

    what = f"{len(roots)} classes of tensors" if len(roots) > 1 else repr(names[0][1][:40])
    return OnnxEdit(
        f"turn {what} from {DTYPES[dtype]} to {DTYPES[target]}",
        frozenset("/".join((*tensors[number].path, tensors[number].name + ":")) for number in members),
        apply,
    )


def _converted(plan: _DtypePlan, numbers: set[int], target: int) -> Subject | None:
    subject = plan.view.subject
    model = copied(subject.model)
    inputs = dict(subject.inputs)
    changed = False
    for number in sorted(numbers):
        tensor = plan.view.tensors[number]
        if not tensor.source:
            continue
        old = (
            inputs.get(tensor.name)
            if tensor.source == "input"
            else stored_tensor(model, tensor.path, tensor.name)
        )
        new = _cast(old, target) if isinstance(old, np.ndarray) else None
        if new is None:
            return None
        changed = True
        if tensor.source == "input":
            inputs[tensor.name] = new
            retyped_input(model, tensor.name, new)
        elif not replace_tensor(model, tensor.path, tensor.name, new):
            return None
    for step in plan.view.steps:
        if step.outputs and step.outputs[0] in numbers and step.node.op_type != "Constant":
            changed |= _rename_dtype(model, step, target)
    return settle(subject, model, inputs) if changed else None


def _rename_dtype(model: onnx.ModelProto, step: Step, target: int) -> bool:
    """Attributes that tell the output's dtype; whether there was one."""
    for attribute in step.node.attribute:
        if attribute.name in _NAMING and attribute.name in DTYPE_ATTRIBUTES and attribute.i:
            node = node_at(model, step.path, step.key)
            if node is not None:
                set_attribute(node, attribute.name, target)
                return True
    if step.node.op_type == "ConstantOfShape":
        node = node_at(model, step.path, step.key)
        value = None if node is None else attribute_of(node, "value")
        if node is not None and value is not None and value.HasField("t"):
            old = onnx.numpy_helper.to_array(value.t)
            new = _cast(old, target)
            if new is not None:
                set_attribute(node, "value", encoded(new))
                return True
    return False


def _cast(array: Array, target: int) -> Array | None:
    """The values in the other dtype; out of its range they are clipped, what is no number cannot be an
    integer, texts become whole numbers.
    """
    if dtype_name(array) == "string":
        array = (np.arange(array.size) % _TEXTS).reshape(array.shape)
    if array.dtype.kind == "c":
        array = array.real
    if array.dtype.kind not in _NUMERIC and dtype_name(array) not in NUMBERS:
        return None
    dtype = helper.tensor_dtype_to_np_dtype(target)
    with np.errstate(all="ignore"):
        if target in (TensorProto.INT32, TensorProto.INT64):
            wide = array.astype(np.int64)
            bounds = np.iinfo(dtype)
            return np.clip(wide, bounds.min, bounds.max).astype(dtype)
        limit = float(np.finfo(np.float32).max)
        wide_reals = array.astype(np.float64)
        return np.where(np.isfinite(wide_reals), np.clip(wide_reals, -limit, limit), wide_reals).astype(dtype)


PASS = DtypePass()
