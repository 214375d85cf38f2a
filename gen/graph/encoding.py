"""Encode ONNX messages as protobuf does; filling protobuf's Python objects takes three times as long.

A message is its fields in the order of their numbers, each after a tag (number and wire type) and, unless it
is a number, its length. Names, operators and small lists of numbers recur from program to program, so their
bytes are cached. Sources: https://protobuf.dev/programming-guides/encoding/ and onnx.proto, whose repeated
numbers are not packed. tests/gen/test_encoding.py compares with protobuf.
"""

import functools
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import AttributeProto, numpy_helper

from opsieve.gen.declarations.tensor import FLOATS, INTEGERS, NUMBER, Number, Tensor
from opsieve.gen.graph.graph import BodyGraph, Named, Node
from opsieve.gen.model.detached import encode_number

Array: TypeAlias = np.ndarray[Any, Any]

# Names and types repeat from program to program, so their encodings are cached. The bound keeps a long
# campaign from growing.
_KEPT: Final = 1 << 14
# Negative numbers are written as their complement in 64 bits.
_UNSIGNED: Final = (1 << 64) - 1
# Tags: number << 3 | wire type (0 a number, 2 bytes behind their length, 5 four bytes).
_NODE_ATTRIBUTE, _NODE_DOMAIN = b"\x2a", b"\x3a"
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_INITIALIZER = b"\x0a", b"\x12", b"\x2a"
_GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_VALUE_INFO = b"\x5a", b"\x62", b"\x6a"
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH = b"\x15", b"\x18", b"\x22", b"\x2a", b"\x32"
_FLOATS, _INTS, _STRINGS, _ATTRIBUTE_TYPE = b"\x3d", b"\x40", b"\x4a", b"\xa0\x01"
_TENSOR_DIM, _TENSOR_DTYPE, _TENSOR_TEXT, _TENSOR_RAW = b"\x08", b"\x10", b"\x32", b"\x4a"
_INFO_TYPE: Final = b"\x12"
_TYPE_TENSOR, _TYPE_SEQUENCE, _TYPE_OPTIONAL, _ELEMENT_TYPE = b"\x0a", b"\x22", b"\x4a", b"\x0a"
_TENSOR_ELEMENT, _TENSOR_SHAPE, _SHAPE_DIM, _DIM_VALUE, _DIM_PARAM = (
    b"\x08",
    b"\x12",
    b"\x0a",
    b"\x08",
    b"\x12",
)
_MODEL_IR, _MODEL_PRODUCER, _MODEL_GRAPH, _MODEL_OPSET = b"\x08", b"\x12", b"\x3a", b"\x42"
_OPSET_DOMAIN, _OPSET_VERSION = b"\x0a", b"\x10"
# Most numbers in a model are below 128 and take one byte; a table is faster than the loop of seven-bit
# groups.
_BYTES: Final = tuple(bytes((number,)) for number in range(128))
# Dtypes whose elements ONNX stores as numpy does.
RAW: Final = frozenset((*FLOATS, *INTEGERS, "bool"))


def _encode_number(value: int) -> bytes:
    """Encode a number, most often by the table."""
    return _BYTES[value] if 0 <= value < 128 else encode_number(value & _UNSIGNED)


_SHORT: Final = 1 << 11
# Most messages are shorter than this, so a table replaces the encoding of their lengths.
_LENGTHS: Final = tuple(map(_encode_number, range(_SHORT)))


def _encode_field(tag: bytes, content: bytes) -> bytes:
    """Encode a field of bytes: tag, length, content."""
    size = len(content)
    return tag + (_LENGTHS[size] if size < _SHORT else _encode_number(size)) + content


class _Texts(dict[str, bytes]):
    """Encoded texts after a tag, made at the first lookup."""

    __slots__ = ("_tag",)

    def __init__(self, tag: bytes) -> None:
        super().__init__()
        self._tag = tag

    def __missing__(self, text: str) -> bytes:
        # Clearing at the limit is cheaper than tracking which text was used last.
        if len(self) >= _KEPT:
            self.clear()
        made = self[text] = _encode_field(self._tag, text.encode())
        return made


# The encoding of an omitted input: an empty name.
_ABSENT = b"\x0a\x00"
_INPUTS, _OUTPUTS, _NODE_NAMES, _OPS = _Texts(b"\x0a"), _Texts(b"\x12"), _Texts(b"\x1a"), _Texts(b"\x22")
_INFO_NAMES, _TENSOR_NAMES, _ATTRIBUTE_NAMES = _Texts(b"\x0a"), _Texts(b"\x42"), _Texts(b"\x0a")


