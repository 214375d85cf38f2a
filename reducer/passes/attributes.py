"""Attributes to their defaults or to simpler values, optional inputs and outputs left out, from the
operators' schemas.

What an attribute may become is decided by its kind: integers go to 0, 1 and by halves, reals to 0, 1, 0.5 or
fewer digits, lists item by item and as a whole, and shorter unless their length belongs to a rank (`pads`,
`strides`, `perm` ...). Whether the value makes sense to the operator is left to inference and to the check.
Dtypes, tensors and bodies are other passes' business.
"""

import math
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import AttributeProto, helper

from opsieve.gen.irs.onnx.edits import drop_unused, set_attribute
from opsieve.gen.irs.onnx.view import (
    Path,
    Subject,
    attribute_of,
    first_output,
    label,
    node_at,
    nodes,
    schema_of,
    uses,
)
from opsieve.gen.model.structure import bodies
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.retyping import DTYPE_ATTRIBUTES
from opsieve.reducer.onnx_edit.typed_view import changing, only_simpler
from opsieve.reducer.problem.order import OnnxEdit

# Lists with an item for each axis, or two: a shorter one contradicts the rank.
_RANKED = frozenset(
    (
        "kernel_shape",
        "pads",
        "strides",
        "dilations",
        "output_padding",
        "output_shape",
        "perm",
        "border",
        "scale",
        "scales",
    )
)
# Attributes that count something, for which 0 makes no sense.
_POSITIVE = frozenset(
    (
        *(
            "kernel_shape",
            "strides",
            "dilations",
            "group",
            "num_groups",
            "num_heads",
            "q_num_heads",
            "kv_num_heads",
        ),
        *("num_outputs", "blocksize", "hidden_size", "num_scan_inputs", "p", "size", "sample_size"),
    )
)
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
_VALUED = (
    AttributeProto.INT,
    AttributeProto.INTS,
    AttributeProto.FLOAT,
    AttributeProto.FLOATS,
    AttributeProto.STRING,
    AttributeProto.STRINGS,
)


def simplify_attributes(subject: Subject) -> Iterator[OnnxEdit]:
    """Drop attributes, optional inputs and outputs; then give attributes simpler values."""
    opsets = {entry.domain: entry.version for entry in subject.model.opset_import}
    local = {(function.domain, function.name) for function in subject.model.functions}
    finer: list[tuple[Path, onnx.NodeProto, AttributeProto]] = []
    used = uses(subject.model.graph)
    for path, node in nodes(subject.model.graph):
        if not first_output(node):
            continue
        schema = None
        if (node.domain, node.op_type) not in local:
            schema = schema_of(node.op_type, node.domain, opsets.get(node.domain, 0))
        yield from _omissions(path, node, schema, used)
        for attribute in node.attribute:
            if (
                attribute.type in _VALUED
                and attribute.name not in DTYPE_ATTRIBUTES
                and node.op_type != "Constant"
            ):
                declared = schema.attributes.get(attribute.name) if schema else None
                if declared is None or not declared.required:
                    yield _edit(path, node, attribute.name, None)
                finer.append((path, node, attribute))
            # Without a value ConstantOfShape fills with 0 of float32.
            elif attribute.name == "value" and node.op_type == "ConstantOfShape":
                yield _edit(path, node, attribute.name, None)
    for path, node, attribute in finer:
        value = helper.get_attribute_value(attribute)
        for simpler in _simpler(attribute.name, value):
            yield _edit(path, node, attribute.name, simpler)


def _edit(path: Path, node: onnx.NodeProto, name: str, value: Any) -> OnnxEdit:
    key = first_output(node)
    old = next(helper.get_attribute_value(item) for item in node.attribute if item.name == name)

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        target = node_at(model, path, key)
        found = None if target is None else attribute_of(target, name)
        if (
            target is None
            or found is None
            or (value is not None and helper.get_attribute_value(found) != old)
        ):
            return None
        set_attribute(target, name, value)
        return inputs if _padding_fits(target) else None

    verb = f"drop {name} of" if value is None else f"set {name} to {str(value)[:40]} in"
    edit = changing(f"{verb} {label(node)}", {"/".join((*path, key, "@" + name))}, change)
    # Permutations of one rank are equally complex, so only the order of their bytes makes the edits end.
    return only_simpler(edit) if name == "perm" else edit


def _padding_fits(node: onnx.NodeProto) -> bool:
    """Return whether every window of a pool touches more than padding: ONNX leaves the result open otherwise,
    and most engines refuse it.
    """
    kernel, pads = attribute_of(node, "kernel_shape"), attribute_of(node, "pads")
    if kernel is None or pads is None or not node.op_type.endswith("Pool"):
        return True
    return all(pad < kernel.ints[place % len(kernel.ints)] for place, pad in enumerate(pads.ints))


