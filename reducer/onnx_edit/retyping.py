"""Dtypes simplified: float64 to float32, int64 to int32, float16, bool and string to float32 and so on, as
far as the operators' types allow.

Tensors that an operator's schema binds to one type variable, or that a body hands on, change together: they
form a class by union-find. A class may take a dtype when every type variable in it allows that and no member
is pinned (a shape that must be int64, the output of Shape, an operator without a schema). The dtype an
operator names in an attribute (Cast's `to`) follows.
"""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.gen.irs.onnx.edits import encode_array, put_array, set_attribute
from opsieve.gen.irs.onnx.view import Array, Subject, attribute_of, held_array, node_at, schema_of
from opsieve.gen.irs.view import TypeClass
from opsieve.gen.model.structure import copied, ports_of
from opsieve.gen.model.tensors import DTYPES, NUMBERS, dtype_name
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import ABSENT, Step, UnionFind, View, view
from opsieve.reducer.problem.order import PLAIN_DTYPES

# Attributes that name an element type; `reducer/passes/values.py` changes them with the tensors that have it.
_NAMING = frozenset(("to", "dtype", "output_dtype", "output_datatype"))
DTYPE_ATTRIBUTES = _NAMING | {"stash_type", "softmax_precision"}
_NUMERIC = "biufV"
# The number of distinct texts in place of numbers.
_TEXTS = 5


class _DtypePlan(UnionFind[int]):
    def __init__(self, seen: View) -> None:
        super().__init__()
        self.view = seen
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

    def allows(self, members: list[int], target: int) -> bool:
        """Return whether every member may have the dtype."""
        wanted = f"tensor({helper.tensor_dtype_to_string(target).removeprefix('TensorProto.').lower()})"
        wanted = wanted.replace("(float32)", "(float)")
        return not any(
            number in self._pinned or any(wanted not in allowed for allowed in self._allowed.get(number, ()))
            for number in members
        )

    def _join(self, a: int, b: int) -> None:
        if a != ABSENT and b != ABSENT:
            self.unite(a, b)

    def _join_bodies(self, step: Step) -> None:
        ports = ports_of(step.node)
        # A trip count is int64 and a condition bool, within the body too.
        pinned = {*step.inputs[: ports.operands]}
        for body in step.bodies:
            inner, made = body.inputs[ports.inputs :], body.outputs[ports.results :]
            pinned.update((*body.inputs[: ports.inputs], *body.outputs[: ports.results]))
            for pairs in (
                zip(step.outputs, made, strict=False),
                zip(step.inputs[ports.operands :], inner, strict=False),
                zip(inner[: ports.states], made, strict=False),
            ):
                for one, other in pairs:
                    self._join(one, other)
        self._pinned |= pinned - {ABSENT}

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
                    # The schema names a type instead of a variable: it is fixed.
                    self._pinned.add(number)
                    continue
                self._allowed.setdefault(number, []).append(allowed[variable])
                # The inputs of a heterogeneous variadic parameter may each have a type of their own.
                if place < len(parameters) or parameter.is_homogeneous:
                    self._join(first.setdefault(variable, number), number)


def type_classes(subject: Subject) -> list[TypeClass]:
    """Return the classes of tensors that have one element type."""
    plan = _DtypePlan(view(subject))
    found = []
    for root, members in plan.members.items():
        tensors = [plan.view.tensors[number] for number in members]
        first = plan.view.tensors[root]
        found.append(
            TypeClass(
                repr(first.name[:40]),
                DTYPES.get(first.dtype, ""),
                frozenset("/".join((*tensor.path, tensor.name + ":")) for tensor in tensors),
                [name for name in PLAIN_DTYPES if plan.allows(members, NUMBERS[name])],
                (plan, (first.path, first.name)),
            )
        )
    return found


def retype(subject: Subject, classes: Sequence[TypeClass], dtype: str) -> Subject | None:
    """Give classes of tensors another element type, as far as they still may have it."""
    plan, target = classes[0].place[0], NUMBERS[dtype]
    here = plan if subject.model is plan.view.subject.model else _DtypePlan(view(subject))
    names = [each.place[1] for each in classes]
    left = {
        number
        for root in {here.root(here.numbers[name]) for name in names if name in here.numbers}
        if DTYPES.get(here.view.tensors[root].dtype) == classes[0].dtype
        and here.allows(here.members[root], target)
        for number in here.members[root]
    }
    return _convert_tensors(here, left, target) if left else None


def _convert_tensors(plan: _DtypePlan, numbers: set[int], target: int) -> Subject | None:
    subject = plan.view.subject
    model = copied(subject.model)
    inputs = dict(subject.inputs)
    changed = False
    for number in sorted(numbers):
        tensor = plan.view.tensors[number]
        if not tensor.source:
            continue
        old = held_array(model, inputs, tensor.path, tensor.name)
        new = None if old is None else _cast(old, target)
        if new is None or not put_array(model, inputs, tensor.path, tensor.name, new):
            return None
        changed = True
    for step in plan.view.steps:
        if step.outputs and step.outputs[0] in numbers and step.node.op_type != "Constant":
            changed |= _rename_dtype(model, step, target)
    return settle(subject, model, inputs) if changed else None


def _rename_dtype(model: onnx.ModelProto, step: Step, target: int) -> bool:
    """Update the attribute that names the output's dtype; returns whether there is one."""
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
                set_attribute(node, "value", encode_array(new))
                return True
    return False


def _cast(array: Array, target: int) -> Array | None:
    """Convert values to another dtype; out of its range they are clipped, NaN cannot become an integer, texts
    become whole numbers.
    """
    # A few distinct numbers, so that a failure that needs different texts can survive.
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
        # A float64 beyond the range of float32 would become infinite, which may hide the failure.
        limit = float(np.finfo(np.float32).max)
        wide_reals = array.astype(np.float64)
        return np.where(np.isfinite(wide_reals), np.clip(wide_reals, -limit, limit), wide_reals).astype(dtype)
