"""The record of ONNX, the IR that the generator's core is written in."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx
from onnx import helper

from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.irs.ir import IR, Lines, ScriptFacts
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.program import MODEL, OnnxProgram, graph_details
from opsieve.gen.model import detached, lowering, structure
from opsieve.gen.model.printable import count_noun
from opsieve.gen.model.tensors import TensorType, read_type

# The most nodes that are drawn.
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
        # What a body captures is an edge to its owner, since bodies are not drawn.
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


# The most rails that are drawn; values beyond them are only named.
_RAILS = 16


@dataclass(frozen=True, slots=True)
class Box:
    """A node, a graph input ("●" is "○" then) or an output: its label, its inputs and its outputs."""

    label: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sign: str = "●"


def draw_boxes(boxes: Sequence[Box]) -> list[tuple[str, str]]:
    """Draw a line for each box: its rails and its label. Boxes come in topological order."""
    left: dict[str, int] = {}
    for box in boxes:
        for name in box.inputs:
            left[name] = left.get(name, 0) + 1
    # The value of each rail, "" for a free one.
    rails: list[str] = []
    lines: list[tuple[str, str]] = []
    for box in boxes:
        read = list(dict.fromkeys(name for name in box.inputs if name in rails))
        for name in box.inputs:
            left[name] -= 1
        joined = sorted(rails.index(name) for name in read)
        ended = {rails.index(name) for name in read if not left[name]}
        home = next((at for at in joined if at in ended), None)
        if home is None:
            # The first free rail, made if need be.
            if "" not in rails:
                rails.append("")
            home = rails.index("")
        made = [name for name in box.outputs if left.get(name)]
        places = [home, *_more_free(rails, ended - {home}, home, len(made) - 1)] if made else []
        lines.append((_line(rails, home, joined, ended, places[1:], box.sign), box.label))
        for at in ended:
            rails[at] = ""
        for at, name in zip(places, made, strict=False):
            rails[at] = name
        # Free rails at the right would push the labels away from the drawing.
        while rails and not rails[-1]:
            rails.pop()
    return lines


def _more_free(rails: list[str], ending: set[int], home: int, many: int) -> list[int]:
    """Find further free rails for a box of several outputs."""
    found: list[int] = []
    at = home + 1
    while len(found) < many:
        if at == len(rails):
            rails.append("")
        if not rails[at] and at not in ending:
            found.append(at)
        at += 1
    return found


def _line(
    rails: list[str], home: int, joined: list[int], ended: set[int], begun: Sequence[int], sign: str
) -> str:
    """Return the rails beside one box: `│` passes by, `╯` ends here, `┤` is read and goes on, `╮` begins
    here.
    """
    touched = {*joined, *begun, home}
    low, high = min(touched), max(touched)
    text = []
    for at in range(min(_RAILS, max(len(rails), high + 1))):
        if at == home:
            mark = sign
        elif at in begun:
            mark = "╮"
        elif at in joined:
            ends = at in ended
            mark = ("╯" if ends else "┤") if at > home else ("╰" if ends else "├")
        elif at < len(rails) and rails[at]:
            mark = "┼" if low < at < high else "│"
        else:
            mark = "─" if low < at < high else " "
        text.append(mark + ("─" if low <= at < high else " "))
    return "".join(text).rstrip() + ("…" if high >= _RAILS or len(rails) > _RAILS else "")


# The size in bytes from which the lowered copy of a model is not cached.
_HEAVY = 16 << 20


def payload(program: OnnxProgram, as_is: bool) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes to send and additional header fields of the test: the model with the lowest IR version
    that it allows, unless it stays `as_is`.
    """
    if len(program.pieces) > 1:
        end = b"" if as_is else _lower(program)
        pieces = (*program.pieces, end)
        bare = program.model + end
        tensors = [
            [tensor.name, tensor.data_type, list(tensor.dims), part.offset, part.length]
            for tensor in program.proto.graph.initializer
            if (part := detached.part_of(tensor)) is not None
        ]
        places = [
            [len(piece)] if isinstance(piece, bytes) else [piece.offset, piece.length] for piece in pieces
        ]
        sent = b"".join(piece for piece in pieces if isinstance(piece, bytes))
        return sent + bare, {"outside": {"pieces": places, "tensors": tensors, "bare": len(bare)}}
    if as_is:
        return program.data, {}
    return (_lower_ir_version(program) if len(program.data) < _HEAVY else program.data + _lower(program)), {}


def older(program: OnnxProgram) -> OnnxProgram | None:
    """Return the same operators under the lowest opset that has them; `None` if that is the program
    itself.
    """
    lowered = lowering.lower_opset(program.proto).SerializeToString()
    return None if lowered == program.proto.SerializeToString() else OnnxProgram(lowered, program.name)


def _lower(program: OnnxProgram) -> bytes:
    """What lowers the IR version of a serialised model that it is added to: of a field that stands twice
    protobuf takes the last one.
    """
    lowest = lowering.lowest_ir(program.proto)
    # 0x08 is the tag of field 1, `ir_version`, as a varint; versions below 128 take one byte.
    return b"" if lowest == program.proto.ir_version else b"\x08" + bytes([lowest])


@lru_cache(maxsize=64)
def _lower_ir_version(program: OnnxProgram) -> bytes:
    """Return the model with its IR version lowered, so that a release does not refuse it for the number
    alone.
    """
    return lowering.lower_ir(program.model)


def _describe(program: OnnxProgram) -> Lines:
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in program.proto.opset_import)
    return [("opsets", opsets), ("IR version", str(program.proto.ir_version))]


def _operators(program: OnnxProgram) -> list[str]:
    nodes = structure.all_nodes(program.proto.graph.node)
    return [f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes]


# By what the strategies found in equal CPU time, and what only they found (docs/benchmarks/generator.md,
# "Yield"), by planted faults that need several neighbours (`chains` meets most of these), by the balance of
# operators (`pattern` would drown the rest in Add and Mul), and by cost.
_WEIGHTS = {
    "isra": 140,
    "hirfuzz": 240,
    "pattern": 90,
    "chains": 390,
    "function-rewrite": 64,
    "mutate": 72,
    "nnsmith": 4,
}
ONNX = IR(
    name="onnx",
    suffix=".onnx",
    files=(MODEL,),
    read=load_program,
    load=lambda data, passes, name: OnnxProgram(data, name),
    validator="checker",
    checker="checker",
    seed_inputs=lambda program, seed: seeded_inputs(program.proto, seed),
    payload=payload,
    lower=lambda program: lowering.lower_ir(program.data),
    older=older,
    graph=lambda program: program.proto,
    details=lambda program: graph_details(program.proto),
    # A campaign that names one of these loads no other IR.
    strategies={**_WEIGHTS, "mix": 0, "disruptive": 0, "documented": 0},
    usual_features=50.0,
    rewrites="opsieve.gen.rewrites.nodes:REWRITES",
    reduction="opsieve.reducer.irs.onnx:OnnxReduction",
    printer=lambda program: "checker:tell=text",
    script=ScriptFacts(
        noun="model",
        packages=("numpy", "onnx"),
        imports=("onnx", "onnx.parser"),
        parse="onnx.parser.parse_model({}).SerializeToString()",
        authors={
            "reference:float64": "ONNX's reference evaluator in float64",
            "reference": "ONNX's reference evaluator",
        },
        serialised=True,
        trusts_baseline=False,
    ),
    lines=lambda program: graph_lines(program.proto.graph),
    describe=_describe,
    operators=_operators,
)
