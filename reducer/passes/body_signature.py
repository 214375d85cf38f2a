"""Drop inputs and outputs of bodies: results without a reader, states that a Loop or Scan carries, scanned
tensors of a Scan.

One description of a node with bodies, its signature, maps each input and output of the node to those of the
body, so each edit is the same for every operator. The body reads the initial value in place of a dropped
state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import onnx

from opsieve.gen.irs.onnx.cuts import list_captured
from opsieve.gen.irs.onnx.graphs import attribute_of, drop_unused, graph_at, label, node_at, reread, uses
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.structure import bodies
from opsieve.gen.model.tensors import Value
from opsieve.reducer.onnx_edit.typed_view import Step, changing
from opsieve.reducer.problem.onnx_form import OnnxEdit


@dataclass(frozen=True)
class SignaturePart:
    """The positions of connected inputs and outputs of the node and of its bodies, -1 for an absent one.

    `scanned` is the number of a scanned tensor, for the attributes of Scan; -1 for anything else.
    """

    name: str
    node_input: int = -1
    node_output: int = -1
    body_input: int = -1
    body_output: int = -1
    scanned: int = -1
    stacked: int = -1


def signature(node: onnx.NodeProto) -> list[SignaturePart]:
    """The parts of an If, Loop, Scan or SequenceMap that can go one by one, the last ones first."""
    outputs = range(len(node.output))
    parts: list[SignaturePart] = []
    if node.op_type in ("If", "SequenceMap"):
        parts = [SignaturePart("result", node_output=place, body_output=place) for place in outputs]
    elif node.op_type == "Loop":
        carried = max(0, len(node.input) - 2)
        parts = [
            SignaturePart("state", place + 2, place, place + 2, place + 1)
            for place in range(min(carried, len(outputs)))
        ]
        parts += [SignaturePart("result", -1, place, -1, place + 1) for place in outputs if place >= carried]
    elif node.op_type == "Scan":
        count = attribute_of(node, "num_scan_inputs")
        states = len(node.input) - (count.i if count is not None else 0)
        parts = [
            SignaturePart("state", place, place, place, place) for place in range(min(states, len(outputs)))
        ]
        parts += [
            SignaturePart("result", -1, place, -1, place, stacked=place - states)
            for place in outputs
            if place >= states
        ]
        scanned = range(states, len(node.input)) if len(node.input) - states > 1 else ()
        parts += [
            SignaturePart("scanned input", place, -1, place, -1, scanned=place - states) for place in scanned
        ]
    return parts[::-1]


def signature_edits(subject: Subject, step: Step) -> Iterator[OnnxEdit]:
    """Drop droppable parts of a node's signature: results without a reader, whatever the body does with the
    rest.
    """
    node = step.node
    graph = graph_at(subject.model, step.path)
    if graph is None:
        return
    # Only what is read of this graph: a body may have a value of its own under the same name.
    used = {name for item in graph.node for name in list_captured(item)} | {
        info.name for info in graph.output
    }
    for part in signature(node):
        if part.node_output >= 0 and (len(node.output) < 2 or node.output[part.node_output] in used - {""}):
            continue
        body = next(bodies(node))
        if part.name == "scanned input" and body.input[part.body_input].name in uses(body):
            continue
        touched = {"/".join((*step.path, step.key)), *(name for name in node.output if name)}
        what = f"drop {part.name} {max(part.node_output, part.node_input)} of {label(node)}"
        yield changing(what, touched, partial(_drop_part, step=step, part=part), ())


def _drop_part(
    model: onnx.ModelProto, inputs: dict[str, Value], step: Step, part: SignaturePart
) -> dict[str, Value] | None:
    node = node_at(model, step.path, step.key)
    if node is None or part not in signature(node):
        return None
    for body in bodies(node):
        if part.body_output >= 0:
            del body.output[part.body_output]
        if part.body_input >= 0:
            own = body.input[part.body_input].name
            if part.name == "state":
                # The value that it begins with is read in the place of a state.
                reread(body.node, {own: node.input[part.node_input]})
            del body.input[part.body_input]
    if part.node_output >= 0:
        del node.output[part.node_output]
    if part.node_input >= 0:
        del node.input[part.node_input]
    _fewer_axes(node, part)
    return drop_unused(model, inputs) if any(node.output) else None


def _fewer_axes(node: onnx.NodeProto, part: SignaturePart) -> None:
    for prefix, place in (("scan_input", part.scanned), ("scan_output", part.stacked)):
        for suffix in ("axes", "directions") if place >= 0 else ():
            held = attribute_of(node, f"{prefix}_{suffix}")
            if held is not None and place < len(held.ints):
                del held.ints[place]
    count = attribute_of(node, "num_scan_inputs")
    if part.scanned >= 0 and count is not None:
        count.i -= 1
