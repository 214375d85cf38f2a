"""A finished builder as ONNX's bytes and values for its inputs. Messages are filled directly: `onnx.helper` takes twice as long."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from opsieve.gen.build.graph import BodyGraph, Named, Node
from opsieve.gen.build.graph_builder import GraphBuilder
from opsieve.gen.data.inputs import Stream
from opsieve.gen.spec.domains import ANY
from opsieve.gen.spec.dtype_facts import FLOATS, NUMBER, leaf_range
from opsieve.gen.spec.learned import DOMAIN_VERSION
from opsieve.gen.spec.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, Any]

# One fixed block of numbers in [0, 1): leaves take slices of it at drawn offsets, which costs a tenth of a stream for each.
_FRACTIONS = Stream(0, "generated values").fractions(1 << 16)
_BLOCK = 1 << 13  # of these are made elements of a dtype, for leaves of at most half as many
_WORDS = ("a", "b", "cat", "Dog", "the quick brown fox", "", "naïve", "0", "x y", "zebra")
_DTYPES = {
    dtype: np.dtype(object) if dtype == "string" else helper.tensor_dtype_to_np_dtype(n) for dtype, n in NUMBER.items()
}
_PLAIN = frozenset(
    (
        *FLOATS[:3],
        *(d for d in NUMBER if d.startswith(("int", "uint")) and d[-1] in "8246" and d[-2:] != "t4" and d[-2:] != "t2"),
    )
)
_FED = _PLAIN | {"bool", "string"}


def serialize(
    builder: GraphBuilder,
    outputs: Sequence[Tensor],
    name: str,
    types: bool = False,
    opened: Mapping[str, Named] = MappingProxyType({}),
) -> tuple[bytes, dict[str, Any]]:
    """The serialised ModelProto with these outputs, and an array for every graph input by name.

    Leaves that no node reads are left out. With `types` every inner tensor's type is in `value_info`. `opened` are shapes with
    names in them, by tensor (gen/generation/symbolic.py).
    """
    model = onnx.ModelProto()
    model.ir_version = helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", builder.opset), 8)
    model.producer_name = "opsieve"
    version = model.opset_import.add()
    version.version = builder.opset
    graph = model.graph
    graph.name = name
    values: dict[str, Any] = {}
    domains: set[str] = set()
    _part_texts(builder.program.leaves, outputs)
    _give_an_input(builder.program.leaves)
    for leaf in builder.program.leaves:
        if not leaf.reads:
            continue
        array = _elements(builder, leaf)
        if leaf.leaf == "input":
            _declare(graph.input.add(), leaf, opened.get(leaf.name))
            values[leaf.name] = array
        elif leaf.leaf == "initializer":
            _tensor(graph.initializer.add(), array, leaf.dtype, leaf.name)
        else:
            node = graph.node.add()
            node.op_type = "Constant"
            node.output.append(leaf.name)
            held = node.attribute.add()
            held.name, held.type = "value", AttributeProto.TENSOR
            _tensor(held.t, array, leaf.dtype, "")
    for made in builder.nodes:
        _node(graph.node.add(), made, domains)
    for output in outputs:
        _declare(graph.output.add(), output, opened.get(output.name))
    if types:
        given = {output.name for output in outputs}
        for made in builder.nodes:
            for tensor in made.outs:
                if tensor.name and tensor.name not in given:
                    _declare(graph.value_info.add(), tensor, opened.get(tensor.name))
    for domain in sorted(domains):
        other = model.opset_import.add()
        other.domain, other.version = domain, DOMAIN_VERSION
    return model.SerializeToString(deterministic=True), values


def _part_texts(leaves: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Text inputs become initializers where other inputs or outputs are of types that numpy lacks: no runtime is fed both."""
    texts = [leaf for leaf in leaves if leaf.dtype == "string" and leaf.leaf == "input"]
    if texts:
        inputs = [leaf for leaf in leaves if leaf.leaf == "input" and leaf.reads]
        if any(tensor.dtype not in _FED for tensor in (*inputs, *outputs)):
            for leaf in texts:
                leaf.leaf = "initializer"


def _give_an_input(leaves: Sequence[Tensor]) -> None:
    """A program without inputs would be folded away whole: where all of them turned out unused, a parameter becomes one."""
    read = [leaf for leaf in leaves if leaf.reads]
    if any(leaf.leaf == "input" for leaf in read):
        return
    for leaf in read:
        if leaf.values is None and leaf.dtype != "string":
            leaf.leaf = "input"
            return


def _node(proto: onnx.NodeProto, node: Node, domains: set[str]) -> None:
    proto.op_type = node.op
    proto.name = node.name
    if node.domain:
        proto.domain = node.domain
        domains.add(node.domain)
    proto.input.extend(["" if tensor is None else tensor.name for tensor in node.ins])
    proto.output.extend([tensor.name for tensor in node.outs])
    for name, value in node.attrs.items():
        _attribute(proto.attribute.add(), name, value, domains)


