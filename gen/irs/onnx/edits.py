"""Edits of an ONNX model: nodes, readers and tensors changed in place, and cuts: any subset of the main
graph's nodes as a model of its own.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.gen.irs.onnx.view import (
    Array,
    Graph,
    Path,
    Recording,
    Subject,
    declared_type,
    graph_at,
    list_called_functions,
    list_definitions,
    node_of,
    uses,
)
from opsieve.gen.model.attributes import CONSTANT_LISTS, CONSTANT_SCALARS
from opsieve.gen.model.structure import bodies, copied, is_shaped, is_static
from opsieve.gen.model.tensors import NUMBERS, Value, dtype_name, type_of, write_tensor

_FIELDS = {
    **dict.fromkeys(("int64",), "int64_data"),
    **dict.fromkeys(("uint32", "uint64"), "uint64_data"),
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16", "int32"), "int32_data"),
}
# The most elements that are tried as varints: for more, the time is not worth the bytes.
_MOST_COMPACTED = 1 << 16
# The largest constant, in bytes, that is stored instead of the nodes that compute it.
SMALL = 1024
_CONTENT = frozenset(
    ("graph", "functions", "node", "initializer", "sparse_initializer", "input", "output", "value_info")
)
# The most nodes that are kept to compute one large constant; otherwise it becomes an input.
_LONGEST_CLOSURE = 8


def tap_model(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return the model with more outputs, whose types the compiler infers."""
    copy = copied(model)
    there = {value.name for value in (*copy.graph.output, *copy.graph.input)}
    known = {value.name: value for value in copy.graph.value_info}
    for name in names:
        if name not in there:
            copy.graph.output.append(known.get(name) or onnx.ValueInfoProto(name=name))
    return copy


def replace_items(field: Any, items: Iterable[Any]) -> None:
    """Replace the items of a repeated field; its own items may be among the new ones."""
    # Copies, because emptying the field frees its messages.
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    del field[:]
    field.extend(copies)


def keep(items: Any, wanted: Callable[[Any], bool]) -> bool:
    """Remove the unwanted items of a repeated field; return whether there were any."""
    before = len(items)
    # From the back, since a deletion moves everything behind it.
    for index in reversed(range(before)):
        if not wanted(items[index]):
            del items[index]
    return len(items) < before


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Replace an attribute of a node; a value of `None` removes it."""
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    if value is not None:
        kept.append(helper.make_attribute(name, value))
    # A fixed order gives equal models equal bytes, whatever edits led to them.
    replace_items(node.attribute, sorted(kept, key=lambda attribute: attribute.name))


def reread(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Redirect readers of values in nodes, and in their bodies where the names are not shadowed."""
    for node in nodes:
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[name]
        for body in bodies(node):
            # A body may define a name again; within it that name means something else.
            hidden = list_definitions(body)
            seen = {old: new for old, new in names.items() if old not in hidden}
            reread(body.node, seen)
            for info in body.output:
                info.name = seen.get(info.name, info.name)


def bypass(model: onnx.ModelProto, path: Path, key: str, names: Mapping[str, str]) -> bool:
    """Remove a node and redirect the readers of its results to other values.

    `path` leads to the node's graph, or is the key of a local function alone. Returns False if the node is
    gone, or if two results of its graph would be one value.
    """
    holder = graph_at(model, path)
    node = None if holder is None else node_of(holder, key)
    if holder is None or node is None:
        return False
    holder.node.remove(node)
    if isinstance(holder, onnx.FunctionProto):
        # A node must make each result of a function: the one that makes the stand-in takes over its name.
        for result in set(node.output).intersection(filter(None, holder.output)):
            by = names.get(result, "")
            maker = next((each for each in holder.node if by and by in each.output), None)
            if maker is None or by in holder.output:
                return False
            maker.output[list(maker.output).index(by)] = result
            names = {by: result}
        reread(holder.node, names)
        return True
    reread(holder.node, names)
    for info in holder.output:
        info.name = names.get(info.name, info.name)
    return len({info.name for info in holder.output}) == len(holder.output)


def drop_unused(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value]:
    """Remove unread initializers and inputs from the main graph; returns the remaining inputs' values."""
    used = uses(model.graph)
    for field in (model.graph.initializer, model.graph.input):
        keep(field, lambda item: item.name in used)
    return {name: value for name, value in inputs.items() if name in used}


def encode_array(array: Array, name: str = "") -> TensorProto:
    """Return the smallest of ONNX's encodings of an array: varints for small integers, raw bytes
    otherwise.
    """
    raw = write_tensor(array, name)
    field = _FIELDS.get(dtype_name(array))
    if field is None or not 0 < array.size <= _MOST_COMPACTED:
        return raw
    typed = TensorProto(name=name, data_type=raw.data_type, dims=raw.dims)
    getattr(typed, field).extend(int(item) for item in array.ravel())
    return typed if typed.ByteSize() < raw.ByteSize() else raw


