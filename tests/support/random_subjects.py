"""Random small ONNX models with their inputs, for properties of edits."""

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from opsieve.gen.irs.onnx.view import Subject


class Builder:
    """A graph grown node by node, with the shape of every float tensor at hand."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.elem = draw(st.sampled_from([TensorProto.FLOAT, TensorProto.DOUBLE]))
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"tensor_{self.count}"

    def constant(self, array: np.ndarray) -> str:
        name = self.name()
        if self.draw(st.booleans()):
            self.initializers.append(numpy_helper.from_array(array, name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return name

    def floats(self, shape: tuple[int, ...]) -> str:
        count = int(np.prod(shape, dtype=np.int64))
        values = (np.arange(count) * 0.37 + 0.25).reshape(shape)
        return self.constant(values.astype(helper.tensor_dtype_to_np_dtype(self.elem)))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, operator: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        self.shapes[name] = shape
        return name


def grow(b: Builder, source: str) -> str:
    shape = b.shapes[source]
    rank = len(shape)
    kinds = ["unary", "constant", "softmax", "reduce", "concat", "slice", "flatten", "cast", "unsqueeze"]
    if rank >= 2:
        kinds += ["matmul", "transpose", "split_reshape"]
    if rank == 4:
        kinds += ["conv", "pool"]
    kind = b.draw(st.sampled_from(kinds))
    axis = b.draw(st.integers(0, rank - 1)) if rank else 0
    if kind == "constant" or rank == 0:
        other = b.floats(tuple(b.draw(st.sampled_from([1, size])) for size in shape))
        return b.add(b.draw(st.sampled_from(["Add", "Mul", "Max"])), [source, other], shape)
    if kind == "unary":
        return b.add(b.draw(st.sampled_from(["Relu", "Neg", "Sigmoid", "Identity"])), [source], shape)
    if kind == "softmax":
        return b.add("Softmax", [source], shape, axis=axis)
    if kind == "reduce":
        keep = b.draw(st.integers(0, 1))
        left = tuple(
            1 if place == axis else size for place, size in enumerate(shape) if keep or place != axis
        )
        return b.add("ReduceMax", [source], left, axes=[axis], keepdims=keep)
    if kind == "concat":
        return b.add(
            "Concat", [source, source], (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), axis=axis
        )
    if kind == "slice":
        end = b.draw(st.integers(1, shape[axis]))
        inputs = [source, b.ints(0), b.ints(end), b.ints(axis)]
        return b.add("Slice", inputs, (*shape[:axis], end, *shape[axis + 1 :]))
    if kind == "flatten":
        head = int(np.prod(shape[:axis], dtype=np.int64))
        return b.add("Flatten", [source], (head, int(np.prod(shape[axis:], dtype=np.int64))), axis=axis)
    if kind == "cast":
        down = b.add("Cast", [source], shape, to=TensorProto.FLOAT16)
        return b.add("Cast", [down], shape, to=b.elem)
    if kind == "unsqueeze":
        return b.add("Unsqueeze", [source, b.ints(0)], (1, *shape)) if rank < 4 else source
    if kind == "matmul":
        columns = b.draw(st.integers(1, 3))
        return b.add("MatMul", [source, b.floats((shape[-1], columns))], (*shape[:-1], columns))
    if kind == "transpose":
        perm = b.draw(st.permutations(range(rank)))
        return b.add("Transpose", [source], tuple(shape[place] for place in perm), perm=perm)
    if kind == "split_reshape":
        size = shape[axis]
        part = next(part for part in (2, 3, 1) if size % part == 0)
        split = (*shape[:axis], part, size // part, *shape[axis + 1 :])
        return b.add("Reshape", [source, b.ints(*split)], split)
    if kind == "conv":
        weight = b.floats((2, shape[1], 1, 1))
        return b.add(
            "Conv", [source, weight, b.floats((2,))], (shape[0], 2, *shape[2:]), kernel_shape=[1, 1], group=1
        )
    pooled = (*shape[:2], *(size + 1 for size in shape[2:]))
    return b.add("MaxPool", [source], pooled, kernel_shape=[2, 2], pads=[1, 1, 1, 1], strides=[1, 1])


@st.composite
def subjects(draw: Any) -> Subject:
    b = Builder(draw)
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    b.shapes["the_input"] = shape
    current = "the_input"
    for _ in range(draw(st.integers(1, 6))):
        current = grow(b, current)
    symbolic = draw(st.booleans())
    declared = ["batch" if symbolic and place == 0 else size for place, size in enumerate(shape)]
    if symbolic and any(node.op_type == "Reshape" for node in b.nodes):
        declared = list(shape)
    graph = helper.make_graph(
        b.nodes,
        "graph",
        [helper.make_tensor_value_info("the_input", b.elem, declared)],
        [helper.make_tensor_value_info(current, b.elem, [None] * len(b.shapes[current]))],
        b.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    values = (np.arange(int(np.prod(shape))) * 0.21 - 1).reshape(shape)
    return Subject(model, {"the_input": values.astype(helper.tensor_dtype_to_np_dtype(b.elem))}, {})
