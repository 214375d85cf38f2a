"""The JSON of TVM, read and written without it and without loss: a graph of typed nodes, and its constants.

The format is that of tvm_ffi's `ToJSONGraph` (src/ffi/extra/serialization.cc of apache-tvm-ffi 0.1): a list
of nodes, each `{"type": KEY, "data": ...}`, that refer to one another by index, children first. Whether an
integer in an object is a number or an index depends on the declared type of the field, which `schema.json`
holds for TVM 0.27 (read from TVM's own reflection; tests/workers check that it still is). A node of a type
that the table lacks is refused: its references cannot be distinguished from its numbers.

In Python a string, number, boolean or None of the graph is itself; an array is a tuple, a map `Pairs`, an
element type `Dtype`, anything else a `ObjectNode`. Nodes are equal when they are the same object, as in TVM:
a variable is one node, wherever it is read.

Constants are the bytes of TVM's `SaveDLTensor` in base64: magic, reserved, device, rank, element type (code,
bits, lanes), dimensions, size and data, little-endian.
"""

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Union

import numpy as np

# The release of TVM that the schema describes.
VERSION = "0.27.0.post1"
_LITERAL: dict[str, Any] = {"int": int, "bool": bool, "float": (int, float), "dtype": str}
_PLAIN: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "ffi.String": str}


class MalformedGraph(ValueError):
    """Raised for a text that is not a JSON graph of TVM's, or has an unreadable size or type; the message
    says which.
    """


class Dtype(str):
    """An element type that stands as a value of its own (`DataType` in the graph), not as a string."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map of the graph, in its order."""

    items: tuple[tuple["Value", "Value"], ...] = ()

    def get(self, key: str) -> "Value":
        """Return the value of a string key, or None."""
        return next((value for name, value in self.items if name == key), None)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectNode:
    """An object of the graph: its type key and its fields, or the raw JSON of a type that has its own form
    (`ir.Op`: its name).
    """

    type: str
    fields: dict[str, "Value"] = field(default_factory=dict)
    raw: Any = None

    def __getitem__(self, name: str) -> "Value":
        """Return a field; MalformedGraph where it is absent."""
        if name not in self.fields:
            raise MalformedGraph(f"a node of type {self.type[:60]!r} has no field {name!r}")
        return self.fields[name]

    def get(self, name: str) -> "Value":
        """Return a field; `None` if it is absent."""
        return self.fields.get(name)

    def node(self, name: str) -> "ObjectNode":
        """Return a field that holds a node; MalformedGraph where it holds none."""
        value = self[name]
        if not isinstance(value, ObjectNode):
            raise MalformedGraph(f"the field {name!r} of type {self.type[:60]!r} holds no node")
        return value

    def find_node(self, name: str) -> "ObjectNode | None":
        """Return the node that a field holds; `None` where the field is absent or holds none."""
        value = self.get(name)
        return value if isinstance(value, ObjectNode) else None


Value = Union[None, bool, int, float, str, bytes, Dtype, Pairs, ObjectNode, "tuple[Value, ...]"]


@cache
def schema() -> dict[str, dict[str, str]]:
    """Fields by type key: `int`, `bool`, `float`, `dtype` are written in place, `@TYPE` by reference."""
    table: dict[str, dict[str, str]] = json.loads(
        Path(__file__).with_name("schema.json").read_text(encoding="utf-8")
    )
    return table


def decode(text: str) -> Value:
    """Return the root of a JSON graph.

    Raises:
        MalformedGraph: it is not one, a node refers to a later one or to none, a type is unknown, or it is
            too large or deep.
    """
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedGraph(f"this is not JSON: {str(error)[:200]}") from None
    nodes, root = (graph.get("nodes"), graph.get("root_index")) if isinstance(graph, dict) else (None, None)
    if not isinstance(nodes, list) or type(root) is not int or not 0 <= root < len(nodes):
        raise MalformedGraph(
            "this is not a JSON graph of TVM: it has no list `nodes` with a `root_index` in it"
        )
    reader = _NodeReader()
    for entry in nodes:
        reader.read(entry)
    return reader.values[root]


