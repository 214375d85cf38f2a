"""Bodies of If, Loop, Scan and SequenceMap, and local functions: inlined, or made smaller inside.

Inside a body a node is removed as outside: its result is replaced by a tensor of the same type that is in
scope, or by a new input of the model with plain values (values inside bodies are not recorded). A Loop's trip
count is a value like any other and is lowered by `opsieve.reducer.passes.values`; a scanned tensor is
shortened by `opsieve.reducer.passes.values`. Inputs and outputs of bodies are dropped: results without a
reader, states that a Loop or Scan carries, scanned tensors of a Scan.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import onnx

from opsieve.gen.declarations.catalogue import has_bodies
from opsieve.gen.irs.onnx.edits import bypass, drop_unused, reread
from opsieve.gen.irs.onnx.view import (
    Path,
    Subject,
    attribute_of,
    declared_type,
    first_output,
    get_function_key,
    graph_at,
    graphs,
    label,
    list_captured,
    node_at,
    uses,
)
from opsieve.gen.model.structure import bodies, ports_of
from opsieve.gen.model.tensors import DTYPES, Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.edits import EDITS
from opsieve.reducer.onnx_edit.typed_view import (
    ABSENT,
    Step,
    View,
    changing,
    plain_tensor,
    view,
)
from opsieve.reducer.passes.nodes import open_bodies
from opsieve.reducer.problem.order import OnnxEdit

# The number of values that are tried in the place of a result; each costs a test.
_MOST_STAND_INS = 3
# The most nodes of a body in which values of another type are tried in the place of a result.
_FEW = 6


def reduce_bodies(subject: Subject) -> Iterator[OnnxEdit]:
    """Inline bodies first; then change the inside of bodies from the last node up; then that of functions."""
    yield from open_bodies(EDITS, subject)
    if any(path for path, _ in graphs(subject.model.graph)):
        seen = view(subject)
        for step in reversed(seen.steps):
            if step.bodies and step.key:
                yield from signature_edits(subject, step)
            if step.path:
                yield from _taken_out(seen, step)
    for function in subject.model.functions:
        yield from _function_nodes(function)


def _taken_out(seen: View, step: Step) -> Iterator[OnnxEdit]:
    """Yield edits that remove a node of a body."""
    if not step.key:
        return
    graph = graph_at(seen.subject.model, step.path)
    if graph is None:
        return
    results = {info.name for info in graph.output}
    reads = uses(graph)
    used = [number for number in step.outputs if number != ABSENT and seen.tensors[number].name in reads]
    # Nothing reads it: it goes without a stand-in.
    if not used:
        yield _bypass(step.path, step.path[-1], step.node, {})
        return
    tensors = seen.tensors
    inside = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    for item in graph.node:
        if first_output(item) == step.key:
            break
        inside.update(item.output)
    # A body may only return what it computes itself.
    needs_inside = any(tensors[number].name in results for number in used)
    ways: list[dict[str, str]] = []
    for number in used:
        wanted = tensors[number]
        own = [item for item in step.inputs if item != ABSENT]
        others = [
            item
            # Numbers rise in the order of computation: nearest first, and never a later value.
            for item in range(min(step.outputs) - 1, -1, -1)
            if step.path[: len(tensors[item].path)] == tensors[item].path
        ]
        found: list[str] = []
        unlike: list[str] = []
        for item in dict.fromkeys((*own, *others)):
            tensor = tensors[item]
            visible = tensor.name in inside or (tensor.path != step.path and not needs_inside)
            # A body may not return one value twice.
            visible = visible and not (needs_inside and tensor.name in results)
            if tensor.name and visible and item not in step.outputs:
                # As far as sizes are known; inference decides the rest.
                sized = None not in (tensor.shape, wanted.shape)
                alike = tensor.dtype == wanted.dtype and (not sized or tensor.shape == wanted.shape)
                (found if alike else unlike).append(tensor.name)
        found = found[:_MOST_STAND_INS] + (unlike[:_MOST_STAND_INS] if len(graph.node) <= _FEW else [])
        # Several results are replaced together, the first stand-in of each, then the second, and so on.
        ways = [
            {**(ways[place] if place < len(ways) else (ways[-1] if ways else {})), wanted.name: name}
            for place, name in enumerate(found)
        ]
        if not ways:
            break
    for way in ways:
        yield _bypass(step.path, step.path[-1], step.node, way)
    if not needs_inside and all(tensors[number].dtype in DTYPES for number in used):
        yield _cut(seen, step, used)


def _bypass(path: Path, where: str, node: onnx.NodeProto, names: dict[str, str]) -> OnnxEdit:
    """Bypass a node of a body or of a function."""
    key = first_output(node)

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        return drop_unused(model, inputs) if bypass(model, path, key, names) else None

    how = f"by {', '.join(sorted(names.values()))[:60]}" if names else "which nothing reads"
    return changing(f"bypass {label(node)} in {where} {how}", {"/".join((*path, key))}, change)


def _cut(seen: View, step: Step, used: list[int]) -> OnnxEdit:
    """Feed the results of a node of a body as new inputs of the model."""
    values = {}
    for number in used:
        tensor = seen.tensors[number]
        values[tensor.name] = plain_tensor(tensor.dtype, tensor.shape or ())

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        taken = {name for _, graph in graphs(model.graph) for node in graph.node for name in node.output}
        names = {name: f"{name}_in" for name in values}
        if taken & set(names.values()) or names.keys() & inputs.keys() or inputs.keys() & set(names.values()):
            return None
        if not bypass(model, step.path, step.key, names):
            return None
        for name, value in values.items():
            model.graph.input.append(onnx.ValueInfoProto(name=names[name], type=declared_type(value)))
            inputs[names[name]] = value
        return drop_unused(model, inputs)

    return changing(
        f"make {label(step.node)} in {step.path[-1]} an input", {"/".join((*step.path, step.key))}, change
    )


def _function_nodes(function: onnx.FunctionProto) -> Iterator[OnnxEdit]:
    path, where = (get_function_key(function),), f"the function {function.name[:40]!r}"
    reads = {name for item in function.node for name in item.input} | set(function.output)
    for node in reversed(function.node):
        made = [name for name in node.output if name in reads]
        # Functions have no types, so that only the node's own inputs are likely to fit.
        stand_ins = dict.fromkeys(filter(None, node.input)) if len(made) == 1 else ()
        for names in ({made[0]: name} for name in stand_ins) if made else ({},):
            yield _bypass(path, where, node, names)


PASS = ListedPass("bodies", reduce_bodies)


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
    """Return the parts of an If, Loop, Scan or SequenceMap that can go one by one, the last ones first."""
    if not has_bodies(node.op_type):
        return []
    ports, count = ports_of(node), len(node.output)
    parts = [
        SignaturePart("state", ports.operands + place, place, ports.inputs + place, ports.results + place)
        for place in range(min(ports.states, count))
    ]
    parts += [
        SignaturePart(
            "result",
            -1,
            place,
            -1,
            ports.results + place,
            stacked=place - ports.states if node.op_type == "Scan" else -1,
        )
        for place in range(ports.states, count)
    ]
    # The operands of a Loop behind the first two are all states.
    scanned = range(ports.operands + ports.states, len(node.input))
    parts += [
        SignaturePart("scanned input", place, -1, place, -1, scanned=place - ports.states)
        for place in (scanned if len(scanned) > 1 else ())
    ]
    return parts[::-1]


def signature_edits(subject: Subject, step: Step) -> Iterator[OnnxEdit]:
    """Drop single parts of a node's signature, such as a result or a scanned input, that have no reader."""
    node = step.node
    graph = graph_at(subject.model, step.path)
    if graph is None:
        return
    # Only what is read of this graph: a body may have a value of its own under the same name.
    used = {name for item in graph.node for name in list_captured(item)} | {
        info.name for info in graph.output
    }
    for part in signature(node):
        # A node without outputs is invalid.
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
                # Readers of a dropped state read its initial value, which the body sees from outside.
                reread(body.node, {own: node.input[part.node_input]})
            del body.input[part.body_input]
    if part.node_output >= 0:
        del node.output[part.node_output]
    if part.node_input >= 0:
        del node.input[part.node_input]
    _fewer_axes(node, part)
    return drop_unused(model, inputs) if any(node.output) else None


def _fewer_axes(node: onnx.NodeProto, part: SignaturePart) -> None:
    # The lists of Scan have one entry for each scanned tensor.
    for prefix, place in (("scan_input", part.scanned), ("scan_output", part.stacked)):
        for suffix in ("axes", "directions") if place >= 0 else ():
            held = attribute_of(node, f"{prefix}_{suffix}")
            if held is not None and place < len(held.ints):
                del held.ints[place]
    count = attribute_of(node, "num_scan_inputs")
    if part.scanned >= 0 and count is not None:
        count.i -= 1