@functools.lru_cache(maxsize=_KEPT)
def _encode_text(tag: bytes, text: str) -> bytes:
    """Encode a field of text; the results are cached."""
    return _encode_field(tag, text.encode())


@dataclass(slots=True)
class EncodedGraph:
    """The messages of a GraphProto, each encoded without its tag."""

    nodes: list[bytes] = field(default_factory=list)
    initializers: list[bytes] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    infos: list[bytes] = field(default_factory=list)

    def encode(self, name: str) -> bytes:
        """Encode the GraphProto."""
        parts: list[bytes] = []
        for tag, messages in (
            (_GRAPH_NODE, self.nodes),
            (_GRAPH_INITIALIZER, self.initializers),
            (_GRAPH_INPUT, self.inputs),
            (_GRAPH_OUTPUT, self.outputs),
            (_GRAPH_VALUE_INFO, self.infos),
        ):
            for message in messages:
                size = len(message)
                parts += (tag, _LENGTHS[size] if size < _SHORT else _encode_number(size), message)
            if tag is _GRAPH_NODE:
                parts.append(_encode_text(_GRAPH_NAME, name))
        return b"".join(parts)


def encode_model(ir_version: int, producer: str, graph: bytes, opsets: Iterable[tuple[str, int]]) -> bytes:
    """Encode a ModelProto around an encoded GraphProto, with its domains ("" is ONNX's own) and their
    versions.
    """
    head = _MODEL_IR + _encode_number(ir_version) + _encode_text(_MODEL_PRODUCER, producer)
    versions = [
        _encode_field(
            _MODEL_OPSET,
            (_encode_text(_OPSET_DOMAIN, domain) if domain else b"")
            + _OPSET_VERSION
            + _encode_number(version),
        )
        for domain, version in opsets
    ]
    return b"".join((head, _encode_field(_MODEL_GRAPH, graph), *versions))


def encode_node(node: Node, domains: set[str]) -> bytes:
    """Encode a node, and add its domain and those of nodes in its bodies to `domains`."""
    # Loops rather than comprehensions, each of which is a call.
    parts = []
    for read in node.ins:
        parts.append(_ABSENT if read is None else _INPUTS[read.name])  # noqa: PERF401
    for made in node.outs:
        parts.append(_OUTPUTS[made.name])  # noqa: PERF401
    parts += (_NODE_NAMES[node.name], _OPS[node.op])
    if node.attrs:
        for name, value in node.attrs.items():
            parts.append(_encode_attribute(name, value, domains))
    if node.domain:
        parts.append(_encode_text(_NODE_DOMAIN, node.domain))
        domains.add(node.domain)
    return b"".join(parts)


def encode_constant(name: str, tensor: bytes) -> bytes:
    """Encode an unnamed Constant node that returns a TensorProto."""
    return b"".join(
        (
            _OUTPUTS[name],
            _OPS["Constant"],
            _encode_typed("value", _encode_field(_TENSOR, tensor), AttributeProto.TENSOR),
        )
    )


def encode_info(tensor: Tensor, opened: Named | None = None) -> bytes:
    """Encode the ValueInfoProto of a tensor; `opened` is its shape with named sizes, if it has one."""
    return _INFO_NAMES[tensor.name] + _encode_type(tensor.dtype, opened or tensor.shape)


def encode_tensor(array: Array, dtype: str, name: str = "") -> bytes:
    """Encode the TensorProto of an array."""
    if dtype == "string":
        texts = [_encode_text(_TENSOR_TEXT, text) for text in array.ravel().tolist()]
        return b"".join((_encode_tensor_head(array.shape, dtype), *texts, _encode_tensor_name(name)))
    # ONNX packs types of fewer than 8 bits; onnx's own helper does that.
    if dtype not in RAW:
        proto = numpy_helper.from_array(array, name or None)
        return bytes(proto.SerializeToString(deterministic=True))
    return encode_elements(array.tobytes(), array.shape, dtype, name)


@functools.lru_cache(maxsize=_KEPT)
def _encode_around_name(
    shape: tuple[int, ...], dtype: str, values: tuple[Number, ...]
) -> tuple[bytes, bytes]:
    """Encode the parts before and after the name of a TensorProto of integers: axes, sizes and repeats recur
    often.
    """
    data = np.array(values, dtype).tobytes()
    return _encode_tensor_head(shape, dtype), _encode_field(_TENSOR_RAW, data)


def encode_elements(data: bytes, shape: tuple[int, ...], dtype: str, name: str = "") -> bytes:
    """Encode the TensorProto of elements as numpy stores them, for a dtype of `RAW`."""
    return _encode_tensor_head(shape, dtype) + _encode_tensor_name(name) + _encode_field(_TENSOR_RAW, data)


