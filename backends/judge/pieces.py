"""Parts of a program as programs of their own: one operator with its recorded inputs, one element type by
itself.

A compiler's result for a part shows its missing feature, or which implementation is right about one operator.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from opsieve.backends import observation, registry
from opsieve.backends.judge.oracles import NATIVE, Lab, Values
from opsieve.gen.irs.onnx import edits, view
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model import attributes, structure, tensors
from opsieve.gen.model.program import Program

# Recording every value makes it an output, so memory grows with the program. Larger programs are not
# localised.
MOST_VALUES = 400
# The largest program that is run operator by operator.
MOST_OPERATORS = 200
# Types that every compiler has in some operator. A refusal of another type is looked at: it may hold
# everywhere.
_COMMON = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32}
    | {TensorProto.BOOL, TensorProto.UINT8, TensorProto.INT8, TensorProto.UNDEFINED}
)
_REFUSALS = ("error", "rejected", "unsupported")


def list_made_values(model: ModelProto) -> list[str]:
    """List the values that the nodes of the graph make, in their order, without constants."""
    return [name for node in model.graph.node if node.op_type != "Constant" for name in node.output if name]


def get_constants(model: ModelProto) -> dict[str, TensorProto]:
    """Return the constant tensors of the graph: initializers, and the values of Constant nodes."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if attributes.is_constant(node):
            for attribute in node.attribute:
                if attribute.name == "value" and not attribute.ref_attr_name:
                    held[node.output[0]] = attribute.t
                elif (array := attributes.constant_array(node)) is not None:
                    held[node.output[0]] = numpy_helper.from_array(array, node.output[0])
    return held


def make_operator_program(
    model: ModelProto,
    node: NodeProto,
    values: Mapping[str, Any],
    types: Mapping[str, TypeProto] | None = None,
) -> tuple[OnnxProgram, Values] | None:
    """Make the program of one node and its inputs; None if a value or its type is missing.

    `values` are those that the whole program makes and is fed. Constants stay constant, an input has the type
    in `types`, or else that of its value.
    """
    held, copy = get_constants(model), ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    # The node may call a function of the model.
    copy.functions.extend(model.functions)
    copy.graph.name = "operator"
    feeds: Values = {}
    # Bodies read names of the graph around them, which become inputs too.
    for name in dict.fromkeys(view.list_captured(node)):
        if name in held:
            tensor = copy.graph.initializer.add()
            tensor.CopyFrom(held[name])
            tensor.name = name
        elif name in values:
            declared = _get_type(name, values[name], types)
            if declared is None:
                return None
            copy.graph.input.append(ValueInfoProto(name=name, type=declared))
            feeds[name] = values[name]
        else:
            return None
    copy.graph.node.add().CopyFrom(node)
    for name in filter(None, node.output):
        made = _get_type(name, values.get(name), types)
        copy.graph.output.append(
            ValueInfoProto(name=name) if made is None else ValueInfoProto(name=name, type=made)
        )
    return OnnxProgram(copy.SerializeToString(), f"{node.op_type} by itself"), feeds


def _get_type(name: str, value: Any, types: Mapping[str, TypeProto] | None) -> TypeProto | None:
    if types is not None and name in types and types[name].WhichOneof("value"):
        return types[name]
    return tensors.type_of(value)


def accepts_each_operator(
    program: Program,
    inputs: Values,
    target: registry.ResolvedTarget,
    lab: Lab,
    first: observation.Observation,
) -> bool:
    """Whether a target that refuses a program takes each of its operators by itself, on the reference's
    values.

    Operators in the refusal's message run first, so that one run finds a truly missing feature. False if
    unknown.
    """
    model = ir_of(program).graph(program)
    if model is None:
        return False
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    # A program of one operator is its own piece: nothing new would be learnt.
    if not 1 < len(nodes) <= MOST_OPERATORS:
        return False
    recorded = lab.observe(
        NATIVE, OnnxProgram(edits.tap_model(model, list_made_values(model)).SerializeToString()), inputs
    )
    if recorded.outputs is None:
        return False
    values = {**inputs, **recorded.outputs}
    types = {
        value.name: value.type for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    nodes.sort(key=lambda node: node.op_type not in first.message)
    for node in nodes:
        piece = make_operator_program(model, node, values, types)
        if piece is None or lab.observe(target, *piece).outcome != "ok":
            return False
    return True


def find_refused_type(program: Program, target: registry.ResolvedTarget, lab: Lab) -> str:
    """Find an element type of the program that the target also refuses in a program of one operator; "" if
    there is none.

    Only types that some compilers lack are tried, in the form in which the program holds them: as constants,
    or as values.
    """
    model = ir_of(program).graph(program)
    if model is None:
        return ""
    held = {tensor.data_type for tensor in structure.tensors_of(model)} - _COMMON
    passed = {
        structure.element_type(value.type)
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
    }
    passed |= {
        attribute.i
        for node in structure.all_nodes(model.graph.node)
        for attribute in node.attribute
        if attribute.name in ("to", "dtype", "output_dtype")
    }
    for number in sorted(held):
        if _is_refused(model, number, True, target, lab):
            return _get_type_name(number)
    for number in sorted((passed - _COMMON - held) & set(tensors.NUMBERS.values())):
        if _is_refused(model, number, False, target, lab):
            return _get_type_name(number)
    return ""


def _is_refused(
    model: ModelProto, number: int, constant: bool, target: registry.ResolvedTarget, lab: Lab
) -> bool:
    """Whether every small program with a tensor of this type, constant or fed, is refused."""
    array = np.zeros(2, object if number == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(number))
    if number == TensorProto.STRING:
        array[:] = "a"
    held = [numpy_helper.from_array(array, "x")] if constant else []
    fed = [] if constant else [helper.make_tensor_value_info("x", number, [2])]
    # Identity alone is not enough: some compilers have it for no type, and a Cast for each.
    ways = {
        number: [helper.make_node("Identity", ["x"], ["y"])],
        TensorProto.FLOAT: [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
    }
    for made, nodes in ways.items():
        graph: GraphProto = helper.make_graph(
            nodes, "type", fed, [helper.make_tensor_value_info("y", made, [2])], held
        )
        small = ModelProto(ir_version=model.ir_version, graph=graph)
        # Domains of extensions could be refused for themselves.
        small.opset_import.extend(each for each in model.opset_import if each.domain in ("", "ai.onnx"))
        program = OnnxProgram(small.SerializeToString(), f"a program of {_get_type_name(number)}")
        if lab.observe(target, program, {} if constant else {"x": array}).outcome not in _REFUSALS:
            return False
    return True


def _get_type_name(number: int) -> str:
    return str(TensorProto.DataType.Name(number)).lower()
