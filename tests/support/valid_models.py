"""Sound models and parts of models, for tests to use as they are and for `hostile.py` to damage."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


def plain() -> onnx.ModelProto:
    """x float[2,3] -> Mul by w -> Relu -> y, and a scale s that is a typed field."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "s"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    weights = [
        helper.make_tensor("w", FLOAT, [2, 3], np.arange(6, dtype=np.float32).tobytes(), raw=True),
        helper.make_tensor("s", FLOAT, [3], [1.0, 2.0, 3.0]),
    ]
    return model_of(nodes, weights)


def branching() -> onnx.ModelProto:
    """As `plain`, with an If whose branches use names around them."""
    branches = {}
    for side, operator in (("then", "Relu"), ("else", "Neg")):
        out = helper.make_tensor_value_info(f"{side}_out", FLOAT, [2, 3])
        branches[f"{side}_branch"] = helper.make_graph(
            [helper.make_node(operator, ["x"], [f"{side}_out"])], side, [], [out]
        )
    nodes = [helper.make_node("If", ["c"], ["y"], **branches)]
    return model_of(nodes, [helper.make_tensor("c", TensorProto.BOOL, [], [True])])


def functional() -> onnx.ModelProto:
    """y = f(x), f being a function of the model."""
    model = model_of([helper.make_node("f", ["x"], ["y"], domain="local")], [])
    model.opset_import.append(helper.make_opsetid("local", 1))
    body = [helper.make_node("Abs", ["p"], ["q"]), helper.make_node("Sqrt", ["q"], ["r"])]
    model.functions.append(
        helper.make_function("local", "f", ["p"], ["r"], body, [helper.make_opsetid("", 18)])
    )
    return model


def model_of(nodes: list[onnx.NodeProto], weights: list[TensorProto]) -> onnx.ModelProto:
    shape = [2, 3]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def external(
    location: str, data_type: int = FLOAT, dims: tuple[int, ...] = (2, 3), name: str = "e", raw: bytes = b""
) -> TensorProto:
    tensor = TensorProto(name=name, data_type=data_type, dims=dims)
    make_external(tensor, {"location": location})
    if raw:
        tensor.raw_data = raw
    return tensor


def file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def make_external(tensor: TensorProto, entries: dict[str, str]) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def model_file(place: Path, model: onnx.ModelProto, name: str = "model.onnx") -> Path:
    return file(place / name, model.SerializeToString())
