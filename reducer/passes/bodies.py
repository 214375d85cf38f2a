"""Bodies of If, Loop, Scan and SequenceMap, and local functions: inlined, or made smaller inside.

Inside a body a node is taken out as outside: what it computed is replaced by a tensor of the same type that
is in scope, or by a new input of the model with plain values (nothing was recorded of a body). A Loop's trip
count is a value like any other and is lowered by `opsieve.reducer.passes.values`; what a Scan scans is
shortened by `opsieve.reducer.passes.dimensions`.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from opsieve.gen.irs.onnx.graphs import (
    Array,
    Path,
    declared_type,
    drop_unused,
    first_output,
    graph_at,
    graphs,
    label,
    node_of,
    nodes,
    stored_tensor,
)
from opsieve.gen.irs.onnx.splice import TURNS, splice_branch, splice_turn
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.structure import bodies
from opsieve.gen.model.tensors import DTYPES, Value
from opsieve.reducer.onnx_edit import onnx_subprocess
from opsieve.reducer.onnx_edit.plain_values import plain_tensor
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import (
    ABSENT,
    GraphTensor,
    Step,
    View,
    changing,
    only_simpler,
    view,
)
from opsieve.reducer.passes.body_signature import signature_edits
from opsieve.reducer.problem.onnx_form import OnnxEdit

_MOST_STAND_INS = 3
_FEW = 6  # nodes of a body up to which values of another type are tried in the place of a result
_BRANCHES = ("then_branch", "else_branch")


class Opening:
    """Bodies and functions inlined: the one step that leaves few of the others to be tried."""

    name = "bodies"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """One edit a branch of an If, a turn of a Loop, Scan or SequenceMap, a function."""
        for path, node in nodes(subject.model.graph):
            if node.op_type == "If" and first_output(node):
                for branch in _order(subject, path, node):
                    yield _inlined(path, node, branch)
            elif node.op_type in TURNS and first_output(node):
                yield from _turns(subject, path, node)
        for function in subject.model.functions:
            yield _function_inlined(function.domain, function.name)


OPENING = Opening()


class BodyPass:
    """Bodies and functions inlined, and nodes inside them taken out."""

    name = "bodies"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """Inlining first; then inside bodies from the last node up; then inside functions."""
        yield from OPENING.edits(subject)
        if any(path for path, _ in graphs(subject.model.graph)):
            seen = view(subject)
            for step in reversed(seen.steps):
                if step.bodies and step.key:
                    yield from signature_edits(subject, step)
                if step.path:
                    yield from _taken_out(seen, step)
        for place in range(len(subject.model.functions)):
            yield from _function_nodes(subject.model, place)


def _order(subject: Subject, path: Path, node: onnx.NodeProto) -> tuple[str, ...]:
    """The branch that is taken, where the condition is known, before the other."""
    name = node.input[0]
    found = subject.inputs.get(name, subject.values.get(name))
    if found is None:
        found = stored_tensor(subject.model, (), name)
    if isinstance(found, np.ndarray) and found.size == 1 and not bool(found.ravel()[0]):
        return _BRANCHES[::-1]
    return _BRANCHES


def _inlined(path: Path, node: onnx.NodeProto, branch: str) -> OnnxEdit:
    key = first_output(node)

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        return drop_unused(model, inputs) if splice_branch(model, path, key, branch) else None

    return only_simpler(
        changing(
            f"replace {label(node)} by its {branch}",
            {"/".join((*path, key)), *node.output},
            change,
            _parts(path, node),
        )
    )


def _turns(subject: Subject, path: Path, node: onnx.NodeProto) -> Iterator[OnnxEdit]:
    """One turn in the place of all, the barest first: elements of what is scanned as inputs, and results that
    are no stacks.
    """
    elements = _elements(subject, path, node)
    for taken, flat in ((elements, True), (elements, False), ({}, True), ({}, False)):
        if taken or taken is not elements:
            how = ("" if taken else ", elements taken by nodes") + (", not stacked" if flat else "")
            yield _turn(path, node, taken, flat, how)


def _turn(path: Path, node: onnx.NodeProto, elements: Mapping[str, Array], flat: bool, how: str) -> OnnxEdit:
    key = first_output(node)

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        fed = splice_turn(model, path, key, elements, flat)
        return None if fed is None else drop_unused(model, {**inputs, **fed})

    what = f"replace {label(node)} by one turn{how}"
    return only_simpler(changing(what, {"/".join((*path, key)), *node.output}, change, _parts(path, node)))


def _parts(path: Path, node: onnx.NodeProto) -> set[str]:
    """The node and its bodies."""
    owner = "/".join((*path, first_output(node)))
    return {owner, *(f"{owner}.{attribute.name}" for attribute in node.attribute if attribute.HasField("g"))}


def _elements(subject: Subject, path: Path, node: onnx.NodeProto) -> dict[str, Array]:
    """Values for the inputs of a body that are an element of what a Scan or SequenceMap goes through, by the
    body's names.

    The first element where the whole is known; else plain values of the type that the body declares.
    """
    body = next(bodies(node))
    turn = TURNS[node.op_type](node, body)
    found: dict[str, Array] = {}
    declared = {info.name: info.type for info in body.input}
    for inner, (_, source, index, axis) in turn.taken if turn is not None else ():
        whole = None if path else subject.inputs.get(source, subject.values.get(source))
        if isinstance(whole, np.ndarray) and whole.ndim > axis and whole.shape[axis]:
            found[inner] = np.ascontiguousarray(np.take(whole, index, axis))
        elif isinstance(whole, list) and whole and isinstance(whole[0], np.ndarray):
            found[inner] = whole[0]
        elif (value := _plain(declared[inner])) is not None:
            found[inner] = value
    return found


def _plain(type_: onnx.TypeProto) -> Array | None:
    """Small whole numbers of a tensor type whose sizes are known; None for any other."""
    tensor = type_.tensor_type
    if (
        not tensor.elem_type
        or not tensor.HasField("shape")
        or not all(d.HasField("dim_value") for d in tensor.shape.dim)
    ):
        return None
    return plain_tensor(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim))


def _taken_out(seen: View, step: Step) -> Iterator[OnnxEdit]:
    """Ways to do without a node of a body."""
    if not step.key:
        return
    graph = graph_at(seen.subject.model, step.path)
    if graph is None:
        return
    results = {info.name for info in graph.output}
    reads = {name for _, inner in graphs(graph) for item in inner.node for name in item.input} | results
    used = [number for number in step.outputs if number != ABSENT and seen.tensors[number].name in reads]
    if not used:
        yield _bypass(step, {})
        return
    tensors = seen.tensors
    inside = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    for item in graph.node:
        if first_output(item) == step.key:
            break
        inside.update(item.output)
    needs_inside = any(tensors[number].name in results for number in used)
    ways: list[dict[str, str]] = []
    for number in used:
        wanted = tensors[number]
        own = [item for item in step.inputs if item != ABSENT]
        others = [
            item
            for item in range(min(step.outputs) - 1, -1, -1)
            if step.path[: len(tensors[item].path)] == tensors[item].path
        ]
        found: list[str] = []
        unlike: list[str] = []
        for item in dict.fromkeys((*own, *others)):
            tensor = tensors[item]
            visible = tensor.name in inside or (tensor.path != step.path and not needs_inside)
            # two outputs may not be one value
            visible = visible and not (needs_inside and tensor.name in results)
            if tensor.name and visible and item not in step.outputs:
                (found if _alike(tensor, wanted) else unlike).append(tensor.name)
        found = found[:_MOST_STAND_INS] + (unlike[:_MOST_STAND_INS] if len(graph.node) <= _FEW else [])
        ways = [
            {**(ways[place] if place < len(ways) else (ways[-1] if ways else {})), wanted.name: name}
            for place, name in enumerate(found)
        ]
        if not ways:
            break
    for way in ways:
        yield _bypass(step, way)
    if not needs_inside and all(tensors[number].dtype in DTYPES for number in used):
        yield _cut(seen, step, used)


def _alike(tensor: GraphTensor, wanted: GraphTensor) -> bool:
    """Whether the types are the same as far as they are known; inference has the last word."""
    return tensor.dtype == wanted.dtype and (
        None in (tensor.shape, wanted.shape) or tensor.shape == wanted.shape
    )


def _bypass(step: Step, names: dict[str, str]) -> OnnxEdit:
    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        return drop_unused(model, inputs) if _without(model, step.path, step.key, names) else None

    how = f"by {', '.join(sorted(names.values()))[:60]}" if names else "which nothing reads"
    return changing(
        f"bypass {label(step.node)} in {step.path[-1]} {how}", {"/".join((*step.path, step.key))}, change
    )


def _without(model: onnx.ModelProto, path: Path, key: str, names: dict[str, str]) -> bool:
    """Take a node out and let those that read it read other names; False when it is gone or one of them
    is.
    """
    graph = graph_at(model, path)
    node = None if graph is None else node_of(graph, key)
    if graph is None or node is None:
        return False
    graph.node.remove(node)
    for _, inner in graphs(graph):
        for item in inner.node:
            for place, name in enumerate(item.input):
                if name in names:
                    item.input[place] = names[name]
    for info in graph.output:
        info.name = names.get(info.name, info.name)
    outputs = [info.name for info in graph.output]
    return len(set(outputs)) == len(outputs)


def _cut(seen: View, step: Step, used: list[int]) -> OnnxEdit:
    """What a node of a body computes comes from new inputs of the model."""
    values = {}
    for number in used:
        tensor = seen.tensors[number]
        values[tensor.name] = plain_tensor(tensor.dtype, tensor.shape or ())

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        taken = {name for _, graph in graphs(model.graph) for node in graph.node for name in node.output}
        names = {name: f"{name}_in" for name in values}
        if taken & set(names.values()) or names.keys() & inputs.keys() or inputs.keys() & set(names.values()):
            return None
        if not _without(model, step.path, step.key, names):
            return None
        for name, value in values.items():
            model.graph.input.append(onnx.ValueInfoProto(name=names[name], type=declared_type(value)))
            inputs[names[name]] = value
        return drop_unused(model, inputs)

    return changing(
        f"make {label(step.node)} in {step.path[-1]} an input", {"/".join((*step.path, step.key))}, change
    )


def _function_inlined(domain: str, name: str) -> OnnxEdit:
    def apply(subject: Subject) -> Subject | None:
        if not any((item.domain, item.name) == (domain, name) for item in subject.model.functions):
            return None
        model = onnx_subprocess.inlined(subject.model, [(domain, name)])
        return None if model is None else settle(subject, model)

    return only_simpler(
        OnnxEdit(f"inline the function {name[:40]!r}", frozenset((f"function:{domain}:{name}",)), apply)
    )


def _function_nodes(model: onnx.ModelProto, place: int) -> Iterator[OnnxEdit]:
    function = model.functions[place]
    for node in reversed(function.node):
        key = first_output(node)
        reads = {name for item in function.node for name in item.input} | set(function.output)
        made = [name for name in node.output if name in reads]
        if not made:
            yield _function_bypass(function, key, "", node)
        elif len(made) == 1:
            for name in dict.fromkeys(name for name in node.input if name):
                yield _function_bypass(function, key, name, node)


def _function_bypass(function: onnx.FunctionProto, key: str, name: str, node: onnx.NodeProto) -> OnnxEdit:
    owner = (function.domain, function.name, function.overload)

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        target = next(
            (item for item in model.functions if (item.domain, item.name, item.overload) == owner), None
        )
        node = (
            None
            if target is None
            else next((item for item in target.node if first_output(item) == key), None)
        )
        if target is None or node is None or (name and name not in node.input):
            return None
        outputs = set(node.output)
        target.node.remove(node)
        if outputs & set(target.output):
            return None if not name else _redirected(target, outputs, name, inputs)
        _reread(target, outputs, name)
        return inputs

    how = f"by {name[:40]!r}" if name else "which nothing reads"
    touch = f"function:{function.domain}:{function.name}/{key}"
    return changing(f"bypass {label(node)} in the function {function.name[:40]!r} {how}", {touch}, change)


def _redirected(
    function: onnx.FunctionProto, outputs: set[str], name: str, inputs: dict[str, Value]
) -> dict[str, Value] | None:
    """A function's result must be made by a node: the one that makes the stand-in gets the result's name."""
    wanted = next(item for item in function.output if item in outputs)
    maker = next((node for node in function.node if name in node.output), None)
    if maker is None or name in function.output:
        return None
    maker.output[list(maker.output).index(name)] = wanted
    _reread(function, {name} | outputs, wanted)
    return inputs


def _reread(function: onnx.FunctionProto, outputs: set[str], name: str) -> None:
    for node in function.node:
        for place, item in enumerate(node.input):
            if item in outputs:
                node.input[place] = name


PASS = BodyPass()
