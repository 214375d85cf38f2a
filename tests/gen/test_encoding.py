"""Messages written as bytes beside those that protobuf writes: programs are the same byte for byte, and so is
each kind of field.
"""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from slow_params import keep_quick

from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.graph.encoding import encode_constant, encode_info, encode_node, encode_tensor
from opsieve.gen.graph.graph import BodyGraph, Node
from opsieve.gen.strategies.registry import generate

X = Tensor("x", "float32", (2, 3))
LONG = "long " * 60  # its length takes two bytes
VALUES = {
    "int": -3,
    "large": 1 << 40,
    "truth": True,
    "float": -0.1,
    "zero": -0.0,
    "text": "naïve",
    "long": LONG,
    "ints": [1, -2, 300, 1 << 62],
    "none": [],
    "floats": [0.5, -1e30],
    "texts": ["a", "", "ü"],
}


@pytest.mark.parametrize(
    "strategy", keep_quick(["mutate", "pattern", "isra", "hirfuzz", "function-rewrite", "disruptive"], 2)
)
def test_programs_are_as_protobuf_writes_them(strategy: str) -> None:
    for seed in range(900, 912):
        data = generate(strategy, seed, GenRequest(nodes=20, types=bool(seed % 2), dynamic=0.3)).program.model
        assert onnx.ModelProto.FromString(data).SerializeToString(deterministic=True) == data


@pytest.mark.parametrize("name", VALUES)
def test_an_attribute_holds_its_value(name: str) -> None:
    read = onnx.NodeProto.FromString(
        encode_node(Node("Op", "", [X, None], [X], {name: VALUES[name]}, "n"), set())
    )
    expected = helper.make_node("Op", ["x", ""], ["x"], name="n")
    if VALUES[name] == []:
        expected.attribute.append(helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS))
    else:
        expected.attribute.append(helper.make_attribute(name, VALUES[name]))
    assert read == expected
    assert str(read.attribute[0]) == str(expected.attribute[0])  # which tells -0.0 from 0.0


def test_bodies_and_domains() -> None:
    inner = Node("Inner", "one", [X], [Tensor("y", "sequence(int64)", (4,))], {}, "inner")
    domains = set[str]()
    body = BodyGraph([X], [inner], inner.outs)
    read = onnx.NodeProto.FromString(
        encode_node(Node("Outer", "other", [X], [X], {"body": body}, ""), domains)
    )
    graph = read.attribute[0].g
    assert domains == {"one", "other"}
    assert (read.domain, graph.name, graph.node[0].domain) == ("other", "body", "one")
    assert graph.input[0] == helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    assert graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type == onnx.TensorProto.INT64


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bool", "int8", "uint64", "bfloat16", "int4", "string"]
)
def test_a_tensor_is_as_onnx_makes_it(dtype: str) -> None:
    if dtype == "string":
        array = np.array([["a", "ü"]], object)
    else:
        array = np.array([[1, 0]]).astype(
            helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(_name(dtype)))
        )
    expected = numpy_helper.from_array(array, "w")
    assert encode_tensor(array, dtype, "w") == expected.SerializeToString(deterministic=True)
    constant = onnx.NodeProto.FromString(encode_constant("c", encode_tensor(array, dtype)))
    assert constant == helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(array))


def _name(dtype: str) -> str:
    return {"float32": "FLOAT"}.get(dtype, dtype.upper())


def test_an_open_size_has_its_name() -> None:
    read = onnx.ValueInfoProto.FromString(encode_info(X, ("n", 3)))
    assert read == helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
