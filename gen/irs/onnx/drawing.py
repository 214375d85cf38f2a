"""An ONNX graph as lines for the screen, drawn with its edges."""

from typing import Any

import onnx
from onnx import helper

from opsieve.gen.irs.ir import Lines
from opsieve.gen.model.graph_text import Box, draw_boxes
from opsieve.gen.model.printable import count_noun
from opsieve.gen.model.tensors import TensorType, read_type

# Drawn
_NODES = 2000


def graph_lines(graph: onnx.GraphProto) -> Lines:
    """(rails, label) lines: a line for each input, node and output."""
    constants = {tensor.name for tensor in graph.initializer}
    boxes = [
        Box(f"{value.name}  {_type(value.type)}", (), (value.name,), "○")
        for value in graph.input
        if value.name not in constants
    ]
    boxes += [_box(node, constants) for node in graph.node[:_NODES]]
    if len(graph.node) <= _NODES:
        boxes += [Box(f"{value.name}  {_type(value.type)}", (value.name,), (), "◎") for value in graph.output]
    lines = [(rails, label) for rails, label in draw_boxes(boxes)]
    if len(graph.node) > _NODES:
        lines.append(("", f"… {len(graph.node) - _NODES:,} more nodes are not drawn"))
    return lines


def _box(node: Any, constants: set[str]) -> Any:
    given = " ".join(f"{name}" for name in node.input if name in constants)
    attributes = " ".join(f"{each.name}={_attribute(each)}" for each in node.attribute)
    words = [
        node.op_type,
        f"({given})" if given else "",
        attributes,
        "→ " + ", ".join(filter(None, node.output)),
    ]
    reads = {name for name in node.input if name}
    for attribute in node.attribute:
        for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            reads |= {name for inner in body.node for name in inner.input if name}
    ordered = [*(name for name in node.input if name), *sorted(reads - set(node.input))]
    return Box(" ".join(filter(None, words)), tuple(ordered), tuple(filter(None, node.output)))


def _attribute(attribute: Any) -> str:
    if attribute.HasField("t"):
        return f"tensor{list(attribute.t.dims)}"
    if attribute.HasField("g"):
        return f"body of {count_noun(len(attribute.g.node), 'node')}"
    if (
        attribute.tensors
        or attribute.graphs
        or attribute.sparse_tensors
        or attribute.HasField("sparse_tensor")
    ):
        return "…"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = str(list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _type(type_: Any) -> str:
    found = read_type(type_)
    if isinstance(found, TensorType):
        shape = (
            "[…]"
            if found.shape is None
            else f"[{','.join('?' if size is None else str(size) for size in found.shape)}]"
        )
        return f"{found.dtype}{shape}"
    return type(found).__name__.removesuffix("Type").lower()