def _omissions(
    path: Path, node: onnx.NodeProto, schema: onnx.defs.OpSchema | None, used: set[str]
) -> Iterator[OnnxEdit]:
    """Drop optional inputs, and optional outputs without a reader."""
    if schema is None:
        return
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    for index, parameter in enumerate(schema.inputs[: len(node.input)]):
        # Without its trip count M a Loop ends only by its condition, which may be always true.
        endless = node.op_type == "Loop" and parameter.name == "M"
        if parameter.option == optional and node.input[index] and not endless:
            yield _omission(path, node, index, parameter.name)
            if index == len(node.input) - 1:
                # Exporters write an empty name here, and a compiler may count the inputs.
                yield _omission(path, node, index, parameter.name, is_named=True)
    if len(schema.inputs) and schema.inputs[-1].option == _VARIADIC:
        for index in range(len(node.input) - 1, len(schema.inputs) - 2, -1):
            if len(node.input) > schema.min_input:
                yield _omission(path, node, index, f"input {index}")
    variadic = bool(schema.outputs) and schema.outputs[-1].option == _VARIADIC
    for index in range(1, len(node.output)):
        last = variadic and index == len(node.output) - 1 >= schema.min_output and not any(bodies(node))
        spare = last or (not variadic and schema.outputs[index].option == optional)
        if node.output[index] and node.output[index] not in used and spare:
            yield _output_omission(path, node, index)


def _omission(path: Path, node: onnx.NodeProto, index: int, what: str, is_named: bool = False) -> OnnxEdit:
    """Leave out an input; with `is_named` an empty name stays in its place, even in the last one."""
    key, name = first_output(node), node.input[index]
    variadic = what.startswith("input ")

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        target = node_at(model, path, key)
        if target is None or len(target.input) <= index or target.input[index] != name:
            return None
        if variadic:
            del target.input[index]
        else:
            target.input[index] = ""
        while target.input and not target.input[-1] and not is_named:
            del target.input[-1]
        return drop_unused(model, inputs)

    how = ", its place stays" if is_named else ""
    return changing(f"leave out {what} of {label(node)}{how}", {"/".join((*path, key, f"<{index}"))}, change)


def _output_omission(path: Path, node: onnx.NodeProto, index: int) -> OnnxEdit:
    key, name = first_output(node), node.output[index]

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        target = node_at(model, path, key)
        if (
            target is None
            or len(target.output) <= index
            or target.output[index] != name
            or name in uses(model.graph)
        ):
            return None
        target.output[index] = ""
        while target.output and not target.output[-1]:
            del target.output[-1]
        return inputs

    return changing(
        f"leave out output {index} of {label(node)}", {"/".join((*path, key, f">{index}"))}, change
    )


def _simpler(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, bool | int):
        yield from _integers(value, name in _POSITIVE)
    elif isinstance(value, float):
        yield from _reals(value)
    elif isinstance(value, list) and value:
        yield from _lists(name, value)


def _integers(value: int, positive: bool) -> Iterator[int]:
    candidates = (0, 1, -1, -value, int(value / 2), value - 1 if value > 0 else value + 1)
    for candidate in dict.fromkeys(candidates):
        if _weight(candidate) < _weight(value) and (candidate > 0 or not positive):
            yield candidate


def _weight(value: int) -> int:
    # Halving a number always lowers this weight, so that edits come to an end.
    return abs(value).bit_length() + (value < 0)


def _reals(value: float) -> Iterator[float]:
    """0, 1, the nearest whole number, half and eighth: fractions of two are short in every float type."""
    if value == 0:
        return
    yield 0.0
    if value == 1:
        return
    yield 1.0
    if not math.isfinite(value):
        yield 2.0
        return
    found = {0.0, 1.0, value}
    for parts in (1, 2, 8):
        # Attributes are float32: values that large have no fraction.
        near = round(value * parts) / parts if abs(value) < 2**40 else value
        if near not in found and not (value * parts).is_integer():
            found.add(near)
            yield near
    if value.is_integer() and abs(value) > 2:
        yield 2.0


def _lists(name: str, values: list[Any]) -> Iterator[list[Any]]:
    if name == "perm":
        if values != sorted(values):
            yield sorted(values)
        for index in range(len(values) - 1):
            if values[index] > values[index + 1]:
                yield [*values[:index], values[index + 1], values[index], *values[index + 2 :]]
        return
    if name not in _RANKED and len(values) > 1:
        for index in range(len(values)):
            yield [*values[:index], *values[index + 1 :]]
    if isinstance(values[0], int):
        for splat in (1,) if name in _POSITIVE else (0, 1):
            if sum(map(_weight, values)) > _weight(splat) * len(values) and any(
                item != splat for item in values
            ):
                yield [splat] * len(values)
        for index, item in enumerate(values):
            for simpler in _integers(item, name in _POSITIVE):
                yield [*values[:index], simpler, *values[index + 1 :]]
    elif isinstance(values[0], float):
        for index, item in enumerate(values):
            for real in _reals(item):
                yield [*values[:index], real, *values[index + 1 :]]


PASS = ListedPass("attributes", simplify_attributes)
