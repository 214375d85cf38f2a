"""Replace If, Loop, Scan and SequenceMap by their bodies, and calls by local functions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

from opsieve.gen.irs import view
from opsieve.gen.irs.onnx.edits import add_initializers, drop_unused, encode_array, replace_items
from opsieve.gen.irs.onnx.view import (
    Array,
    Path,
    Subject,
    attribute_of,
    declared_type,
    first_output,
    graph_at,
    graphs,
    label,
    list_definitions,
    node_of,
    nodes,
    opset_of,
    stored_tensor,
)
from opsieve.gen.model.structure import all_nodes, bodies, copied, list_names, ports_of
from opsieve.gen.model.tensors import Value
from opsieve.reducer.onnx_edit import onnx_subprocess, typed_view
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.problem.order import Change

# The body's input; operator, what it takes from, index, axis.
_Element: TypeAlias = tuple[str, tuple[str, str, int, int]]
_Pair: TypeAlias = tuple[str, onnx.ValueInfoProto]
# Operator and axis
_Stacked: TypeAlias = tuple[str, onnx.ValueInfoProto, tuple[str, int]]
_BRANCHES = ("then_branch", "else_branch")


def find_openings(subject: Subject) -> Iterator[view.Opening]:
    """Yield the branches of each If, turns of each Loop, Scan and SequenceMap, and functions."""
    for path, node in nodes(subject.model.graph):
        if node.op_type == "If" and first_output(node):
            for branch in _order(subject, path, node):
                change = partial(_take_branch, path=path, key=first_output(node), branch=branch)
                yield _opening(path, node, f"its {branch}", change)
        elif node.op_type in TURNS and first_output(node):
            yield from _turns(subject, path, node)
    for function in subject.model.functions:
        touches = frozenset((f"function:{function.domain}:{function.name}",))
        apply = partial(_inline_function, domain=function.domain, name=function.name)
        yield view.Opening(f"inline the function {function.name[:40]!r}", touches, touches, apply)


def _opening(path: Path, node: onnx.NodeProto, by: str, change: Change) -> view.Opening:
    owner = "/".join((*path, first_output(node)))
    inner = (f"{owner}.{attribute.name}" for attribute in node.attribute if attribute.HasField("g"))
    what = f"replace {label(node)} by {by}"
    touches = frozenset((owner, *node.output))
    return view.Opening(
        what, touches, frozenset((owner, *inner)), typed_view.changing(what, touches, change).apply
    )


def _order(subject: Subject, path: Path, node: onnx.NodeProto) -> tuple[str, ...]:
    """Put the branch that is taken first, if the condition is known."""
    name = node.input[0]
    found = subject.inputs.get(name, subject.values.get(name))
    if found is None:
        found = stored_tensor(subject.model, (), name)
    if isinstance(found, np.ndarray) and found.size == 1 and not bool(found.ravel()[0]):
        return _BRANCHES[::-1]
    return _BRANCHES


def _take_branch(
    model: onnx.ModelProto, inputs: dict[str, Value], path: Path, key: str, branch: str
) -> dict[str, Value] | None:
    return drop_unused(model, inputs) if splice_branch(model, path, key, branch) else None


def _turns(subject: Subject, path: Path, node: onnx.NodeProto) -> Iterator[view.Opening]:
    """Replace all iterations by one, the barest first: elements of scanned tensors as inputs, and results
    without stacks.
    """
    elements = _elements(subject, path, node)
    # Fewer nodes are better, but a failure may need the nodes that take elements, or the stacked results.
    for taken, flat in ((elements, True), (elements, False), ({}, True), ({}, False)):
        if taken or taken is not elements:
            how = ("" if taken else ", elements taken by nodes") + (", not stacked" if flat else "")
            change = partial(_take_turn, path=path, key=first_output(node), elements=taken, flat=flat)
            yield _opening(path, node, f"one turn{how}", change)


def _take_turn(
    model: onnx.ModelProto,
    inputs: dict[str, Value],
    path: Path,
    key: str,
    elements: Mapping[str, Array],
    flat: bool,
) -> dict[str, Value] | None:
    fed = splice_turn(model, path, key, elements, flat)
    return None if fed is None else drop_unused(model, {**inputs, **fed})


def _elements(subject: Subject, path: Path, node: onnx.NodeProto) -> dict[str, Array]:
    """Return values for the body inputs that are elements of a tensor that a Scan or SequenceMap iterates
    over, by the body's names.

    It is the first element if the whole is known, otherwise plain values of the type that the body declares.
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
    """Return small whole numbers of a tensor type with known sizes; `None` for any other."""
    tensor = type_.tensor_type
    if (
        not tensor.elem_type
        or not tensor.HasField("shape")
        or not all(d.HasField("dim_value") for d in tensor.shape.dim)
    ):
        return None
    return typed_view.plain_tensor(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim))


