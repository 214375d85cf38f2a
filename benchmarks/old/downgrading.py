"""One-node programs of the newest opset rewritten to an older form of their operator, as `onnx.defs` has it.

Only validity is kept, not meaning: an input that is an attribute in the old form becomes one, attributes and
inputs that it lacks are left out, and what the old form alone has (`broadcast`, `consumed_inputs`, `is_test`)
is given. What the old form computes is for evaluators to say.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)
from onnx.defs import OpSchema

from opsieve.gen.model.tensors import read_tensor

Values = dict[str, Any]
# Inputs of a newer form under the names that older forms have for the attribute.
_FORMERLY: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("Pad", "constant_value"): ("value",),
    ("Pad", "pads"): ("pads", "paddings"),
    ("TopK", "K"): ("k",),
}
_OF_ONE_SHAPE = ("Max", "Mean", "Min", "Sum")  # before opset 8
_IR = ((9, 3), (10, 4), (11, 5), (12, 6), (13, 7))  # the IR version before each opset


class NotHad(Exception):
    """The old form does not have what this instance needs; the text says what."""


def downgrade(
    model: ModelProto, fed: Values, new_opset: int, old: OpSchema, opset: int
) -> tuple[ModelProto, Values]:
    """The program with the older form of its operator, and what it is fed; NotHad where the instance has no
    such form.
    """
    new = onnx.defs.get_schema(old.name, new_opset, "")
    values = {**fed, **{each.name: read_tensor(each) for each in model.graph.initializer}}
    nodes, used = [], []
    for node in model.graph.node:
        if node.op_type == old.name:
            held, names = _node(node, new, old, values)
        elif node.op_type == "Constant":
            values[node.output[0]] = _constant(node)
            continue
        elif _version(node.op_type, opset) == _version(node.op_type, new_opset):
            held, names = node, list(node.input)
        else:
            raise NotHad(f"the instance needs a {node.op_type} of today")
        nodes.append(held)
        used += [name for name in names if name not in used]
    made = {name for node in nodes for name in node.output}
    used = [name for name in used if name not in made]
    inputs = {name: values[name] for name in used if name}
    types = {value.name: value.type for value in model.graph.input}
    given = {value.name: value.type for value in model.graph.output}
    outputs = [
        ValueInfoProto(name=name, type=_unshaped(given[name]))
        for node in nodes
        for name in node.output
        if name in given
    ]
    return model_of(nodes, inputs, outputs, opset, types), inputs


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Values,
    outputs: Sequence[ValueInfoProto],
    opset: int,
    types: Mapping[str, TypeProto] = MappingProxyType({}),
) -> ModelProto:
    """A model of the IR version of its opset; `types` are those of inputs that are no tensors, or symbolic.
    What onnx infers is declared.
    """
    infos = []
    for name, value in inputs.items():
        if name in types:
            infos.append(ValueInfoProto(name=name, type=types[name]))
        else:
            infos.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            )
    ir = next(version for before, version in _IR if opset < before)
    graph = helper.make_graph(nodes, "g", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _version(operator: str, opset: int) -> int:
    """The version that an opset has of an operator; NotHad where it has none."""
    if not onnx.defs.has(operator, max_inclusive_version=opset, domain=""):
        raise NotHad(f"opset {opset} has no {operator}")
    return int(onnx.defs.get_schema(operator, opset, "").since_version)


def declare(model: ModelProto, seen: Values) -> ModelProto:
    """The program with the shapes of its outputs as they were seen, where onnx infers none; checked by
    onnx.
    """
    for value in model.graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(
                helper.make_tensor_type_proto(1, np.shape(seen[value.name])).tensor_type.shape
            )
    onnx.checker.check_model(model, full_check=True)
    return model


def _unshaped(given: TypeProto) -> TypeProto:
    """The type without a shape: that of an older form may be another one."""
    found = TypeProto()
    found.CopyFrom(given)
    if found.HasField("tensor_type"):
        found.tensor_type.ClearField("shape")
    return found


def _node(node: NodeProto, new: OpSchema, old: OpSchema, values: Values) -> tuple[NodeProto, list[str]]:
    """The node in its older form and the names of its inputs."""
    attributes = {each.name: each for each in node.attribute}
    given: dict[str, Any] = {}
    kept: list[str] = []
    slots = [slot.name for slot in old.inputs]
    for place, name in enumerate(node.input):
        slot = new.inputs[min(place, len(new.inputs) - 1)].name
        became = next((n for n in _FORMERLY.get((old.name, slot), (slot,)) if n in old.attributes), "")
        at = slots.index(slot) if slot in slots[1:] else place
        if became and name:
            given[became] = np.asarray(values[name])
        elif at < old.max_input and (slot in slots or at >= len(kept)):
            kept += [""] * (at + 1 - len(kept))
            kept[at] = name
    for at, slot in enumerate(old.inputs[: len(kept)]):
        if not kept[at] and slot.option == OpSchema.FormalParameterOption.Single:
            if slot.name != "roi":
                raise NotHad(f"the input {slot.name} is not drawn")
            kept[at], values["roi"] = "roi", np.zeros(0, np.float32)
    while kept and not kept[-1]:
        kept.pop()
    found = helper.make_node(old.name, kept, list(node.output)[: old.max_output], name=node.name)
    for name, attribute in old.attributes.items():
        made = _attribute(name, attribute, given, attributes)
        if made is None and attribute.required:
            raise NotHad(f"the attribute {name} is not drawn")
        if made is not None:
            found.attribute.append(made)
    _historical(found, old, kept, values)
    return found, kept


def _attribute(
    name: str, asked: OpSchema.Attribute, given: Mapping[str, Any], drawn: Mapping[str, AttributeProto]
) -> AttributeProto | None:
    """The attribute of the old form: from an input of the newer one, or as it was drawn; None where neither
    has it.
    """
    kind = OpSchema.AttrType
    if name in given:
        array = given[name]
        if asked.type == kind.INTS:
            return helper.make_attribute(
                name, [int(each) for each in array.ravel()], attr_type=AttributeProto.INTS
            )
        if asked.type == kind.FLOATS:
            return helper.make_attribute(
                name, [float(each) for each in array.ravel()], attr_type=AttributeProto.FLOATS
            )
        if array.size != 1:
            raise NotHad(f"{name} has {array.size} elements")
        return helper.make_attribute(
            name, int(array.item()) if asked.type == kind.INT else float(array.item())
        )
    if name not in drawn:
        return None
    held = drawn[name]
    if asked.type == kind.STRING and held.type == AttributeProto.INT:  # Cast before 6 names its type
        return helper.make_attribute(name, TensorProto.DataType.Name(held.i))
    if int(asked.type.value) != held.type:
        raise NotHad(f"{name} has another type")
    return held


def _historical(node: NodeProto, old: OpSchema, kept: list[str], values: Values) -> None:
    """Attributes that the old form alone has; NotHad where it does not broadcast."""
    own = old.attributes
    if (
        old.name in _OF_ONE_SHAPE
        and old.since_version < 8
        and len({np.shape(values[name]) for name in kept}) > 1
    ):
        raise NotHad("the operands have several shapes")
    if "broadcast" in own:
        if old.name == "Gemm":
            node.attribute.append(helper.make_attribute("broadcast", 1))
            return
        first, second = (np.shape(values[name]) for name in kept[:2])
        if first != second:
            if len(second) > len(first) or first[len(first) - len(second) :] != second:
                raise NotHad("the operands are broadcast in a way that the old form does not have")
            node.attribute.append(helper.make_attribute("broadcast", 1))
    if "consumed_inputs" in own:
        node.attribute.append(helper.make_attribute("consumed_inputs", [0] * len(kept)))
    if "is_test" in own:
        node.attribute.append(helper.make_attribute("is_test", 1))


def _constant(node: NodeProto) -> Any:
    held = node.attribute[0]
    if held.name == "value":
        return numpy_helper.to_array(held.t)
    return np.asarray(helper.get_attribute_value(held))