def encode_integers(shape: tuple[int, ...], dtype: str, values: tuple[Number, ...], name: str = "") -> bytes:
    """Encode the TensorProto of integers of a dtype that numpy has."""
    before, behind = _encode_around_name(shape, dtype, values)
    return before + _encode_tensor_name(name) + behind


def _encode_tensor_name(name: str) -> bytes:
    """Encode the name of a tensor; an empty name is left out."""
    return _TENSOR_NAMES[name] if name else b""


@functools.lru_cache(maxsize=_KEPT)
def _encode_tensor_head(shape: tuple[int, ...], dtype: str) -> bytes:
    """Encode the sizes and the dtype of a tensor."""
    return (
        b"".join([_TENSOR_DIM + _encode_number(side) for side in shape])
        + _TENSOR_DTYPE
        + _encode_number(NUMBER[dtype])
    )


def _encode_attribute(name: str, value: Any, domains: set[str]) -> bytes:
    """Encode the AttributeProto of a node, with its tag."""
    kind = type(value)
    if kind is int or kind is bool:
        return _encode_integer(name, value)
    if kind is float:
        return _encode_typed(name, _FLOAT + struct.pack("<f", value), AttributeProto.FLOAT)
    if kind is str:
        return _encode_string(name, value)
    if isinstance(value, BodyGraph):
        return _encode_typed(
            name,
            _encode_field(
                _GRAPH,
                EncodedGraph(
                    nodes=[encode_node(node, domains) for node in value.nodes],
                    inputs=[encode_info(tensor) for tensor in value.inputs],
                    outputs=[encode_info(tensor) for tensor in value.outputs],
                ).encode(name),
            ),
            AttributeProto.GRAPH,
        )
    if isinstance(value, np.ndarray):
        dtype = "string" if value.dtype == object else value.dtype.name
        return _encode_typed(name, _encode_field(_TENSOR, encode_tensor(value, dtype)), AttributeProto.TENSOR)
    if value and type(value[0]) is float:
        return _encode_typed(
            name, b"".join([_FLOATS + struct.pack("<f", item) for item in value]), AttributeProto.FLOATS
        )
    if value and type(value[0]) is str:
        return _encode_typed(
            name, b"".join([_encode_text(_STRINGS, item) for item in value]), AttributeProto.STRINGS
        )
    return _encode_integer_list(name, tuple(value))


def _encode_typed(name: str, content: bytes, kind: int) -> bytes:
    """Encode an AttributeProto from its content and its type."""
    return _encode_field(_NODE_ATTRIBUTE, _ATTRIBUTE_NAMES[name] + content + _ATTRIBUTE_TYPE + _BYTES[kind])


@functools.lru_cache(maxsize=_KEPT)
def _encode_integer(name: str, value: int) -> bytes:
    """Encode an integer attribute."""
    return _encode_typed(name, _INT + _encode_number(value), AttributeProto.INT)


@functools.lru_cache(maxsize=_KEPT)
def _encode_integer_list(name: str, values: tuple[int, ...]) -> bytes:
    """Encode an attribute that is a list of integers."""
    return _encode_typed(
        name, b"".join([_INTS + _encode_number(int(value)) for value in values]), AttributeProto.INTS
    )


@functools.lru_cache(maxsize=_KEPT)
def _encode_string(name: str, value: str) -> bytes:
    """Encode a text attribute."""
    return _encode_typed(name, _encode_field(_STRING, value.encode()), AttributeProto.STRING)


@functools.lru_cache(maxsize=_KEPT)
def _encode_dimension(size: int | str) -> bytes:
    """Encode the Dimension of a TensorShapeProto, with its tag."""
    return _encode_field(
        _SHAPE_DIM,
        _encode_text(_DIM_PARAM, size) if isinstance(size, str) else _DIM_VALUE + _encode_number(size),
    )


@functools.lru_cache(maxsize=_KEPT)
def _encode_type(dtype: str, shape: Named) -> bytes:
    """Encode the TypeProto of a ValueInfoProto, with its tag."""
    kinds = []
    # `sequence(float32)`, `optional(sequence(float32))`
    while dtype not in NUMBER:
        kind, _, dtype = dtype[:-1].partition("(")
        kinds.append(_TYPE_SEQUENCE if kind == "sequence" else _TYPE_OPTIONAL)
    sizes = b"".join(map(_encode_dimension, shape))
    found = _encode_field(
        _TYPE_TENSOR, _TENSOR_ELEMENT + _encode_number(NUMBER[dtype]) + _encode_field(_TENSOR_SHAPE, sizes)
    )
    for tag in reversed(kinds):
        found = _encode_field(tag, _encode_field(_ELEMENT_TYPE, found))
    return _encode_field(_INFO_TYPE, found)
