"""Larger models that fail on the fake compiler, for tests of the reducer: a random graph with a trigger of
known size inside.
"""

import random

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

# Neither jumps nor growth: a wrong value must be wrong beyond doubt at the end.
UNARY = ("Neg", "Sigmoid", "Identity", "Softplus", "HardSigmoid")
BINARY = ("Mean", "Max", "Min")
TRIGGERS = ("Tanh", "Exp", "Softsign", "Sin", "Cos")  # the host has none of them


def host(seed: int, size: int, chains: list[list[str]]) -> Case:
    """A random graph of `size` nodes over float[2, 3] into which chains of directly connected operators are
    planted.
    """
    draw = random.Random(seed)
    values = ["x"]
    nodes: list[onnx.NodeProto] = []

    def add(operator: str, inputs: list[str]) -> str:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], f"node{len(nodes)}"))
        values.append(name)
        return name

    places = sorted(draw.sample(range(size), len(chains)))
    for place in range(size):
        if draw.random() < 0.5:
            add(draw.choice(UNARY), [draw.choice(values[-8:])])
        else:
            add(draw.choice(BINARY), [draw.choice(values[-8:]), draw.choice(values[-30:])])
        while places and places[0] == place:
            places.pop(0)
            value = values[-1]
            for operator in chains[len(chains) - len(places) - 1]:
                value = add(operator, [value])
    read = {name for node in nodes for name in node.input}
    outputs = [name for name in values[1:] if name not in read]
    return Case(program(nodes, outputs), {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)})


def program(nodes: list[onnx.NodeProto], outputs: list[str]) -> Program:
    """A model over `x`, float[2, 3]; every output is of the same type."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ["x", *outputs]]
    graph = helper.make_graph(nodes, "host", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return OnnxProgram(model.SerializeToString())
