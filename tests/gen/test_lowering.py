import numpy as np
import onnx
import pytest
import valid_models
from hypothesis import given, strategies as st
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

from opsieve.gen.irs.onnx.model_file import check
from opsieve.gen.model.lowering import lower_ir, lower_opset, lowest_ir, lowest_opset
from opsieve.gen.model.structure import all_nodes

UNARY = [
    "Relu",
    "Abs",
    "Neg",
    "Sigmoid",
    "Tanh",
    "Softplus",
    "Identity",
    "Floor",
    "Elu",
    "Softmax",
    "HardSwish",
    "Mish",
    "Flatten",
]
BINARY = ["Add", "Mul", "Sub", "Max", "PRelu", "Min", "Greater"]


def chain(operators, opset, ir_version=14):
    """x float[2,3] through one operator after another."""
    nodes, name = [], "x"
    for place, operator in enumerate(operators):
        nodes.append(helper.make_node(operator, [name, "w"] if operator in BINARY else [name], [f"v{place}"]))
        name = f"v{place}"
        if operator == "Greater":
            nodes.append(helper.make_node("Cast", [name], [f"{name}c"], to=TensorProto.FLOAT))
            name += "c"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.FLOAT, [3], [0.5, -1.0, 2.0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def since(model, opset):
    """The version of every operator in an opset; None where it has not come yet."""
    return [
        defs.get_schema(node.op_type, opset, "").since_version if defs.has(node.op_type, opset, "") else None
        for node in all_nodes(model.graph.node)
    ]


@given(st.lists(st.sampled_from(UNARY + BINARY), min_size=1, max_size=8), st.integers(18, 23))
def test_lowering_changes_nothing_but_numbers(operators, opset):
    model = chain(operators, opset)
    lowered = lower_opset(model)
    lowest = lowered.opset_import[0].version
    assert since(lowered, lowest) == since(model, opset)
    # one lower would be another program
    assert lowest == 1 or since(model, lowest - 1 or 1) != since(model, opset)
    small = onnx.ModelProto.FromString(lower_ir(lowered.SerializeToString()))
    assert check(small.SerializeToString()) == ""
    assert small.graph == model.graph
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    before, after = (ReferenceEvaluator(item).run(None, {"x": x})[0] for item in (model, small))
    assert np.array_equal(before, after)


@pytest.mark.parametrize(
    ("opset", "ir"),
    [(8, 4), (9, 4), (12, 7), (15, 8), (18, 8), (19, 9), (21, 10), (23, 11), (24, 12), (25, 13)],
)
def test_the_ir_version_follows_the_operator_set(opset, ir):
    model = chain(["Relu"], opset)
    assert lowest_ir(model) == ir
    assert onnx.ModelProto.FromString(lower_ir(model.SerializeToString())).ir_version == ir


def test_it_is_never_raised():
    for ir in (3, 4, 6):
        model = chain(["Relu"], 18, ir)
        assert lowest_ir(model) == ir
        assert lower_ir(model.SerializeToString()) == model.SerializeToString()
    model = chain(["Relu"], 99)
    assert lowest_ir(model) == 14
    assert lowest_opset(model) == 14  # Relu last changed at 14


def features():
    """Changes to an opset-8 model, each with the IR version that it asks for."""
    string = onnx.StringStringEntryProto(key="k", value="v")
    tensor = helper.make_tensor_value_info

    def inner(model, change):
        branch = valid_models.branching().graph.node[0]
        change(branch.attribute[1].g)
        model.graph.node.append(branch)

    def function(model, **fields):
        made = helper.make_function("d", "f", [], [], [], [helper.make_opsetid("", 8)])
        made.MergeFrom(onnx.FunctionProto(**fields))
        model.functions.append(made)

    sparse = helper.make_sparse_tensor(
        helper.make_tensor("k", 1, [1], [1.0]), helper.make_tensor("", 7, [1], [0]), [3]
    )
    attribute = onnx.AttributeProto
    return {
        "all initializers are inputs": (3, lambda m: None),
        "an initializer that is no input": (4, lambda m: m.graph.input.pop()),
        "an initializer in a body": (
            4,
            lambda m: inner(m, lambda g: g.initializer.append(m.graph.initializer[0])),
        ),
        "bfloat16": (4, lambda m: m.graph.value_info.append(tensor("v", TensorProto.BFLOAT16, None))),
        "quantization annotation": (5, lambda m: m.graph.quantization_annotation.add(tensor_name="x")),
        "a sparse initializer": (6, lambda m: m.graph.sparse_initializer.append(sparse)),
        "a sparse attribute": (
            6,
            lambda m: m.graph.node[0].attribute.add(
                name="s", type=attribute.SPARSE_TENSOR, sparse_tensor=sparse
            ),
        ),
        "training": (7, lambda m: m.training_info.add()),
        "an optional": (
            8,
            lambda m: m.graph.output.add(
                name="o", type=helper.make_optional_type_proto(m.graph.input[0].type)
            ),
        ),
        "a sparse type": (
            8,
            lambda m: m.graph.output.add(name="o", type=helper.make_sparse_tensor_type_proto(1, [2])),
        ),
        "a function": (8, lambda m: function(m)),
        "a function with defaults": (
            9,
            lambda m: function(m, attribute_proto=[helper.make_attribute("a", 1)]),
        ),
        "float8": (
            9,
            lambda m: m.graph.node[0].attribute.append(
                helper.make_attribute("t", TensorProto(data_type=17, dims=[0]))
            ),
        ),
        "float8 in a list": (
            9,
            lambda m: m.graph.node[0].attribute.add(
                name="t", type=attribute.TENSORS, tensors=[TensorProto(data_type=20)]
            ),
        ),
        "float8 in a body": (
            9,
            lambda m: inner(m, lambda g: g.value_info.append(tensor("v", TensorProto.FLOAT8E5M2, None))),
        ),
        "float8 in a sequence": (
            9,
            lambda m: m.graph.output.add(
                name="o", type=helper.make_sequence_type_proto(helper.make_tensor_type_proto(17, None))
            ),
        ),
        "float8 in a type": (
            9,
            lambda m: m.graph.node[0].attribute.append(
                helper.make_attribute("t", helper.make_tensor_type_proto(18, None))
            ),
        ),
        "int4": (10, lambda m: m.graph.value_info.append(tensor("v", TensorProto.INT4, None))),
        "an overload": (10, lambda m: setattr(m.graph.node[0], "overload", "o")),
        "an overloaded function": (10, lambda m: function(m, overload="o")),
        "metadata of a node": (10, lambda m: m.graph.node[0].metadata_props.append(string)),
        "metadata of a graph": (10, lambda m: m.graph.metadata_props.append(string)),
        "metadata of a value": (10, lambda m: m.graph.input[0].metadata_props.append(string)),
        "metadata of a tensor": (10, lambda m: m.graph.initializer[0].metadata_props.append(string)),
        "metadata of a model": (3, lambda m: m.metadata_props.append(string)),
        "devices": (11, lambda m: m.configuration.add(name="c")),
        "a node on devices": (11, lambda m: m.graph.node[0].device_configurations.add(configuration_id="c")),
        "float4": (11, lambda m: m.graph.value_info.append(tensor("v", TensorProto.FLOAT4E2M1, None))),
        "float8e8m0": (12, lambda m: m.graph.value_info.append(tensor("v", TensorProto.FLOAT8E8M0, None))),
        "int2": (13, lambda m: m.graph.value_info.append(tensor("v", TensorProto.INT2, None))),
        "float6": (14, lambda m: m.graph.value_info.append(tensor("v", TensorProto.FLOAT6E2M3, None))),
    }


@pytest.mark.parametrize("name", features())
def test_the_ir_version_follows_the_features(name):
    ir, change = features()[name]
    model = chain(["Add"], 8)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    change(model)
    assert lowest_ir(model) == ir


def test_bodies_and_functions_count():
    model = valid_models.branching()
    assert lowest_opset(model) == 16  # If-16; Relu-14 and Neg-13 in its branches
    model.graph.node[0].attribute[0].g.node[0].op_type = "Mish"
    assert lowest_opset(model) == 18
    model = valid_models.functional()
    assert lowest_opset(model) == 13  # Abs-13 and Sqrt-13 in the function
    lowered = lower_opset(model)
    assert [entry.version for entry in lowered.opset_import] == [13, 1]
    assert lowered.functions[0].opset_import[0].version == 13
    assert lower_ir(model.SerializeToString()) == model.SerializeToString()


def test_a_function_keeps_an_older_operator_set_of_its_own():
    model = valid_models.functional()
    model.functions[0].opset_import[0].version = 6
    model.graph.node.append(helper.make_node("Mish", ["y"], ["z"]))
    assert lowest_opset(model) == 18
    assert lower_opset(model).functions[0].opset_import[0].version == 6


def test_an_unknown_operator_keeps_the_opset():
    model = chain(["Relu"], 18)
    model.graph.node[0].op_type = "FromTheFuture"
    assert lowest_opset(model) == 18


def test_a_local_function_of_onnx_own_domain_hides_the_operator():
    model = chain(["Mish", "Relu"], 18)
    model.functions.append(
        helper.make_function(
            "", "Mish", ["a"], ["b"], [helper.make_node("Abs", ["a"], ["b"])], [helper.make_opsetid("", 18)]
        )
    )
    assert lowest_opset(model) == 14


def test_the_long_name_of_the_domain_is_the_same_domain():
    model = chain(["Relu"], 18)
    model.opset_import[0].domain = model.graph.node[0].domain = "ai.onnx"
    assert (lowest_opset(model), lowest_ir(model)) == (14, 8)