def _inline_function(subject: Subject, domain: str, name: str) -> Subject | None:
    function = next((f for f in subject.model.functions if (f.domain, f.name) == (domain, name)), None)
    if function is None:
        return None
    model = onnx_subprocess.inline_functions(subject.model, [(domain, name)])
    if model is None:
        return None
    # onnx's inliner adds the imports of a function to the model, but not to functions that call it.
    for caller in model.functions:
        imported = {entry.domain for entry in caller.opset_import}
        missing = {node.domain for node in all_nodes(caller.node)} - imported
        caller.opset_import.extend(entry for entry in function.opset_import if entry.domain in missing)
    return settle(subject, model)


def splice_branch(model: onnx.ModelProto, path: Path, key: str, branch: str) -> bool:
    """Replace an If by one of its branches, in place; False when it is not there (any more)."""
    graph = graph_at(model, path)
    node = None if graph is None else node_of(graph, key)
    body = None if node is None else attribute_of(node, branch)
    if graph is None or node is None or body is None or node.op_type != "If":
        return False
    return _splice(
        model, graph, node, body.g, _Turn({}, [], [], list(zip(node.output, body.g.output, strict=True)), [])
    )


@dataclass(frozen=True)
class _Turn:
    """One iteration of a node that runs its body many times.

    `bound` maps names of the body to outer names, `constants` are body names with a fixed value; `taken` are
    nodes that take one element of a scanned tensor. `results` pair outputs of the node with those of the
    body; `stacked` likewise, with the node that stacks the one element.
    """

    bound: dict[str, str]
    constants: list[onnx.TensorProto]
    taken: list[_Element]
    results: list[_Pair]
    stacked: list[_Stacked]


def splice_turn(
    model: onnx.ModelProto, path: Path, key: str, elements: Mapping[str, Array], flat: bool
) -> dict[str, Array] | None:
    """Replace a Loop, Scan or SequenceMap by its first iteration, in place; returns `None` if it is gone or
    cannot be unrolled.

    `elements` are values for body inputs that are elements of a scanned tensor; they become inputs of the
    model, whose names with their values are returned; nodes take the others. With `flat`, the result of the
    one iteration replaces the stack.
    """
    graph = graph_at(model, path)
    node = None if graph is None else node_of(graph, key)
    held = None if node is None else attribute_of(node, "body")
    if graph is None or node is None or held is None or node.op_type not in TURNS:
        return None
    turn = TURNS[node.op_type](node, held.g)
    if turn is None:
        return None
    if flat:
        pairs = [(outer, info) for outer, info, _ in turn.stacked]
        turn = replace(turn, results=turn.results + pairs, stacked=[])
    taken, fed = view.FreshNames(list_names(model)), {}
    for name, value in elements.items() if any(inner in elements for inner, _ in turn.taken) else ():
        turn.bound[name] = fresh = taken.fresh(f"{name}_")
        fed[fresh] = value
    turn = replace(turn, taken=[item for item in turn.taken if item[0] not in elements])
    for name, value in fed.items():
        model.graph.input.append(onnx.ValueInfoProto(name=name, type=declared_type(value)))
    return fed if _splice(model, graph, node, held.g, turn) else None


def _loop_turn(node: onnx.NodeProto, body: onnx.GraphProto) -> _Turn | None:
    """Unroll a Loop (https://onnx.ai/onnx/operators/onnx__Loop.html) or a Scan (onnx__Scan.html, opset 9 and
    later).
    """
    ports, numbers = ports_of(node), {item.name: list(item.ints) for item in node.attribute}
    given, inner = list(node.input)[ports.operands :], list(body.input)[ports.inputs :]
    results = list(zip(node.output, list(body.output)[ports.results :], strict=False))
    if (
        # A malformed node of a user's model, which the checker need not have seen.
        len(node.input) < ports.operands
        or len(body.input) != len(node.input)
        or len(results) < len(node.output)
    ):
        return None
    constants = [
        # In the first turn the counter is 0 and the condition is true.
        encode_array(np.full((1,) * len(info.type.tensor_type.shape.dim), value, dtype), info.name)
        for info, value, dtype in zip(body.input, (0, 1), (np.int64, np.bool_), strict=False)
        if ports.inputs
    ]
    axes, backward, out_axes = (
        numbers.get(name, []) + [0] * len(list(node.input) + results)
        for name in ("scan_input_axes", "scan_input_directions", "scan_output_axes")
    )
    return _Turn(
        {info.name: name for info, name in zip(inner[: ports.states], given, strict=False)},
        constants,
        [
            # A backward scan begins at the last element.
            (info.name, ("Gather", name, -1 if backward[place] else 0, axes[place]))
            for place, (info, name) in enumerate(
                zip(inner[ports.states :], given[ports.states :], strict=True)
            )
        ],
        results[: ports.states],
        [(*pair, ("Unsqueeze", out_axes[place])) for place, pair in enumerate(results[ports.states :])],
    )


