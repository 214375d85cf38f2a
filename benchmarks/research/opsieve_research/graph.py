"""A model as its diversity is counted: one flat list of operations with their types, attributes and
consumers.

Names are gone from it: two models that differ in the names of their values, nodes and dimensions give the
same list. Nodes in bodies of If, Loop, Scan and in local functions are operations like the others; those of a
function are counted once, however often it is called. An operation in a body that reads a value of the graph
around it is a consumer of it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from opsieve.gen.model.structure import bodies, is_ranked
from opsieve.gen.model.tensors import DTYPES

# A symbolic or unknown dimension is -1, an unknown rank None; the dtype of what is no tensor says what it is.
Shape: TypeAlias = tuple[int, ...]
Type: TypeAlias = tuple[str, Shape | None]

UNKNOWN: Type = ("", None)
_ABSENT: Type = ("absent", None)  # an optional input that is left out
_LONG = 64  # bytes of an attribute that are kept as they are; a longer one is kept as its digest


@dataclass(slots=True)
class Operation:
    """One node. `operator` is its name, with its domain before it unless that is ai.onnx
    (`com.microsoft::Gelu`).

    `inputs` and `outputs` are types; an input left out counts as one of its own kind, an output left out does
    not appear. `attributes` are equal for equal attributes, in whatever order they were written. `consumers`
    are the places in the list of the operations that read an output, one for each reading; `out_degree`
    counts those too, but an output that nobody reads as one (Isra's output degree). `holder` is the place of
    the operation in whose body it stands, or which first calls the function that it stands in; -1 in the main
    graph.
    """

    operator: str
    inputs: tuple[Type, ...]
    outputs: tuple[Type, ...]
    attributes: tuple[bytes, ...]
    consumers: list[int]
    out_degree: int = 0
    holder: int = -1


def operations(model: onnx.ModelProto) -> list[Operation]:
    """The operations of a model whose structure is sound (`opsieve.gen.model.structure`), in time linear in
    its size.

    Types are those that the model declares, in its inputs, outputs, initializers and `value_info`; no
    inference is run.
    """
    reader = _GraphKeys()
    reader.graph(model.graph, ())
    for function in model.functions:
        reader.function(function)
    return reader.finished()


def operator_name(node: onnx.NodeProto) -> str:
    """The operator of a node, with its domain unless that is ai.onnx."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


@dataclass(slots=True)
class _Value:
    """What is known of a value while a model is read: its type, and the operation that makes it (-1 for
    none).
    """

    type: Type
    maker: int
    readings: int = 0


_Scope: TypeAlias = dict[str, _Value]
# the innermost first; not merged, which would copy all names for every body
_Scopes: TypeAlias = tuple[_Scope, ...]


class _GraphKeys:
    """Reads graphs into one list of operations."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._made: list[list[_Value]] = []  # the outputs of each operation
        self._holder = -1
        self._functions: dict[str, list[Operation]] = {}  # the operations of each, but those in bodies

    def finished(self) -> list[Operation]:
        """The list, its output degrees filled in."""
        for operation, made in zip(self._operations, self._made, strict=True):
            operation.out_degree = sum(max(1, value.readings) for value in made)
        for place, caller in enumerate(self._operations):
            for operation in self._functions.pop(caller.operator, ()):
                operation.holder = place
        return self._operations

    def graph(self, graph: onnx.GraphProto, around: _Scopes) -> None:
        """Read a graph; `around` is what it sees of the graphs around it."""
        types: dict[str, Type] = {}
        for info in (*graph.value_info, *graph.output):
            if info.name not in types or is_ranked(info.type):
                types[info.name] = _type(info.type)
        scope: _Scope = {}
        for info in graph.input:
            scope[info.name] = _Value(_type(info.type), -1)
        for tensor in graph.initializer:
            scope[tensor.name] = _Value((DTYPES.get(tensor.data_type, ""), tuple(tensor.dims)), -1)
        for sparse in graph.sparse_initializer:
            dtype = DTYPES.get(sparse.values.data_type, "")
            scope[sparse.values.name] = _Value((dtype, tuple(sparse.dims)), -1)
        self._nodes(graph.node, (scope, *around), types)

    def function(self, function: onnx.FunctionProto) -> None:
        """Read a local function's body, of whose inputs nothing is known unless it says."""
        types = {info.name: _type(info.type) for info in function.value_info}
        scope = {name: _Value(types.get(name, UNKNOWN), -1) for name in function.input}
        first = len(self._operations)
        self._nodes(function.node, (scope,), types)
        name = f"{function.domain}::{function.name}"
        self._functions[name] = [made for made in self._operations[first:] if made.holder < 0]

    def _nodes(self, nodes: Iterable[onnx.NodeProto], scopes: _Scopes, types: dict[str, Type]) -> None:
        for node in nodes:
            place = len(self._operations)
            inputs = []
            for name in node.input:
                value = next((scope[name] for scope in scopes if name in scope), None) if name else None
                if value is None:
                    inputs.append(UNKNOWN if name else _ABSENT)
                    continue
                inputs.append(value.type)
                if value.maker >= 0:
                    value.readings += 1
                    self._operations[value.maker].consumers.append(place)
            made = [(name, _Value(types.get(name, UNKNOWN), place)) for name in node.output if name]
            outputs = tuple(value.type for _, value in made)
            self._operations.append(
                Operation(
                    operator_name(node), tuple(inputs), outputs, _attributes(node), [], holder=self._holder
                )
            )
            self._made.append([value for _, value in made])
            around, self._holder = self._holder, place
            for body in bodies(node):
                self.graph(body, scopes)
            self._holder = around
            scopes[0].update(made)


def _type(proto: onnx.TypeProto) -> Type:
    kind = proto.WhichOneof("value")
    if kind != "tensor_type":
        return _in_words(proto, kind), None
    tensor = proto.tensor_type
    dtype = DTYPES.get(tensor.elem_type, "")
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)


def _in_words(proto: onnx.TypeProto, kind: str | None) -> str:
    if kind in ("sequence_type", "optional_type"):
        return f"{kind.removesuffix('_type')} of {_type(getattr(proto, kind).elem_type)[0]}"
    return (kind or "").removesuffix("_type")


def _attributes(node: onnx.NodeProto) -> tuple[bytes, ...]:
    return tuple(sorted(_attribute(attribute) for attribute in node.attribute)) if node.attribute else ()


def _attribute(attribute: onnx.AttributeProto) -> bytes:
    """Equal bytes for equal attributes: names of tensors and of what is in bodies do not count, nor does
    documentation.
    """
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        graphs = [attribute.g] if attribute.HasField("g") else attribute.graphs
        typed_part = "|".join(" ".join(operator_name(node) for node in graph.node) for graph in graphs)
        data = f"{attribute.name}={typed_part}".encode("utf-8", "surrogatepass")
    else:
        if attribute.doc_string or attribute.t.name or any(tensor.name for tensor in attribute.tensors):
            nameless = onnx.AttributeProto()
            nameless.CopyFrom(attribute)
            nameless.ClearField("doc_string")
            for tensor in ([nameless.t] if nameless.HasField("t") else []) + list(nameless.tensors):
                tensor.ClearField("name")
                tensor.ClearField("doc_string")
            attribute = nameless
        data = attribute.SerializeToString(deterministic=True)
    return data if len(data) <= _LONG else hashlib.blake2b(data, digest_size=16).digest()