class _NodeReader:
    def __init__(self) -> None:
        self.values: list[Value] = []
        self.measure = Measure(MalformedGraph)
        # The indices that the current node refers to.
        self.used: list[int] = []

    def read(self, entry: Any) -> None:
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise MalformedGraph(f"node {len(self.values)} has no type")
        self.used = []
        self.values.append(self.value(entry["type"], entry.get("data")))
        self.measure.add(self.used)

    def at(self, index: Any) -> Value:
        if type(index) is not int or not 0 <= index < len(self.values):
            raise MalformedGraph(
                f"node {len(self.values)} refers to node {str(index)[:20]!s}, which does not stand before it"
            )
        self.used.append(index)
        return self.values[index]

    def sequence(self, data: Any) -> tuple[Value, ...]:
        if not isinstance(data, list):
            raise MalformedGraph(f"node {len(self.values)} holds no list")
        return tuple(map(self.at, data))

    def value(self, kind: str, data: Any) -> Value:
        if kind == "None":
            return None
        if kind in _PLAIN:
            if not isinstance(data, _PLAIN[kind]):
                raise MalformedGraph(f"node {len(self.values)} is no {kind}")
            # JSON may write a whole float without its fraction.
            return float(data) if kind == "float" else data
        if kind == "DataType":
            return Dtype(data)
        if kind == "ffi.Array":
            return self.sequence(data)
        if kind == "ffi.Map":
            flat = self.sequence(data)
            if len(flat) % 2:
                raise MalformedGraph(f"node {len(self.values)} is a map with a key that has no value")
            return Pairs(tuple(zip(flat[::2], flat[1::2], strict=True)))
        if not isinstance(data, dict):
            return ObjectNode(kind, raw=data)
        if kind not in schema():
            raise MalformedGraph(
                f"a node of type {kind[:80]!r} is not known here (the nodes of TVM {VERSION} for Relax and"
                " TIR are)"
            )
        return ObjectNode(kind, self.fields(kind, data))

    def fields(self, kind: str, data: dict[str, Any]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for name, declared in schema()[kind].items():
            if name not in data:
                continue
            value = data[name]
            if declared.startswith("@"):
                found[name] = self.at(value)
            elif isinstance(value, _LITERAL[declared]):
                found[name] = float(value) if declared == "float" else value
            else:
                raise MalformedGraph(f"node {len(self.values)}: {kind}.{name} is no {declared}")
        unknown = sorted(set(data) - set(found))
        if unknown:
            raise MalformedGraph(
                f"node {len(self.values)}: {kind} has no field {unknown[0][:80]!r} in TVM {VERSION}"
            )
        return found


def encode(root: Value) -> str:
    """Return the JSON graph of a value, as compact text; equal values give equal text.

    Raises:
        KeyError: a node of a type that `schema.json` lacks.
    """
    writer = _NodeWriter()
    graph = {"root_index": writer.index(root), "nodes": writer.nodes, "metadata": {"tvm_version": VERSION}}
    return json.dumps(graph, separators=(",", ":"))


class _NodeWriter:
    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.known: dict[Any, int] = {}

    def index(self, value: Value) -> int:
        """Return the index of a value in the list; add it if it is missing."""
        # Types are part of the key: in Python 1, 1.0 and True are equal, and so are an element type and its
        # text.
        key = (
            value
            if isinstance(value, ObjectNode)
            else (type(value), repr(value))
            if (value is None or isinstance(value, bool | int | float | str))
            else None
        )
        if key is not None and key in self.known:
            return self.known[key]
        self.nodes.append(self.entry(value))
        if key is not None:
            self.known[key] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def entry(self, value: Value) -> dict[str, Any]:
        if value is None:
            return {"type": "None"}
        if isinstance(value, bool | int | float):
            return {"type": type(value).__name__, "data": value}
        if isinstance(value, Dtype):
            return {"type": "DataType", "data": str(value)}
        if isinstance(value, str):
            return {"type": "ffi.String", "data": value}
        if isinstance(value, tuple):
            return {"type": "ffi.Array", "data": [self.index(item) for item in value]}
        if isinstance(value, Pairs):
            return {"type": "ffi.Map", "data": [self.index(part) for pair in value.items for part in pair]}
        assert isinstance(value, ObjectNode)
        if value.raw is not None:
            return {"type": value.type, "data": value.raw}
        data: dict[str, Any] = {}
        for name, declared in schema()[value.type].items():
            item = value.fields.get(name)
            data[name] = self.index(item) if declared.startswith("@") else item
        return {"type": value.type, "data": data}


# The most nodes in the list.
NODES = 2_000_000
# The JSON is a graph, so a small file can unfold to an exponentially large tree. The limit refuses it before
# it is built.
TREE = 50_000_000
# The deepest nesting; a nested branch takes about six levels. It bounds recursion over the graph.
DEPTH = 400


class Measure:
    """Depth and unfolded size of each node of a list whose references go backwards."""

    def __init__(self, fail: Callable[[str], Exception]) -> None:
        self._fail = fail
        self._depths: list[int] = []
        self._sizes: list[int] = []

    def add(self, references: Iterable[int]) -> None:
        """Add the next node, which refers to these earlier ones."""
        depth, size = 1, 1
        for index in references:
            depth = max(depth, self._depths[index] + 1)
            size += self._sizes[index]
        self._depths.append(depth)
        self._sizes.append(size)
        if len(self._depths) > NODES or size > TREE:
            raise self._fail(f"the graph unfolds to more than {TREE:,} nodes")
        if depth > DEPTH:
            raise self._fail(f"the graph is nested more than {DEPTH} deep")


# TVM's own magic number of serialised tensors (`kTVMNDArrayMagic` in ndarray.h).
_MAGIC = 0xDD5E40F096B4A13F
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}
_NAMES = {code: name for name, code in _CODES.items()}
# Magic, reserved, device type and id, rank, then the element type: code, bits, lanes.
_HEAD = struct.Struct("<QQiiiBBH")


