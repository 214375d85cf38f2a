"""A program of any form as lines for the screen: an ONNX graph drawn with its edges, other forms as their
text.
"""

from collections import Counter
from typing import Any

import onnx
from onnx import helper

from opsieve.gen.forms.registry import MODULE
from opsieve.gen.model.graph_text import Box, drawn
from opsieve.gen.model.printable import counted
from opsieve.gen.model.program import OnnxProgram, Program
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import TensorType, read_type

_NODES = 2000  # drawn


def program_lines(program: Program) -> list[tuple[str, str]]:
    """(rails, label) lines."""
    if isinstance(program, OnnxProgram):
        return _onnx_lines(program.proto.graph)
    lines = [("", line) for line in program.text().splitlines()]
    left = len(lines) - _NODES
    return lines[:_NODES] + ([("", f"… {left:,} more lines are not shown")] if left > 0 else [])


def program_operators(program: Program) -> tuple[tuple[str, int], ...]:
    """Operators and how often each is applied, the most frequent first."""
    names = (
        [
            f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            for node in all_nodes(program.proto.graph.node)
        ]
        if isinstance(program, OnnxProgram)
        else list(program.operators())
    )
    return tuple(sorted(Counter(names).items(), key=lambda one: (-one[1], one[0])))


def program_facts(program: Program) -> list[tuple[str, str]]:
    """(name, value) lines about the program itself."""
    if isinstance(program, OnnxProgram):
        opsets = ", ".join(
            f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in program.proto.opset_import
        )
        return [("opsets", opsets), ("IR version", str(program.proto.ir_version))]
    return [
        ("form", program.kind.partition(" ")[2]),
        ("passes", " ".join(program.passes)),
        ("program", MODULE),
    ]


def _onnx_lines(graph: onnx.GraphProto) -> list[tuple[str, str]]:
    constants = {tensor.name for tensor in graph.initializer}
    boxes = [
        Box(f"{value.name}  {_type(value.type)}", (), (value.name,), "○")
        for value in graph.input
        if value.name not in constants
    ]
    boxes += [_box(node, constants) for node in graph.node[:_NODES]]
    if len(graph.node) <= _NODES:
        boxes += [Box(f"{value.name}  {_type(value.type)}", (value.name,), (), "◎") for value in graph.output]
    lines = [(rails, label) for rails, label in drawn(boxes)]
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
        return f"body of {counted(len(attribute.g.node), 'node')}"
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