def add_initializers(model: onnx.ModelProto, graph: onnx.GraphProto, tensors: Iterable[TensorProto]) -> None:
    """Store tensors in a graph; before IR version 4 an initializer had to be an input as well, so the version
    is raised.
    """
    graph.initializer.extend(tensors)
    if graph.initializer:
        model.ir_version = max(model.ir_version, 4)


def write_constant(node: onnx.NodeProto, array: Array) -> None:
    """Give a Constant node another value, as a number or a list where it holds one: a tensor would not be
    simpler.
    """
    name = node.attribute[0].name if len(node.attribute) == 1 else ""
    kind = (
        CONSTANT_SCALARS if array.ndim == 0 else CONSTANT_LISTS if array.ndim == 1 and array.size else {}
    ).get(name)
    plain = kind == NUMBERS.get(dtype_name(array)) and array.dtype.kind in "if"
    made = (
        helper.make_attribute(name, array.tolist())
        if plain
        else helper.make_attribute("value", encode_array(array))
    )
    del node.attribute[:]
    node.attribute.append(made)


def replace_tensor(model: onnx.ModelProto, path: Path, name: str, array: Array) -> bool:
    """Give an initializer or a Constant node another value of any type; return whether it exists."""
    graph = graph_at(model, path)
    if graph is None:
        return False
    for tensor in graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(encode_array(array, name))
            # An initializer of the main graph may be the default of an input, whose type follows.
            if not path:
                retyped_input(model, name, array)
            return True
    node = node_of(graph, name)
    if node is None or node.op_type != "Constant":
        return False
    write_constant(node, array)
    return True


def put_array(model: onnx.ModelProto, inputs: dict[str, Value], path: Path, name: str, array: Array) -> bool:
    """Give a fed input, an initializer or a Constant node another value of any type, in place; returns
    whether it exists.
    """
    old = None if path else inputs.get(name)
    if not isinstance(old, np.ndarray):
        return replace_tensor(model, path, name, array)
    inputs[name] = array
    if (old.dtype, old.shape) != (array.dtype, array.shape):
        retyped_input(model, name, array)
    return True


def retyped_input(model: onnx.ModelProto, name: str, array: Array) -> None:
    """Declare a graph input's type to be an array's; a size that was symbolic stays so where the rank is the
    same.
    """
    for info in model.graph.input:
        if info.name == name:
            old = copied(info.type)
            info.type.CopyFrom(declared_type(array))
            dims, was = info.type.tensor_type.shape.dim, old.tensor_type.shape.dim
            if old.tensor_type.HasField("shape") and len(dims) == len(was):
                for dim, before in zip(dims, was, strict=True):
                    if not before.HasField("dim_value"):
                        dim.CopyFrom(before)
            elif not old.tensor_type.HasField("shape") and old.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")


def forget_element(type_: onnx.TypeProto) -> None:
    """Clear the element type and the shape inside a sequence or an optional, but keep the fact that it is
    one.
    """
    while (kind := type_.WhichOneof("value")) in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
    if kind == "tensor_type":
        type_.tensor_type.Clear()


def cut(
    graph: Graph, keep: Iterable[int], *, closure: bool = False, tap: Iterable[str] = ()
) -> Subject | None:
    """Extract the nodes in `keep` as a subject of their own; returns `None` if an input of it has no known
    value.

    An input that the kept nodes do not compute becomes an initializer if it is constant and small, otherwise
    a graph input with its recorded value. With `closure`, nodes that compute a large constant are kept along.
    Results without a reader become outputs, and so do those in `tap`.
    """
    kept = set(keep)
    if closure:
        kept |= _constants_needed(graph, kept)
    places = sorted(kept)
    made = {name for place in places for name in graph.results[place]}
    # A dict, because a set would give another order of inputs in every process.
    needed = dict.fromkeys(name for place in places for name in graph.reads[place] if name not in made)
    read = {name for place in places for name in graph.reads[place]}
    results = _results(graph, places, read, set(tap))
    untyped = [name for name in results if _find_declared_type(graph, name) is None]
    want(graph, [name for name in (*needed, *untyped) if name in graph.producer])
    model = shell(graph.subject.model)
    fed: dict[str, Value] = {}
    # The old inputs keep their order; new inputs come behind.
    for name, info in graph.inputs.items():
        if name in needed:
            model.graph.input.append(info)
            # An input with a default need not be fed.
            if name not in graph.initializers and name not in graph.sparse:
                fed[name] = graph.subject.inputs[name]
    for name in needed:
        if name in graph.initializers:
            model.graph.initializer.append(graph.initializers[name])
        elif name in graph.sparse:
            model.graph.sparse_initializer.append(graph.sparse[name])
        elif name not in graph.inputs and not _supply(graph, name, model, fed):
            return None
    model.graph.node.extend(graph.nodes[place] for place in places)
    outputs = [_declare_output(graph, name) for name in results]
    if not outputs or None in outputs:
        return None
    model.graph.output.extend(filter(None, outputs))
    wanted = made | needed.keys()
    model.graph.value_info.extend(
        info
        for info in graph.subject.model.graph.value_info
        if info.name in made and info.name not in graph.outputs
    )
    model.functions.extend(list_called_functions(graph.subject.model, model.graph))
    return Subject(model, fed, _only(graph.subject.values, wanted))