def _attribute(proto: AttributeProto, name: str, value: Any, domains: set[str]) -> None:
    proto.name = name
    kind = type(value)
    if kind is int or kind is bool:
        proto.type, proto.i = AttributeProto.INT, value
    elif kind is float:
        proto.type, proto.f = AttributeProto.FLOAT, value
    elif kind is str:
        proto.type, proto.s = AttributeProto.STRING, value.encode()
    elif isinstance(value, BodyGraph):
        proto.type = AttributeProto.GRAPH
        graph = proto.g
        graph.name = name
        for tensor in value.inputs:
            _declare(graph.input.add(), tensor)
        for node in value.nodes:
            _node(graph.node.add(), node, domains)
        for tensor in value.outputs:
            _declare(graph.output.add(), tensor)
    elif isinstance(value, np.ndarray):
        proto.type = AttributeProto.TENSOR
        _tensor(proto.t, value, _dtype_name(value), "")
    elif value and type(value[0]) is float:
        proto.type = AttributeProto.FLOATS
        proto.floats.extend(value)
    elif value and type(value[0]) is str:
        proto.type = AttributeProto.STRINGS
        proto.strings.extend([text.encode() for text in value])
    else:
        proto.type = AttributeProto.INTS
        proto.ints.extend(value)


def _dtype_name(array: Array) -> str:
    return "string" if array.dtype == object else array.dtype.name


def _declare(info: onnx.ValueInfoProto, tensor: Tensor, opened: Named | None = None) -> None:
    info.name = tensor.name
    info.type.MergeFromString(_type(tensor.dtype, opened or tensor.shape))


@functools.lru_cache(maxsize=1 << 13)
def _type(dtype: str, shape: Named) -> bytes:
    """The serialised TypeProto: filling one takes several times as long as reading it."""
    whole = type_ = onnx.TypeProto()
    while dtype not in NUMBER:  # `sequence(float32)`, `optional(sequence(float32))`
        kind, _, dtype = dtype[:-1].partition("(")
        type_ = type_.sequence_type.elem_type if kind == "sequence" else type_.optional_type.elem_type
    type_.tensor_type.elem_type = NUMBER[dtype]
    sizes = type_.tensor_type.shape
    sizes.SetInParent()
    for size in shape:
        if isinstance(size, str):
            sizes.dim.add().dim_param = size
        else:
            sizes.dim.add().dim_value = size
    return bytes(whole.SerializeToString())


def _tensor(proto: TensorProto, array: Any, dtype: str, name: str) -> None:
    if dtype in _PLAIN:
        proto.data_type = NUMBER[dtype]
        proto.dims.extend(array.shape)
        proto.raw_data = array.tobytes()
    else:  # strings, bool, and types that ONNX packs
        proto.CopyFrom(numpy_helper.from_array(array))
    if name:
        proto.name = name


def _elements(builder: GraphBuilder, leaf: Tensor) -> Array:
    """An array of a leaf's own."""
    shape = leaf.shape
    if leaf.values is not None:
        return np.array(leaf.values, _DTYPES[leaf.dtype]).reshape(shape)
    low, high = leaf.low, leaf.high
    if not math.isfinite(high - low):  # it stands for a tensor of a program that is grown without ranges
        low, high = leaf_range(leaf.dtype, ANY)
    place, count = builder.rng.random(), math.prod(shape)
    if count > _BLOCK // 2:
        return fill_array(leaf.dtype, shape, low, high, place)
    start = int(place * (_BLOCK - count))
    return _block(leaf.dtype, low, high)[start : start + count].copy().reshape(shape)


@functools.lru_cache(maxsize=256)
def _block(dtype: str, low: float, high: float) -> Array:
    """Elements between two bounds, for leaves to take slices of: most leaves have the bounds of others."""
    return fill_array(dtype, (_BLOCK,), low, high, 0.0)


def fill_array(dtype: str, shape: Iterable[int], low: float, high: float, place: float) -> Array:
    """An array of a dtype with elements between two bounds, both included; `place` in [0, 1) tells which numbers."""
    shape = tuple(shape)
    count = math.prod(shape)
    start = int(place * (len(_FRACTIONS) - count)) if count < len(_FRACTIONS) else 0
    numbers = _FRACTIONS[start : start + count] if count <= len(_FRACTIONS) else np.resize(_FRACTIONS, count)
    if dtype == "string":
        words = np.empty(count, object)
        words[:] = [_WORDS[int(number * len(_WORDS))] for number in numbers]
        return words.reshape(shape)
    if dtype == "bool":
        return (numbers < 0.5).reshape(shape)
    if "float" in dtype:
        return (numbers * (high - low) + low).astype(_DTYPES[dtype]).reshape(shape)
    low, high = math.ceil(low), math.floor(high)
    whole: Array = (np.floor(numbers * (high - low + 1)) + low).astype(_DTYPES[dtype]).reshape(shape)
    return whole
