"""The surroundings of the graph: unused entries, texts, versions, dynamic dimensions, Constant nodes,
names.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx

from opsieve.gen.irs.onnx.edits import add_initializers, drop_unused, encode_array, keep
from opsieve.gen.irs.onnx.view import (
    Path,
    Subject,
    declared_type,
    first_output,
    graph_at,
    graphs,
    label,
    list_called_functions,
    node_at,
    node_of,
    nodes,
    schema_of,
    uses,
)
from opsieve.gen.model.attributes import constant_array, is_constant
from opsieve.gen.model.lowering import lower_opset, lowest_ir, lowest_opset
from opsieve.gen.model.structure import all_nodes, copied
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.canonical_names import make_canonical
from opsieve.reducer.onnx_edit.parts import OLDEST, fields
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import changing
from opsieve.reducer.problem.order import OnnxEdit, simpler

# The most named nodes for which each name is dropped by an edit of its own.
_FEW = 6
# Fields of texts at any depth; those of the main graph itself are fields of their own in the census.
_TEXTS = frozenset(("doc_string", "metadata_props", "denotation", "quantization_annotation"))


def simplify_surroundings(subject: Subject) -> Iterator[OnnxEdit]:
    """Take constants out of the nodes first, change names at last."""
    for path, node in nodes(subject.model.graph):
        if is_constant(node) and first_output(node) and constant_array(node) is not None:
            yield _unnode(path, first_output(node))
    initial = {tensor.name for tensor in subject.model.graph.initializer}
    if any(info.name in initial for info in subject.model.graph.input):
        yield changing("let initializers be no inputs", {"model:defaults"}, _undefault)
    # Tried here on a copy: an edit that changes nothing would cost a line of the certificate.
    if _drop_unused(copied(subject.model), dict(subject.inputs)) is not None:
        yield changing("drop what nothing reads", {"model:unused"}, _drop_unused)
    for name, value in subject.inputs.items():
        info = next((item for item in subject.model.graph.input if item.name == name), None)
        if info is not None and isinstance(value, np.ndarray) and info.type != declared_type(value):
            yield _fix(name)
    whole: list[tuple[str, str, Callable[[onnx.ModelProto], bool]]] = [
        (
            "lower the opset and the IR version",
            "versions",
            lambda model: _lower_opset(model) and _lower_ir(model),
        ),
        ("lower the opset", "versions", _lower_opset),
        ("lower the IR version", "versions", _lower_ir),
        (f"lower the opset to {OLDEST}", "versions", partial(_lower_below, OLDEST + 1)),
        (
            "lower the opset below an operator's last change",
            "versions",
            lambda model: _lower_below(lowest_opset(model), model),
        ),
        ("drop operator sets that are not used", "imports", _drop_imports),
        ("drop functions that are not called", "functions", _drop_functions),
        ("drop recorded types", "value_info", _drop_value_info),
        *(
            (f"drop {field} of the {owner}", f"{owner}.{field}", partial(_drop_field, owner, field))
            for owner, field in fields(subject.model)
        ),
        *(
            (
                f"drop {item.key[:40]!r} of the {owner}'s metadata",
                f"{owner}.metadata_props",
                partial(_drop_metadata, owner, item.key),
            )
            for owner, held in (("model", subject.model), ("graph", subject.model.graph))
            for item in held.metadata_props
        ),
        ("drop texts inside the graph", "texts", _drop_texts),
        ("drop the names of nodes", "node names", _drop_node_names),
    ]
    named = [(path, node) for path, node in nodes(subject.model.graph) if node.name and first_output(node)]
    for path, node in named if len(named) <= _FEW else ():
        what = f"drop the name of {label(node)}"
        whole.append(
            (
                what,
                f"name of {first_output(node)}",
                partial(_drop_name, path=path, key=first_output(node)),
            )
        )
    for what, touch, change in whole:
        if change(copied(subject.model)):
            yield _make_untyped_edit(what, touch, change)
    yield OnnxEdit("declare types as they are inferred", frozenset(("model:types",)), _declare)
    if _rename(subject) is not None:
        # Last: every other edit finds its place by a name.
        yield OnnxEdit("give everything a short name", frozenset(("names",)), _rename)


def _make_untyped_edit(what: str, touch: str, change: Callable[[onnx.ModelProto], bool]) -> OnnxEdit:
    """Make an edit that leaves all types unchanged, so that inference is skipped."""

    def apply(subject: Subject) -> Subject | None:
        model = copied(subject.model)
        return Subject(model, subject.inputs, subject.values) if change(model) else None

    return OnnxEdit(what, frozenset((f"model:{touch}",)), apply)


def _declare(subject: Subject) -> Subject | None:
    found = settle(subject, copied(subject.model), anew=True)
    return found if found is not None and simpler(found, subject) else None


def _rename(subject: Subject) -> Subject | None:
    found = make_canonical(subject)
    return found if found is not None and simpler(found, subject) else None


def _unnode(path: Path, name: str) -> OnnxEdit:
    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        graph = graph_at(model, path)
        node = None if graph is None else node_of(graph, name)
        array = None if node is None or node.op_type != "Constant" else constant_array(node)
        if graph is None or node is None or array is None:
            return None
        graph.node.remove(node)
        add_initializers(model, graph, [encode_array(array, name)])
        return inputs

    return changing(f"make the Constant node {name[:40]!r} an initializer", {"/".join((*path, name))}, change)


def _fix(name: str) -> OnnxEdit:
    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        value = inputs.get(name)
        for info in model.graph.input:
            if info.name == name and isinstance(value, np.ndarray) and info.type != declared_type(value):
                info.type.CopyFrom(declared_type(value))
                return inputs
        return None

    return changing(f"make the dimensions of the input {name[:40]!r} static", {name + "!"}, change)


def _undefault(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
    """Drop inputs that only declare an initializer: since IR version 4 these make it a default that a caller
    may override.
    """
    graph = model.graph
    initial = {tensor.name for tensor in graph.initializer}
    if not keep(graph.input, lambda info: info.name not in initial):
        return None
    add_initializers(model, graph, ())
    return inputs


def _drop_unused(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
    before = model.ByteSize()
    left = drop_unused(model, inputs)
    for path, graph in list(graphs(model.graph)):
        if path:
            used = uses(graph)
            # ruff's B023 does not apply: the lambda is called before `used` changes.
            keep(graph.initializer, lambda tensor: tensor.name in used)  # noqa: B023
    return left if model.ByteSize() < before else None


def _lower_opset(model: onnx.ModelProto) -> bool:
    lowest = lowest_opset(model)
    imported = max(
        (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0
    )
    if lowest >= imported:
        return False
    model.CopyFrom(lower_opset(model))
    return True


def _lower_below(opset: int, model: onnx.ModelProto) -> bool:
    """Lower operators below the opset of the model; the checker and the test decide what the result means."""
    before = {entry.domain: entry.version for entry in model.opset_import}
    for owner in (model, *model.functions):
        for entry in owner.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = min(entry.version, max(opset - 1, OLDEST))
    # A node in a form that its opset lacks fails for that reason alone.
    if {entry.domain: entry.version for entry in model.opset_import} == before or not _has_forms(model):
        return False
    _lower_opset(model)
    _lower_ir(model)
    return True


def _has_forms(model: onnx.ModelProto) -> bool:
    """Return whether the imported operator sets have a version of every operator with its number of inputs
    and attributes.
    """
    local = {(function.domain, function.name) for function in model.functions}
    for owner, listed in (
        (model, model.graph.node),
        *((function, function.node) for function in model.functions),
    ):
        imported = {_domain(entry.domain): entry.version for entry in owner.opset_import}
        for node in all_nodes(listed):
            schema = schema_of(node.op_type, node.domain, imported.get(_domain(node.domain), 0))
            if (node.domain, node.op_type) in local or _domain(node.domain):
                continue
            if schema is None or not schema.min_input <= len(node.input) <= schema.max_input:
                return False
            if (
                len(node.output) > schema.max_output
                or {each.name for each in node.attribute} - schema.attributes.keys()
            ):
                return False
    return True


def _drop_node_names(model: onnx.ModelProto) -> bool:
    named = [node for node in all_nodes(model.graph.node) if node.name]
    for node in named:
        node.ClearField("name")
    return bool(named)


def _drop_name(model: onnx.ModelProto, path: Path, key: str) -> bool:
    node = node_at(model, path, key)
    if node is None or not node.name:
        return False
    node.ClearField("name")
    return True


def _lower_ir(model: onnx.ModelProto) -> bool:
    lowest = lowest_ir(model)
    if lowest >= model.ir_version:
        return False
    model.ir_version = lowest
    return True


def _drop_imports(model: onnx.ModelProto) -> bool:
    inner = [{_domain(node.domain) for node in all_nodes(each.node)} for each in model.functions]
    outer = {_domain(node.domain) for node in all_nodes(model.graph.node)}.union(*inner)
    changed = False
    for owner, used in zip((model, *model.functions), (outer, *inner), strict=True):
        needed = used | {""}
        # B023 does not apply here either.
        changed |= keep(owner.opset_import, lambda entry: _domain(entry.domain) in needed)  # noqa: B023
    return changed


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _drop_functions(model: onnx.ModelProto) -> bool:
    called = list_called_functions(model, model.graph)
    return keep(model.functions, lambda function: function in called)


def _drop_value_info(model: onnx.ModelProto) -> bool:
    before = model.ByteSize()
    for _, graph in graphs(model.graph):
        del graph.value_info[:]
    for function in model.functions:
        del function.value_info[:]
    return bool(model.ByteSize() < before)


def _drop_texts(model: onnx.ModelProto) -> bool:
    before = model.ByteSize()
    _clear_texts(model.graph, own=False)
    for function in model.functions:
        _clear_texts(function)
    return bool(model.ByteSize() < before)


def _drop_field(owner: str, field: str, model: onnx.ModelProto) -> bool:
    held = model if owner == "model" else model.graph
    before = held.ByteSize()
    held.ClearField(field)
    return bool(held.ByteSize() < before)


def _drop_metadata(owner: str, key: str, model: onnx.ModelProto) -> bool:
    held = (model if owner == "model" else model.graph).metadata_props
    found = next((item for item in held if item.key == key), None)
    if found is not None:
        held.remove(found)
    return found is not None


def _clear_texts(message: Any, own: bool = True) -> None:
    """Clear texts, and fields that are set to an empty text, in a message (its `own` too) and all inside."""
    for field, value in message.ListFields():
        if own and (field.name in _TEXTS or value == ""):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for each in (value,) if hasattr(value, "ListFields") else value:
                _clear_texts(each)
        if field.name == "t":
            # Only the attribute's own name is used.
            value.ClearField("name")


PASS = ListedPass("model", simplify_surroundings)