def _map_turn(node: onnx.NodeProto, body: onnx.GraphProto) -> _Turn | None:
    """Unroll a SequenceMap (https://onnx.ai/onnx/operators/onnx__SequenceMap.html): the first element of a
    sequence, and tensors as they are.
    """
    if len(body.input) != len(node.input) or len(body.output) < len(node.output):
        return None
    first, *others = zip(body.input, node.input, strict=True)
    elements: list[_Element] = [(first[0].name, ("SequenceAt", first[1], 0, 0))]
    # A further sequence would have to give an element of its own for each turn.
    if any(info.type.HasField("sequence_type") for info, _ in others):
        return None
    bound = {info.name: name for info, name in others}
    results = zip(list(node.output), list(body.output), strict=False)
    return _Turn(bound, [], elements, [], [(*pair, ("SequenceConstruct", 0)) for pair in results])


TURNS = {"Loop": _loop_turn, "Scan": _loop_turn, "SequenceMap": _map_turn}


def _splice(
    model: onnx.ModelProto, graph: onnx.GraphProto, node: onnx.NodeProto, body: onnx.GraphProto, turn: _Turn
) -> bool:
    """Put a copy of the body in the place of its node."""
    body_copy = copied(body)
    for info in body_copy.output:
        # The outputs are no declarations any more: the outer graph declares those values itself.
        info.ClearField("type")
    taken = view.FreshNames(list_names(model))
    names, direct = _renaming(body_copy, turn, taken)
    initial = [*body_copy.initializer, *turn.constants]
    for tensor in initial:
        tensor.name = names[tensor.name]
    _rename(body_copy, names)
    makes = _Makes(taken, initial, lists=opset_of(model) >= 13)
    before = [makes.element(how, names[inner]) for inner, how in turn.taken]
    extra = [
        helper.make_node("Identity", [names.get(info.name, info.name)], [outer])
        for outer, info in turn.results
        if outer and outer not in direct
    ]
    extra += [
        makes.stack(how, names.get(info.name, info.name), outer) for outer, info, how in turn.stacked if outer
    ]
    place = list(graph.node).index(node)
    nodes = [*list(graph.node)[:place], *before, *body_copy.node, *extra, *list(graph.node)[place + 1 :]]
    replace_items(graph.node, nodes)
    # The counter and the condition of a Loop are often read by nothing.
    used = {name for _, inner in graphs(graph) for item in inner.node for name in item.input}
    add_initializers(model, graph, [tensor for tensor in initial if tensor.name in used])
    return True


def _renaming(body: onnx.GraphProto, turn: _Turn, taken: view.FreshNames) -> tuple[dict[str, str], set[str]]:
    """Map the body's names to outer names, and collect the results that its nodes make directly; adds the new
    names to `taken`.
    """
    made = {name for inner in body.node for name in inner.output if name}
    names = dict(turn.bound)
    direct: set[str] = set()
    # A result that a node of the body makes takes the outer name at once; any other one needs an Identity.
    for outer, info in turn.results:
        if outer and info.name in made and info.name not in names:
            names[info.name] = outer
            direct.add(outer)
    stored = [tensor.name for tensor in (*body.initializer, *turn.constants)]
    for name in (*stored, *(inner for inner, _ in turn.taken), *sorted(made)):
        if name not in names:
            names[name] = taken.fresh(f"{name}_")
    return names, direct


class _Makes:
    """Builds nodes that take an element of a scanned tensor and nodes that stack one element; their constants
    go to `initial`.
    """

    def __init__(self, taken: view.FreshNames, initial: list[onnx.TensorProto], lists: bool):
        """`lists`: axes are inputs (opset 13 and later), not attributes."""
        self._taken, self._initial, self._lists = taken, initial, lists

    def element(self, how: tuple[str, str, int, int], inner: str) -> onnx.NodeProto:
        operator, source, index, axis = how
        place = self._constant(np.array(index, np.int64), "index")
        # SequenceAt has no axis.
        if operator != "Gather":
            return helper.make_node(operator, [source, place], [inner])
        return helper.make_node(operator, [source, place], [inner], axis=axis)

    def stack(self, how: tuple[str, int], name: str, outer: str) -> onnx.NodeProto:
        operator, axis = how
        if operator != "Unsqueeze":
            return helper.make_node(operator, [name], [outer])
        # Unsqueeze of opset 12 and before.
        if not self._lists:
            return helper.make_node(operator, [name], [outer], axes=[axis])
        return helper.make_node(operator, [name, self._constant(np.array([axis], np.int64), "axes")], [outer])

    def _constant(self, value: Array, stem: str) -> str:
        name = self._taken.fresh(f"{stem}_")
        self._initial.append(encode_array(value, name))
        return name


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for field in (node.input, node.output):
            for place, name in enumerate(field):
                if name in names:
                    field[place] = names[name]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                # A name that a nested body defines itself hides the outer one.
                own = list_definitions(attribute.g)
                _rename(attribute.g, {old: new for old, new in names.items() if old not in own})
    for info in graph.output:
        info.name = names.get(info.name, info.name)
