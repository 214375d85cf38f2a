"""Networks of well-known shapes, written node by node as exporters write them: hosts for real bugs.

ResNet, a transformer with dynamic axes, LSTM, UNet, control flow (If, Loop, Scan), local functions, QDQ, and
one with large external data. Weights are seeded and small, so that values stay near 1. Each has one float
output that depends on every node.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
Shape = Sequence[int | str]


class Network:
    """A graph under construction: every method adds nodes and gives the name of a value."""

    def __init__(self, seed: int = 0):
        self.draw = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.known: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, np.ndarray[Any, Any]] = {}

    def feed(self, value: np.ndarray[Any, Any], shape: Shape = ()) -> str:
        """An input with its value; `shape` may name dimensions."""
        name = f"in{len(self.inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape or value.shape)))
        self.feeds[name] = value
        return name

    def floats(self, *shape: int) -> str:
        """A weight: normal numbers over the root of all but the first dimension."""
        size = float(np.prod(shape[1:] or shape)) ** 0.5
        return self.constant(self.draw.standard_normal(shape, dtype=np.float32) / np.float32(size))

    def constant(self, value: Any, dtype: Any = None) -> str:
        """An initializer."""
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, operator: str, *inputs: str, results: int = 1, domain: str = "", **attributes: Any) -> Any:
        """A node; its result's name, or a list of several."""
        name = f"/{operator}_{len(self.nodes)}"
        outputs = [f"{name}_output_{place}" for place in range(results)]
        self.nodes.append(helper.make_node(operator, inputs, outputs, name, domain=domain, **attributes))
        return outputs if results > 1 else outputs[0]

    def affine(self, value: str, width: int, into: int) -> str:
        """MatMul and Add, as a linear layer is exported."""
        return str(self.op("Add", self.op("MatMul", value, self.floats(width, into)), self.floats(into)))

    def normed(self, value: str, width: int) -> str:
        """A layer normalisation in nine nodes."""
        apart = self.op("Sub", value, self.op("ReduceMean", value, self.constant([-1], np.int64)))
        square = self.op("Pow", apart, self.constant(2.0, np.float32))
        spread = self.op("ReduceMean", square, self.constant([-1], np.int64))
        root = self.op("Sqrt", self.op("Add", spread, self.constant(1e-5, np.float32)))
        scaled = self.op("Mul", self.op("Div", apart, root), self.floats(width))
        return str(self.op("Add", scaled, self.floats(width)))

    def conv(self, value: str, width: int, into: int, stride: int = 1) -> str:
        """A 3 x 3 convolution with a bias."""
        weight, bias = self.floats(into, width, 3, 3), self.floats(into)
        return str(
            self.op("Conv", value, weight, bias, kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2)
        )

    def model(self, output: str, shape: Shape) -> onnx.ModelProto:
        """All of it, with one output."""
        infos = [helper.make_tensor_value_info(output, TensorProto.FLOAT, list(shape))]
        graph = helper.make_graph(
            self.nodes, "network", self.inputs, infos, self.constants, value_info=self.known
        )
        opsets = [helper.make_opsetid("", OPSET)]
        opsets += [helper.make_opsetid("local", 1)] if self.functions else []
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=self.functions)


# a bug put into a network beside a value of it; what takes the value's place
Plant = Callable[[Network, str], str]


def resnet(plant: Plant) -> tuple[onnx.ModelProto, Network]:
    """Sixteen residual blocks of two convolutions."""
    net = Network()
    value = net.feed(net.draw.standard_normal((1, 3, 16, 16), dtype=np.float32))
    value = net.op("Relu", net.conv(value, 3, 8))
    for block in range(16):
        if block == 11:
            value = plant(net, value)
        inner = net.op("Relu", net.conv(value, 8, 8))
        value = net.op("Relu", net.op("Add", net.conv(inner, 8, 8), value))
    pooled = net.op("Flatten", net.op("GlobalAveragePool", value))
    return net.model(net.affine(pooled, 8, 10), [1, 10]), net


def transformer(plant: Plant, layers: int = 30) -> tuple[onnx.ModelProto, Network]:
    """An encoder with dynamic batch and sequence: shapes are computed from the input, as torch exports
    them.
    """
    net, width, heads = Network(), 16, 4
    ids = net.feed(np.arange(10, dtype=np.int64).reshape(2, 5), ["batch", "sequence"])
    value = net.op("Gather", net.floats(32, width), ids)
    for layer in range(layers):
        if layer == layers * 2 // 3:
            value = plant(net, value)
        value = net.op("Add", value, _attention(net, net.normed(value, width), width, heads))
        inner = net.affine(net.normed(value, width), width, 2 * width)
        cut = net.op("Erf", net.op("Div", inner, net.constant(2**0.5, np.float32)))
        gelu = net.op("Mul", inner, net.op("Add", cut, net.constant(1.0, np.float32)))
        gelu = net.op("Mul", gelu, net.constant(0.5, np.float32))
        value = net.op("Add", value, net.affine(gelu, 2 * width, width))
    return net.model(value, ["batch", "sequence", width]), net


