"""The graphs of a model, addressed by names, and the tensors stored in them.

A graph is addressed by the path of (first output of the owner node, attribute) pairs that leads to it, () for
the main graph; a node by the path of its graph and its first output. Never by position, so that an edit still
finds its place after others were merged in.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

from opsieve.gen.model.attributes import CONSTANT_LISTS, CONSTANT_SCALARS, constant_array, tensor_array
from opsieve.gen.model.structure import bodies
from opsieve.gen.model.tensors import NUMBERS, Value, dtype_name, write_tensor

Path: TypeAlias = tuple[str, ...]
Array: TypeAlias = np.ndarray[Any, Any]

_FIELDS = {
    **dict.fromkeys(("int64",), "int64_data"),
    **dict.fromkeys(("uint32", "uint64"), "uint64_data"),
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16", "int32"), "int32_data"),
}
# The most elements that are tried as varints: for more, the time is not worth the bytes.
_MOST_COMPACTED = 1 << 16


def first_output(node: onnx.NodeProto) -> str:
    """Return the name of a node's first output that is not omitted; "" if there is none."""
    return next((name for name in node.output if name), "")


def label(node: onnx.NodeProto) -> str:
    """Return the name of a node for the log."""
    return f"{node.op_type} {(node.name or first_output(node))[:40]!r}"


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def tap_model(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return the model with more outputs, whose types the compiler infers."""
    copy = copied(model)
    there = {value.name for value in (*copy.graph.output, *copy.graph.input)}
    known = {value.name: value for value in copy.graph.value_info}
    for name in names:
        if name not in there:
            copy.graph.output.append(known.get(name) or onnx.ValueInfoProto(name=name))
    return copy


def graphs(graph: onnx.GraphProto, path: Path = ()) -> Iterator[tuple[Path, onnx.GraphProto]]:
    """Yield the graph and all bodies in it, outer ones first."""
    yield path, graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g, (*path, first_output(node), attribute.name))


def nodes(graph: onnx.GraphProto) -> Iterator[tuple[Path, onnx.NodeProto]]:
    """Yield every node of the graph and of its bodies, with the path of the graph it lies in."""
    for path, inner in graphs(graph):
        for node in inner.node:
            yield path, node


def graph_at(model: onnx.ModelProto, path: Path) -> onnx.GraphProto | None:
    """Return the graph at a path; `None` if it is gone."""
    graph = model.graph
    for owner, name in zip(path[::2], path[1::2], strict=True):
        node = node_of(graph, owner)
        attribute = None if node is None else attribute_of(node, name)
        if attribute is None or not attribute.HasField("g"):
            return None
        graph = attribute.g
    return graph


def node_of(graph: onnx.GraphProto, key: str) -> onnx.NodeProto | None:
    """Return the node with this first output; `None` if it is gone."""
    return next((node for node in graph.node if key in node.output and first_output(node) == key), None)


def node_at(model: onnx.ModelProto, path: Path, key: str) -> onnx.NodeProto | None:
    """Return the node with this first output in the graph at `path`; `None` if it is gone."""
    graph = graph_at(model, path)
    return None if graph is None else node_of(graph, key)


def attribute_of(node: onnx.NodeProto, name: str) -> AttributeProto | None:
    """Return the attribute of this name; `None` if it is absent."""
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Replace an attribute of a node; a value of `None` removes it."""
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    if value is not None:
        kept.append(helper.make_attribute(name, value))
    # A fixed order gives equal models equal bytes, whatever edits led to them.
    kept.sort(key=lambda attribute: attribute.name)
    del node.attribute[:]
    node.attribute.extend(kept)


def uses(graph: onnx.GraphProto) -> set[str]:
    """Return every name that a node of the graph or of a body in it reads, or that one of them yields."""
    names: set[str] = set()
    for _, inner in graphs(graph):
        names.update(info.name for info in inner.output)
        for node in inner.node:
            names.update(node.input)
    return names


def list_definitions(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a graph itself defines: its inputs, initializers and results of nodes."""
    names = {item.name for item in (*graph.input, *graph.initializer)}
    return names.union(*(node.output for node in graph.node))


def keep(items: Any, wanted: Callable[[Any], bool]) -> bool:
    """Remove the unwanted items of a repeated field; return whether there were any."""
    before = len(items)
    # From the back, since a deletion moves everything behind it.
    for index in reversed(range(before)):
        if not wanted(items[index]):
            del items[index]
    return len(items) < before


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


def declared_type(array: Array) -> onnx.TypeProto:
    """Return the type of an array, all its sizes static."""
    return helper.make_tensor_type_proto(NUMBERS[dtype_name(array)], array.shape)


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


def stored_tensor(model: onnx.ModelProto, path: Path, name: str) -> Array | None:
    """Return the value of an initializer or a Constant node; `None` if the name is neither."""
    graph = graph_at(model, path)
    if graph is None:
        return None
    for tensor in graph.initializer:
        if tensor.name == name:
            return tensor_array(tensor)
    node = node_of(graph, name)
    return constant_array(node) if node is not None and node.op_type == "Constant" else None


def held_array(model: onnx.ModelProto, inputs: Mapping[str, Value], path: Path, name: str) -> Array | None:
    """Return the value of a fed input, an initializer or a Constant node; `None` if the name is something
    else.
    """
    value = None if path else inputs.get(name)
    return value if isinstance(value, np.ndarray) else stored_tensor(model, path, name)


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
            old = onnx.TypeProto()
            old.CopyFrom(info.type)
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


def schema_of(operator: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema of an operator in an opset; `None` if this onnx lacks it."""
    if not onnx.defs.has(operator, max_inclusive_version=max(version, 1), domain=domain):
        return None
    return onnx.defs.get_schema(operator, max(version, 1), domain)


def reread(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Redirect readers of values in nodes, and in their bodies where the names are not shadowed."""
    for node in nodes:
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[name]
        for body in bodies(node):
            hidden = list_definitions(body)
            seen = {old: new for old, new in names.items() if old not in hidden}
            reread(body.node, seen)
            for info in body.output:
                info.name = seen.get(info.name, info.name)


def get_function_key(function: onnx.FunctionProto) -> str:
    """Return the name of a local function in paths and among what edits touch."""
    return f"function:{function.domain}:{function.name}"


def bypass(model: onnx.ModelProto, path: Path, key: str, names: Mapping[str, str]) -> bool:
    """Remove a node and redirect the readers of its results to other values.

    `path` leads to the node's graph, or is the key of a local function alone. Returns False if the node is
    gone, or if two results of its graph would be one value.
    """
    functions = (each for each in model.functions if path == (get_function_key(each),))
    holder = next(functions, None) if len(path) == 1 else graph_at(model, path)
    node = None if holder is None else next((each for each in holder.node if first_output(each) == key), None)
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