def want(graph: Graph, names: list[str]) -> None:
    """Record values together that will be read one by one: one run instead of many."""
    if isinstance(graph.subject.values, Recording):
        graph.subject.values.want(names)


def _only(values: Mapping[str, Value], names: Collection[str]) -> Mapping[str, Value]:
    if isinstance(values, Recording):
        return values.only(names)
    return {name: value for name, value in values.items() if name in names}


def _constants_needed(graph: Graph, kept: set[int]) -> set[int]:
    """Return the nodes that compute the large constants which the kept nodes read."""
    found: set[int] = set()
    sources = sorted({source for place in kept for source in graph.producers[place]} - kept)
    sources = [source for source in sources if source in graph.constant]
    want(graph, [name for source in sources for name in graph.nodes[source].output if name])
    for source in sources:
        if source not in found:
            closure = graph.ancestors([source])
            if len(closure) <= _LONGEST_CLOSURE and not any(
                _small(graph, name) for name in graph.nodes[source].output if name
            ):
                found |= closure
    return found


def _small(graph: Graph, name: str) -> bool:
    """Return whether a constant takes no more bytes than the node that computes it, or only few."""
    value = graph.value(name)
    if not isinstance(value, np.ndarray):
        return False
    producer = graph.nodes[graph.producer[name]]
    return value.nbytes <= max(SMALL, producer.ByteSize() if producer.op_type == "Constant" else 0)


def _supply(graph: Graph, name: str, model: onnx.ModelProto, fed: dict[str, Value]) -> bool:
    """Supply a value whose node is gone, as an initializer or an input; returns False if it is unknown."""
    if name not in graph.subject.values:
        return False
    value = graph.subject.values[name]
    if graph.producer[name] in graph.constant and _small(graph, name):
        model.graph.initializer.append(write_tensor(np.asarray(value), name))
        return True
    info = _make_info(graph, name)
    if info is None:
        return False
    model.graph.input.append(info)
    fed[name] = value
    return True


def _results(graph: Graph, places: list[int], read: set[str], tap: set[str]) -> list[str]:
    """List the outputs: the old outputs in their order, then results whose readers are all gone.

    `read` holds the names that kept nodes read.
    """
    made = {name for place in places for name in graph.results[place]}
    results = dict.fromkeys(name for name in graph.outputs if name in made)
    for place in places:
        names = graph.results[place]
        wanted = [name for name in names if name in tap or (name not in read and name in graph.readers)]
        used = any(name in results or name in read for name in names)
        # A node whose results had no reader before either still gets an output, else it would not be needed.
        results.update(dict.fromkeys(wanted if wanted or used else names[:1]))
    return list(results)


def _make_info(graph: Graph, name: str) -> onnx.ValueInfoProto | None:
    """Make a value's name and type, preferably as declared, which keeps open dimensions, else as recorded."""
    found = _find_declared_type(graph, name) or type_of(graph.subject.values.get(name))
    if found is None and name in graph.declared and graph.declared[name].tensor_type.elem_type:
        found = graph.declared[name]
    return None if found is None else onnx.ValueInfoProto(name=name, type=found)


def _declare_output(graph: Graph, name: str) -> onnx.ValueInfoProto | None:
    """Declare an output of a part: those of the model stay as they are, a new one is as open as they are."""
    held = graph.outputs.get(name)
    if held is not None and held.type.tensor_type.elem_type:
        return held
    info, types = _make_info(graph, name), [output.type for output in graph.outputs.values()]
    # A checker would refuse a wrong size that is declared; in the model it is found by a run.
    if info is not None and info.type.HasField("tensor_type") and not any(map(is_static, types)):
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
        if not any(map(is_shaped, types)):
            info.type.tensor_type.ClearField("shape")
    return info


def _find_declared_type(graph: Graph, name: str) -> onnx.TypeProto | None:
    """Return the type that the model itself declares, if it is complete."""
    found = graph.outputs[name].type if name in graph.outputs else graph.declared.get(name)
    if found is None or found.WhichOneof("value") is None:
        return None
    whole = not found.HasField("tensor_type") or (
        found.tensor_type.elem_type and found.tensor_type.HasField("shape")
    )
    return found if whole else None


def shell(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without the content of its graph and without its functions; its other fields stay."""
    bare = onnx.ModelProto()
    for held, made in ((model, bare), (model.graph, bare.graph)):
        for field, value in held.ListFields():
            if field.name in _CONTENT:
                continue
            # protobuf does not allow assignment to repeated fields.
            if hasattr(value, "extend"):
                getattr(made, field.name).extend(value)
            else:
                setattr(made, field.name, value)
    return bare
