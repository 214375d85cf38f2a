"""Replace If, Loop, Scan and SequenceMap by their bodies, and calls by local functions."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import onnx

from opsieve.gen.irs.onnx.graphs import Array, Path, drop_unused, first_output, label, nodes, stored_tensor
from opsieve.gen.irs.onnx.splice import TURNS, splice_branch, splice_turn
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.irs.view import Opening
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.gen.model.tensors import Value
from opsieve.reducer.onnx_edit import onnx_subprocess
from opsieve.reducer.onnx_edit.plain_values import plain_tensor
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import changing
from opsieve.reducer.problem.onnx_form import Change

_BRANCHES = ("then_branch", "else_branch")


def find_openings(subject: Subject) -> Iterator[Opening]:
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
        yield Opening(f"inline the function {function.name[:40]!r}", touches, touches, apply)


def _opening(path: Path, node: onnx.NodeProto, by: str, change: Change) -> Opening:
    owner = "/".join((*path, first_output(node)))
    inner = (f"{owner}.{attribute.name}" for attribute in node.attribute if attribute.HasField("g"))
    what = f"replace {label(node)} by {by}"
    touches = frozenset((owner, *node.output))
    return Opening(what, touches, frozenset((owner, *inner)), changing(what, touches, change).apply)


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


def _turns(subject: Subject, path: Path, node: onnx.NodeProto) -> Iterator[Opening]:
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
    return plain_tensor(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim))


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