def _attention(net: Network, value: str, width: int, heads: int) -> str:
    def dimension(of: str, place: int) -> str:
        size = net.op("Gather", net.op("Shape", of), net.constant(place, np.int64))
        return str(net.op("Unsqueeze", size, net.constant([0], np.int64)))

    def split(of: str) -> str:
        wanted = [net.constant([heads], np.int64), net.constant([width // heads], np.int64)]
        shape = net.op("Concat", dimension(of, 0), dimension(of, 1), *wanted, axis=0)
        return str(net.op("Transpose", net.op("Reshape", of, shape), perm=[0, 2, 1, 3]))

    query, key, content = (split(net.affine(value, width, width)) for _ in range(3))
    scores = net.op("MatMul", query, net.op("Transpose", key, perm=[0, 1, 3, 2]))
    share = net.op(
        "Softmax", net.op("Div", scores, net.constant((width // heads) ** 0.5, np.float32)), axis=-1
    )
    mixed = net.op("Transpose", net.op("MatMul", share, content), perm=[0, 2, 1, 3])
    shape = net.op(
        "Concat", dimension(value, 0), dimension(value, 1), net.constant([width], np.int64), axis=0
    )
    return net.affine(net.op("Reshape", mixed, shape), width, width)


def lstm(plant: Plant) -> tuple[onnx.ModelProto, Network]:
    """Twelve LSTM layers with residuals, in time-major order."""
    net, width = Network(), 8
    value = net.feed(net.draw.standard_normal((6, 2, width), dtype=np.float32))
    for layer in range(12):
        if layer == 7:
            value = plant(net, value)
        weights = (net.floats(1, 4 * width, width), net.floats(1, 4 * width, width), net.floats(1, 8 * width))
        held = net.op("LSTM", value, *weights, hidden_size=width)
        inner = net.op("Squeeze", held, net.constant([1], np.int64))
        value = net.op("Tanh", net.op("Add", value, net.affine(inner, width, width)))
    return net.model(value, [6, 2, width]), net


def unet(plant: Plant) -> tuple[onnx.ModelProto, Network]:
    """Three levels down and up again, with skips; a network of it behind another, three times."""
    net = Network()
    value = net.op(
        "Relu", net.conv(net.feed(net.draw.standard_normal((1, 1, 16, 16), dtype=np.float32)), 1, 4)
    )
    for turn in range(3):
        held = []
        for level in range(3):
            value = net.op("Relu", net.conv(net.op("Relu", net.conv(value, 4, 4)), 4, 4))
            held.append(value)
            value = net.op("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
            if (turn, level) == (1, 1):
                value = plant(net, value)
        for _ in range(3):
            wide = net.op("Resize", value, "", net.constant([1, 1, 2, 2], np.float32), mode="nearest")
            value = net.op("Relu", net.conv(net.op("Concat", wide, held.pop(), axis=1), 8, 4))
    return net.model(net.op("Sigmoid", value), [1, 4, 16, 16]), net


def control(plant: Plant) -> tuple[onnx.ModelProto, Network]:
    """If, Loop and Scan with bodies of their own between plain layers; the bug lies in the main graph, behind
    what they give.
    """
    net, width = Network(), 8
    value = net.feed(net.draw.standard_normal((4, width), dtype=np.float32))
    for turn in range(8):
        value = net.op("Relu", net.affine(value, width, width))
        value = (_branched, _looped, _scanned)[turn % 3](net, value, width)
        if turn == 7:
            value = plant(net, value)
    return net.model(value, [4, width]), net


def _branched(net: Network, value: str, width: int) -> str:
    above = net.op("Greater", net.op("ReduceMax", value, keepdims=0), net.constant(0.0, np.float32))
    graphs = []
    for operator in ("Tanh", "Sigmoid"):
        info = helper.make_tensor_value_info(f"{value}_{operator}", TensorProto.FLOAT, [4, width])
        graphs.append(
            helper.make_graph([helper.make_node(operator, [value], [info.name])], operator, [], [info])
        )
    return str(net.op("If", above, then_branch=graphs[0], else_branch=graphs[1]))


def _looped(net: Network, value: str, width: int) -> str:
    names = [f"{value}_{name}" for name in ("turn", "go", "goes", "state", "next")]
    kinds = [TensorProto.INT64, TensorProto.BOOL, TensorProto.BOOL, TensorProto.FLOAT, TensorProto.FLOAT]
    shapes: list[list[int]] = [[], [], [], [4, width], [4, width]]
    infos = [helper.make_tensor_value_info(*each) for each in zip(names, kinds, shapes, strict=True)]
    nodes = [
        helper.make_node("Identity", names[1:2], names[2:3]),
        helper.make_node("Add", [names[3], value], [f"{value}_sum"]),
        helper.make_node("Tanh", [f"{value}_sum"], names[4:]),
    ]
    body = helper.make_graph(nodes, "loop", [infos[0], infos[1], infos[3]], [infos[2], infos[4]])
    return str(net.op("Loop", net.constant(2, np.int64), net.constant(True), value, body=body))


def _scanned(net: Network, value: str, width: int) -> str:
    infos = [
        helper.make_tensor_value_info(f"{value}_{name}", TensorProto.FLOAT, [width])
        for name in ("row", "out")
    ]
    nodes = [helper.make_node("Softsign", [infos[0].name], [infos[1].name])]
    return str(
        net.op("Scan", value, body=helper.make_graph(nodes, "scan", infos[:1], infos[1:]), num_scan_inputs=1)
    )


def local(plant: Plant) -> tuple[onnx.ModelProto, Network]:
    """Layers that are calls of local functions, one function calling another."""
    net, width = Network(), 8
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("local", 1)]
    gelu = [helper.make_node("Sigmoid", ["a"], ["b"]), helper.make_node("Mul", ["a", "b"], ["c"])]
    layer = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("gate", ["m"], ["g"], domain="local"),
        helper.make_node("Add", ["g", "x"], ["y"]),
    ]
    net.functions.append(helper.make_function("local", "gate", ["a"], ["c"], gelu, opsets))
    net.functions.append(helper.make_function("local", "layer", ["x", "w"], ["y"], layer, opsets))
    value = net.feed(net.draw.standard_normal((4, width), dtype=np.float32))
    for turn in range(40):
        value = net.op("layer", value, net.floats(width, width), domain="local")
        value = net.op("Tanh", value)
        if turn == 25:
            value = plant(net, value)
    return net.model(value, [4, width]), net


def quantised(plant: Plant) -> tuple[onnx.ModelProto, Network]:
    """Convolutions between QuantizeLinear and DequantizeLinear, weights stored as int8."""
    net = Network()
    value = net.op("Relu", net.conv(net.feed(net.draw.standard_normal((1, 3, 8, 8), dtype=np.float32)), 3, 4))

    def between(of: str) -> str:
        scale, zero = net.constant(0.05, np.float32), net.constant(0, np.int8)
        return str(net.op("DequantizeLinear", net.op("QuantizeLinear", of, scale, zero), scale, zero))

    for turn in range(30):
        stored = net.constant(net.draw.integers(-20, 20, (4, 4, 3, 3)), np.int8)
        weight = net.op("DequantizeLinear", stored, net.constant(0.01, np.float32), net.constant(0, np.int8))
        inner = net.op("Conv", between(value), weight, net.floats(4), kernel_shape=[3, 3], pads=[1] * 4)
        value = net.op("Relu", net.op("Add", inner, value) if turn % 2 else inner)
        if turn == 20:
            value = plant(net, value)
    return net.model(value, [1, 4, 8, 8]), net


def heavy(plant: Plant, mebibytes: int = 512) -> tuple[onnx.ModelProto, Network]:
    """Thirty-two linear layers with so many MiB of weights in all; `onnx.save_model` puts them into a file
    beside.
    """
    net = Network()
    width = int((mebibytes * 2**20 / 32 / 4) ** 0.5)
    value = net.feed(net.draw.standard_normal((2, width), dtype=np.float32))
    for layer in range(32):
        value = net.op("Softsign", net.op("MatMul", value, net.floats(width, width)))
        if layer == 20:
            value = plant(net, value)
    return net.model(value, [2, width]), net


Architecture = Callable[[Plant], tuple[onnx.ModelProto, Network]]
HOSTS: dict[str, Architecture] = {
    "ResNet": resnet,
    "transformer": transformer,
    "LSTM": lstm,
    "UNet": unet,
    "If, Loop, Scan": control,
    "functions": local,
    "QDQ": quantised,
    "heavy": heavy,
    "heavy, wrong values": heavy,
}
