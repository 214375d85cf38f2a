"""The census of ONNX models: each node, place that is read, input, output, attribute, body, tensor and field.

Each part comes with the plainest edits of it alone.

Keys are the names that edits touch: a node is the path of its graph and its first output; of a tensor `x`,
`x[0]` is the first axis, `x=` the values, `x:` the element type; `/@name` is an attribute. The edits here are
a second opinion on the passes: they change one thing, and types are inferred anew, or stay as they are
declared.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from opsieve.gen.irs.onnx.edits import bypass, cut, drop_unused, keep, put_array, reread, set_attribute
from opsieve.gen.irs.onnx.view import (
    Array,
    Graph,
    Path,
    Subject,
    declared_type,
    first_output,
    graph_at,
    graphs,
    held_array,
    label,
    node_at,
    nodes,
    opset_of,
)
from opsieve.gen.model import attributes, lowering, structure
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.census import Part
from opsieve.reducer.onnx_edit import dimension_classes, typed_view
from opsieve.reducer.onnx_edit.edits import EDITS
from opsieve.reducer.onnx_edit.retyping import DTYPE_ATTRIBUTES
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.problem.order import Change, OnnxEdit, value_complexity

OnnxPart: TypeAlias = Part[Subject]
# The opset that most tools accept, and the oldest that the declarations cover.
OLDEST = 13
# The number of inputs of a node that are tried in its place.
_STAND_INS = 2
# The most nodes of a model in which every value is tried in every place: the number of edits is quadratic.
_READERS = 6
_UNREAD = f"of more than {_READERS} nodes, no other value is tried in its place"
_GRAPH_CONTENT = frozenset(
    ("node", "initializer", "sparse_initializer", "input", "output", "value_info", "name")
)
_MODEL_CONTENT = frozenset(("graph", "functions", "opset_import", "ir_version"))


def onnx_parts(subject: Subject) -> Iterator[OnnxPart]:
    """Yield every part of a model, the weightiest kinds first."""
    yield from _nodes(subject.model)
    seen = typed_view.view(subject)
    types: dict[str, set[object]] = {}
    for tensor in seen.tensors:
        types.setdefault(tensor.name, set()).add((tensor.dtype, tensor.shape))
    many = sum(1 for _ in nodes(subject.model.graph)) > _READERS
    yield from _reads(subject.model.graph, (), [], types, _UNREAD if many else "")
    yield from _interface(subject)
    yield from _attributes(subject.model)
    counted = {
        (tensor.path, tensor.name)
        for place, tensor in enumerate(seen.tensors)
        if dimension_classes.is_counted(seen, place)
    }
    for held in typed_view.stored_tensors(subject):
        yield from _tensor(held.path, held.name, held.array, (held.path, held.name) in counted)
    yield from _model(subject)


def fields(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """Yield the fields of a model beside its graph and its versions, as (owner, field) pairs: texts,
    metadata, annotations.
    """
    yield from (("model", field.name) for field, _ in model.ListFields() if field.name not in _MODEL_CONTENT)
    yield from (
        ("graph", field.name) for field, _ in model.graph.ListFields() if field.name not in _GRAPH_CONTENT
    )


def _nodes(model: onnx.ModelProto) -> Iterator[OnnxPart]:
    read = {name for _, inner in graphs(model.graph) for node in inner.node for name in node.input}
    for path, graph in graphs(model.graph):
        for node in graph.node:
            key = first_output(node)
            if not key:
                continue
            last = "a model has one node at least" if not path and len(graph.node) == 1 else ""
            names = list(dict.fromkeys(name for name in node.input if name))[:_STAND_INS]
            yield Part("nodes", "/".join((*path, key)), last, _bypasses(path, node))
            shown = any(info.name not in node.output for info in graph.output)
            if not path and shown and read.isdisjoint(filter(None, node.output)):
                # The passes show what only this node has read; a failure may need that nothing reads it.
                alone = _edit(f"drop {label(node)} alone", partial(_bypass_node, path, key, ""))
                # Or that what it read has two uses, of which an output of the model is one.
                instead = (
                    _edit(f"show {name[:40]!r} for {label(node)}", partial(_show_instead, key, name))
                    for name in names
                )
                yield Part("last nodes", f"{key}~", last, (alone, *instead))
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield Part("bodies", "/".join((*path, key)) + "." + attribute.name)
    for function in model.functions:
        owner = f"function:{function.domain}:{function.name}"
        yield Part("bodies", owner)
        for path, graph in graphs(onnx.GraphProto(node=function.node)):
            last = "a function has one node at least" if not path and len(graph.node) == 1 else ""
            for node in graph.node:
                # The passes reduce the function itself, but no bodies inside it.
                edits = _bypasses((owner, *path), node) if path else ()
                yield Part("nodes", "/".join((owner, *path, first_output(node))), last, edits)


def _bypasses(path: Path, node: onnx.NodeProto) -> tuple[OnnxEdit, ...]:
    """Return edits that read an input of a node in the place of its results."""
    names = list(dict.fromkeys(name for name in node.input if name))[:_STAND_INS]
    return tuple(
        _edit(
            f"read {name[:40]!r} for {label(node)}{how}",
            partial(_bypass_node, path, first_output(node), name),
            settled,
        )
        for name in names
        for settled, how in ((True, ""), (False, ", types as they are"))
    )


def _reads(
    graph: onnx.GraphProto,
    path: Path,
    outer: Sequence[str],
    types: Mapping[str, Collection[object]],
    simplest: str,
) -> Iterator[OnnxPart]:
    """Yield a part for each place that a node reads from, and one for what each node gives.

    Each other value in scope is tried in that place alone, and wherever the old one is read, where a value
    goes with it or gets another type; what a node gives is fed. `simplest` says why none of it is tried.
    """
    places = Counter(name for node in graph.node for name in node.input)
    own = (*(info.name for info in graph.input), *(tensor.name for tensor in graph.initializer))
    scope = list(dict.fromkeys((*outer, *own)))
    for node in graph.node:
        key = first_output(node)
        for place, name in enumerate(node.input) if key else ():
            edits = tuple(
                _edit(
                    f"read {other[:40]!r} for {name[:40]!r} {where}",
                    partial(_read, path, key, at, name, other),
                )
                for other in (scope if name and not simplest else ())
                for at, where in ((place, f"at {place} of {label(node)}"), (-1, "everywhere"))
                if other != name
                and (places[name] > 1 if at < 0 else places[name] == 1 or types.get(name) != types.get(other))
            )
            if name:
                only = simplest or ("" if edits else "no other value makes the whole simpler")
                yield Part("reads", f"{'/'.join((*path, key))}<{place}", only, edits)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _reads(attribute.g, (*path, key, attribute.name), scope, types, simplest)
        scope += filter(None, node.output)
        if not path and key:
            feed = OnnxEdit(f"feed what {label(node)} gives", frozenset(), partial(_fed, key))
            yield Part("fed results", f"{key}!", simplest, (feed,))


def _interface(subject: Subject) -> Iterator[OnnxPart]:
    graph = subject.model.graph
    results = [info.name for info in graph.output]
    for name, value in subject.inputs.items():
        why = "" if isinstance(value, np.ndarray) else "what is no tensor cannot be stored in a model"
        # The edit of the passes: it counts as tried also where shape inference refuses its candidate.
        freeze = partial(EDITS.freeze, name=name)
        edit = OnnxEdit(f"make the input {name[:40]!r} a constant", frozenset(), freeze)
        yield Part("inputs", name, "it is an output as well" if name in results else why, (edit,))
    for name in results:
        yield Part("outputs", name + ">", "a model has one output at least" if len(results) == 1 else "")
        # The passes drop an output together with the nodes that only it needs; here those nodes stay.
        if len(results) > 1:
            hidden = _edit(f"do not show {name[:40]!r}", partial(_hidden, name))
            yield Part("shown results", name + ">>", "", (hidden,))
    for info in graph.input:
        if isinstance(subject.inputs.get(info.name), np.ndarray) and not structure.is_static(info.type):
            yield Part("open sizes", info.name + "!")


def _attributes(model: onnx.ModelProto) -> Iterator[OnnxPart]:
    for path, graph in graphs(model.graph):
        for node in graph.node:
            key = first_output(node)
            for attribute in node.attribute if key and not attributes.is_constant(node) else ():
                if attribute.type == AttributeProto.GRAPH:
                    continue
                owner = "/".join((*path, key))
                drop = _edit(
                    f"drop {attribute.name} of {label(node)}",
                    partial(_drop_attribute, path, key, attribute.name),
                )
                if attribute.name in DTYPE_ATTRIBUTES:
                    plain = "float32 is the plainest type" if attribute.i == TensorProto.FLOAT else ""
                    yield Part("types", owner + ":", plain, (drop,))
                else:
                    yield Part("attributes", f"{owner}/@{attribute.name}", "", (drop,))


def _tensor(path: Path, name: str, array: Array, counted: bool) -> Iterator[OnnxPart]:
    """Yield the parts of a fed or stored tensor: sizes, axes, values, element type.

    A `counted` vector names axes, sizes or places.
    """
    key = "/".join((*path, name))

    def put(what: str, make: Callable[[Array], Array]) -> tuple[OnnxEdit, ...]:
        return (_edit(f"{what} {name[:40]!r}", partial(_replace_array, path, name, make)),)

    for axis, size in enumerate(array.shape):
        empty = "" if array.size else "there are no elements"
        one = put(f"one place on axis {axis} of", partial(_first, axis))
        yield Part("sizes", f"{key}[{axis}]", "the size is 1" if size == 1 else empty, one)
        # In the passes everything tied to a dimension changes with it; here only this tensor does.
        less = put(f"no axis {axis} of", partial(_squeezed, axis)) if size == 1 else one
        why = "it names axes, sizes or places" if counted and size == 1 else empty
        yield Part("axes of one tensor", f"{key}[{axis}]>", why, less)
    zero = "" if value_complexity(array) else "all is zero"
    yield Part(
        "values",
        key + "=",
        zero,
        put("zeros for", lambda held: np.full_like(held, "" if held.dtype.kind in "OUS" else 0)),
    )
    plain = "float32 is the plainest type" if array.dtype == np.float32 else ""
    yield Part("types", key + ":", plain, put("float32 for", _floats))


def _model(subject: Subject) -> Iterator[OnnxPart]:
    model = subject.model
    for owner, field in fields(model):
        yield Part("fields", f"model:{owner}.{field}")
    if any(graph.value_info for _, graph in graphs(model.graph)):
        yield Part("fields", "model:value_info")
    if any(node.name for _, graph in graphs(model.graph) for node in graph.node):
        yield Part("fields", "model:node names")
    if {tensor.name for tensor in model.graph.initializer} & {info.name for info in model.graph.input}:
        yield Part("fields", "model:defaults")
    opset = opset_of(model)
    oldest = opset <= max(OLDEST, lowering.lowest_opset(model)) and model.ir_version <= lowering.lowest_ir(
        model
    )
    yield Part(
        "fields",
        "model:versions",
        f"none below opset {OLDEST} and what the model needs is tried" if oldest else "",
    )


def _edit(what: str, change: Change, settled: bool = True) -> OnnxEdit:
    """Return an edit on a copy; types are inferred anew where it is `settled`."""

    def apply(subject: Subject) -> Subject | None:
        model = structure.copied(subject.model)
        inputs = change(model, dict(subject.inputs))
        if inputs is None or settled:
            return None if inputs is None else settle(subject, model, inputs)
        return Subject(model, inputs, subject.values)

    return OnnxEdit(what, frozenset(), apply)


def _bypass_node(
    path: Path, key: str, name: str, model: onnx.ModelProto, inputs: dict[str, Value]
) -> dict[str, Value] | None:
    node = node_at(model, path, key)
    if node is None:
        return None
    gone = set(filter(None, node.output))
    # A body keeps its number of results; a model needs one.
    results = model.graph.output
    if not path and all(info.name in gone for info in results):
        del results[1:]
    elif not path:
        keep(results, lambda info: info.name not in gone)
    bypass(model, path, key, dict.fromkeys(gone, name))
    return drop_unused(model, inputs)


def _show_instead(
    key: str, name: str, model: onnx.ModelProto, inputs: dict[str, Value]
) -> dict[str, Value] | None:
    """Remove a node, and make its inputs outputs in the place of its first result that is an output."""
    graph, node = model.graph, node_at(model, (), key)
    shown = [info for info in graph.output if node is not None and info.name in node.output]
    if node is None or not shown or name in {info.name for info in graph.output}:
        return None
    graph.node.remove(node)
    shown[0].name = name
    for info in shown[1:]:
        graph.output.remove(info)
    return drop_unused(model, inputs)


def _read(
    path: Path, key: str, place: int, name: str, other: str, model: onnx.ModelProto, inputs: dict[str, Value]
) -> dict[str, Value] | None:
    graph, node = graph_at(model, path), node_at(model, path, key)
    if graph is None or node is None or name not in node.input[max(place, 0) :]:
        # Another edit has changed the node since this one was made.
        return None
    if place < 0:
        reread(graph.node, {name: other})
    elif node.input[place] == name:
        node.input[place] = other
    return drop_unused(model, inputs)


def _fed(key: str, subject: Subject) -> Subject | None:
    """Feed the result of a node of constants; returns `None` if the passes feed it."""
    graph = Graph(subject)
    place = graph.producer.get(key)
    left = cut(graph, (other for other in range(len(graph.nodes)) if other != place))
    if place is None or left is None:
        return None
    model, inputs = structure.copied(left.model), dict(left.inputs)
    for tensor in left.model.graph.initializer:
        if tensor.name in graph.results[place] and (array := attributes.tensor_array(tensor)) is not None:
            model.graph.initializer.remove(tensor)
            model.graph.input.add(name=tensor.name, type=declared_type(array))
            inputs[tensor.name] = array
    return settle(subject, model, inputs) if len(inputs) > len(left.inputs) else None


def _hidden(name: str, model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
    keep(model.graph.output, lambda info: info.name != name)
    return inputs if model.graph.output else None


def _drop_attribute(
    path: Path, key: str, name: str, model: onnx.ModelProto, inputs: dict[str, Value]
) -> dict[str, Value] | None:
    node = node_at(model, path, key)
    if node is None:
        return None
    set_attribute(node, name, None)
    return inputs


def _replace_array(
    path: Path,
    name: str,
    make: Callable[[Array], Array],
    model: onnx.ModelProto,
    inputs: dict[str, Value],
) -> dict[str, Value] | None:
    old = held_array(model, inputs, path, name)
    return inputs if old is not None and put_array(model, inputs, path, name, make(old)) else None


def _first(axis: int, array: Array) -> Array:
    """Keep one place on an axis; an array that has no such axis (any more) stays."""
    return np.ascontiguousarray(array.take([0], axis)) if axis < array.ndim and array.size else array


def _squeezed(axis: int, array: Array) -> Array:
    return array.squeeze(axis) if array.shape[axis : axis + 1] == (1,) else array


def _floats(array: Array) -> Array:
    return np.zeros(array.shape, np.float32) if array.dtype.kind in "OUSc" else array.astype(np.float32)
