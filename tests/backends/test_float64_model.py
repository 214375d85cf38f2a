"""Promotion to float64 reaches every place where a model names a float type."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opsieve.backends.compilers.float64_model import Unpromotable, promote, promote_value, refuse_bits

NARROW = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, int], outputs: dict[str, int], **more: object
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, [2]) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        more.get("initializer", []),  # type: ignore[arg-type]
    )
    functions = more.get("functions", [])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)  # type: ignore[arg-type]


def narrow_types(proto: onnx.ModelProto) -> str:
    """Every mention of a narrow float type that is left, as text."""
    return "\n".join(
        line
        for line in str(proto).split("\n")
        if line.strip() in {f"{f}: {k}" for f in ("elem_type", "data_type") for k in NARROW}
    )


def test_inputs_outputs_initializers_constants_and_casts() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=0.1),
        helper.make_node("Constant", [], ["d"], value_floats=[0.1, 0.2]),
        helper.make_node(
            "Constant", [], ["e"], value=helper.make_tensor("e", TensorProto.BFLOAT16, [2], [1.0, 2.0])
        ),
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        helper.make_node("Cast", ["x"], ["f8"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Sum", ["c", "d", "e", "h", "w"], ["y"]),
    ]
    proto = promote(
        model(
            nodes,
            {"x": TensorProto.FLOAT},
            {"y": TensorProto.FLOAT16},
            initializer=[numpy_helper.from_array(np.float16([1, 2]), "w")],
        )
    )
    assert narrow_types(proto) == ""
    assert [a.i for n in proto.graph.node if n.op_type == "Cast" for a in n.attribute] == [
        TensorProto.DOUBLE,
        TensorProto.INT32,
        TensorProto.FLOAT8E4M3FN,
    ]
    constant = numpy_helper.to_array(proto.graph.node[0].attribute[0].t)
    assert constant.dtype == np.float64
    assert constant == np.float64(np.float32(0.1))


def test_bodies_and_local_functions() -> None:
    body = helper.make_graph(
        [
            helper.make_node(
                "Constant", [], ["b"], value=helper.make_tensor("b", TensorProto.FLOAT, [], [1.0])
            )
        ],
        "body",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [])],
    )
    cast = helper.make_node("Cast", ["a"], ["b"])
    cast.attribute.append(onnx.AttributeProto(name="to", ref_attr_name="kind", type=onnx.AttributeProto.INT))
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [cast], [helper.make_opsetid("", 21)], ["kind"]
    )
    nodes = [
        helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=body),
        helper.make_node("F", ["y"], ["z"], domain="local", kind=TensorProto.FLOAT),
    ]
    proto = promote(model(nodes, {"p": TensorProto.BOOL}, {"z": TensorProto.FLOAT}, functions=[function]))
    assert narrow_types(proto) == ""
    assert proto.graph.node[1].attribute[0].i == TensorProto.DOUBLE


@pytest.mark.parametrize(
    ("operator", "attribute"),
    [
        ("RandomNormal", "dtype"),
        ("HannWindow", "output_datatype"),
        ("EyeLike", "dtype"),
        ("SequenceEmpty", "dtype"),
    ],
)
def test_dtype_attributes_and_their_defaults(operator: str, attribute: str) -> None:
    given = helper.make_node(operator, [], ["y"], **{attribute: TensorProto.FLOAT})
    absent = helper.make_node(operator, [], ["z"])
    proto = promote(model([given, absent], {}, {}))
    assert [a.i for a in proto.graph.node[0].attribute] == [TensorProto.DOUBLE]
    if operator in ("RandomNormal", "HannWindow"):
        assert [a.i for a in proto.graph.node[1].attribute] == [TensorProto.DOUBLE]


def test_the_original_is_not_touched_and_epsilon_stays() -> None:
    node = helper.make_node("LayerNormalization", ["x", "x"], ["y"], epsilon=1e-3, stash_type=1)
    before = model([node], {"x": TensorProto.FLOAT}, {"y": TensorProto.FLOAT})
    text = before.SerializeToString()
    after = promote(before)
    assert before.SerializeToString() == text
    assert after.graph.node[0] == node


def test_what_reads_the_bits_of_a_float_has_no_float64_version() -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.FLOAT)
    reading = model([node], {"x": TensorProto.INT32}, {"y": TensorProto.FLOAT})
    assert promote(reading, bits=True).graph.node[0] == node
    with pytest.raises(Unpromotable, match="BitCast"):
        promote(reading)
    with pytest.raises(Unpromotable, match="BitCast"):
        refuse_bits(promote_value(np.float32([1])))
    refuse_bits(np.int32([1]))


def test_feeds_are_cast_sequences_too_and_shapes_kept() -> None:
    scalar = promote_value(np.array(1.5, np.float16))
    assert (scalar.dtype, scalar.shape) == (np.float64, ())
    assert [item.dtype for item in promote_value([np.float32([1]), np.int64([1])])] == [np.float64, np.int64]
    assert promote_value(None) is None