@dataclass(frozen=True, slots=True)
class Array:
    """A dense tensor: element type (TVM's name), shape, and the bytes of its elements, row by row,
    little-endian.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        wanted = math.prod(self.shape) * width(self.dtype)
        if len(self.data) != wanted:
            raise ValueError(
                f"a tensor of {self.dtype} {list(self.shape)} has {wanted} bytes, not {len(self.data)}"
            )


def to_numpy(array: Array) -> "np.ndarray[Any, Any] | None":
    """Return the elements of a constant; `None` for an element type that numpy lacks."""
    try:
        return np.frombuffer(array.data, np.dtype(array.dtype)).reshape(array.shape)
    except TypeError:
        # numpy has no name for some of TVM's dtypes, such as 4-bit floats.
        return None


def width(dtype: str) -> int:
    """Bytes of an element. Raises ValueError for a type that is not made of whole bytes or not known."""
    bits = _code(dtype)[1]
    if bits % 8:
        raise ValueError(f"a constant of {dtype} cannot be written")
    return bits // 8


def _code(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return _CODES["bool"], 8
    # float8_e4m3fn
    if dtype in _CODES:
        return _CODES[dtype], 8
    found = re.fullmatch(r"(int|uint|float|bfloat)(\d{1,3})", dtype)
    if found is None:
        raise ValueError(f"{dtype[:40]!r} is not an element type of a constant")
    return _CODES[found[1]], int(found[2])


def to_node(array: Array) -> ObjectNode:
    """Return the node of a tensor (`ffi.Tensor`)."""
    code, bits = _code(array.dtype)
    head = _HEAD.pack(_MAGIC, 0, 1, 0, len(array.shape), code, bits, 1)
    body = struct.pack(f"<{len(array.shape)}qq", *array.shape, len(array.data))
    return ObjectNode("ffi.Tensor", raw=base64.b64encode(head + body + array.data).decode())


def from_node(node: ObjectNode) -> Array:
    """Return the tensor of a node.

    Raises:
        MalformedGraph: the bytes do not make a tensor, or its element type is unknown.
    """
    try:
        raw = base64.b64decode(node.raw, validate=True)
        magic, _, _, _, rank, code, bits, lanes = _HEAD.unpack_from(raw)
        if magic != _MAGIC or lanes != 1 or not 0 <= rank <= 16:
            raise ValueError("not a tensor of plain elements")
        numbers = struct.unpack_from(f"<{rank + 1}q", raw, _HEAD.size)
        name = _NAMES[code]
        dtype = name if name == "bool" or "_" in name else f"{name}{bits}"
        if any(size < 0 for size in numbers):
            raise ValueError("negative size")
        return Array(dtype, tuple(numbers[:-1]), raw[_HEAD.size + 8 * (rank + 1) :])
    except (ValueError, KeyError, struct.error, TypeError) as error:
        raise MalformedGraph(f"a constant of the graph cannot be read: {str(error)[:120]}") from None
