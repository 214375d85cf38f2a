"""One-node programs of old forms that no declaration of today gives: operators that went, that make something
out of nothing, or that are random.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from benchmarks.old.downgrading import Values, model_of
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from onnx.defs import OpSchema

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(1, 2, 3, 4)
_CHANNELS = {name: np.float32([0.5, 1.5]) for name in ("scale", "bias", "mean", "variance")}


def _body() -> GraphProto:
    """A running sum: the state and an element give the state and an element."""
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
        for name in ("state", "item", "sum", "out")
    ]
    nodes = [
        helper.make_node("Add", ["state", "item"], ["sum"]),
        helper.make_node("Identity", ["sum"], ["out"]),
    ]
    return helper.make_graph(nodes, "body", infos[:2], infos[2:])


def _branch(operator: str) -> GraphProto:
    node = helper.make_node(operator, ["x"], ["made"])
    return helper.make_graph(
        [node], operator, [], [helper.make_tensor_value_info("made", TensorProto.FLOAT, [1, 2, 3, 4])]
    )


def _turn() -> GraphProto:
    """The body of a Loop: the state negated, and given as it was."""
    infos = [helper.make_tensor_value_info("turn", TensorProto.INT64, [])]
    infos += [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "on")]
    infos += [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("state", "next", "out")
    ]
    nodes = [
        helper.make_node(*each)
        for each in (
            ("Identity", ["go"], ["on"]),
            ("Neg", ["state"], ["next"]),
            ("Identity", ["state"], ["out"]),
        )
    ]
    return helper.make_graph(nodes, "body", [infos[0], infos[1], infos[3]], [infos[2], infos[4], infos[5]])


_HELD = numpy_helper.from_array(X[0, 0], "held")
# By operator and version: what it is fed ("" for an input left out), its attributes, the types of its
# outputs.
WRITTEN: Mapping[tuple[str, int], tuple[Values, Mapping[str, Any], tuple[int, ...]]] = {
    **{("Constant", since): ({}, {"value": _HELD}, (TensorProto.FLOAT,)) for since in (1, 9, 11)},
    ("Constant", 12): ({}, {"value_floats": [1.0, 2.0]}, (TensorProto.FLOAT,)),
    ("RandomNormal", 1): ({}, {"shape": [2, 3], "seed": 1.0}, (TensorProto.FLOAT,)),
    ("RandomUniform", 1): ({}, {"shape": [2, 3], "seed": 1.0}, (TensorProto.FLOAT,)),
    ("RandomNormalLike", 1): ({"x": X}, {"seed": 1.0}, (TensorProto.FLOAT,)),
    ("RandomUniformLike", 1): ({"x": X}, {"seed": 1.0}, (TensorProto.FLOAT,)),
    ("Multinomial", 7): ({"x": X[0, 0]}, {"seed": 1.0, "sample_size": 4}, (TensorProto.INT32,)),
    ("Upsample", 1): ({"x": X}, {"height_scale": 2.0, "width_scale": 1.5}, (TensorProto.FLOAT,)),
    ("Upsample", 7): ({"x": X}, {"scales": [1.0, 1.0, 2.0, 1.5]}, (TensorProto.FLOAT,)),
    ("Upsample", 9): (
        {"x": X, "scales": np.float32([1, 1, 2, 1.5])},
        {"mode": "linear"},
        (TensorProto.FLOAT,),
    ),
    ("Scatter", 9): (
        {"x": X, "at": np.zeros((1, 1, 1, 2), np.int64), "with": np.ones((1, 1, 1, 2), np.float32)},
        {"axis": 2},
        (TensorProto.FLOAT,),
    ),
    ("Tile", 1): (
        {"x": X, "tiles": np.array(2, np.float32), "axis": np.array(1, np.float32)},
        {},
        (TensorProto.FLOAT,),
    ),
    **{
        ("If", since): (
            {"x": X, "c": np.array(True)},
            {"then_branch": _branch("Neg"), "else_branch": _branch("Identity")},
            (TensorProto.FLOAT,),
        )
        for since in (1, 11)
    },
    **{
        ("Loop", since): (
            {"n": np.array(3), "c": np.array(True), "v": np.float32([1, -2])},
            {"body": _turn()},
            (TensorProto.FLOAT, TensorProto.FLOAT),
        )
        for since in (1, 11)
    },
    **{
        ("Scan", since): (
            {"start": np.zeros(2, np.float32), "items": np.arange(6, dtype=np.float32).reshape(3, 2)},
            {"num_scan_inputs": 1, "body": _body(), "scan_input_directions": [1]},
            (TensorProto.FLOAT, TensorProto.FLOAT),
        )
        for since in (9, 11)
    },
    ("Scan", 8): (
        {
            "": None,
            "start": np.zeros((2, 2), np.float32),
            "items": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        },
        {"num_scan_inputs": 1, "body": _body()},
        (TensorProto.FLOAT, TensorProto.FLOAT),
    ),
    ("BatchNormalization", 1): (
        {"x": X, **_CHANNELS},
        {"consumed_inputs": [0, 0, 0, 1, 1], "is_test": 1},
        (TensorProto.FLOAT,),
    ),
}


def written(schema: OpSchema, opset: int) -> Iterator[tuple[ModelProto, Values]]:
    """The program of a form, where there is one."""
    if schema.name == "SequenceEmpty":
        made = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        node = helper.make_node("SequenceEmpty", [], ["y"])
        yield model_of([node], {}, [onnx.ValueInfoProto(name="y", type=made)], opset), {}
    found = WRITTEN.get((schema.name, schema.since_version))
    if found is not None:
        fed, attributes, types = found
        names = [f"y{place}" for place in range(len(types))]
        names_in = [name for name in fed if not (schema.name == "If" and name == "x")]  # the branches read it
        node = helper.make_node(schema.name, names_in, names, **attributes)
        outputs = [
            helper.make_tensor_value_info(name, number, None)
            for name, number in zip(names, types, strict=True)
        ]
        values = {name: value for name, value in fed.items() if name}
        yield model_of([node], values, outputs, opset), values
