"""A finished builder as ONNX's bytes and values for its inputs."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import helper

from opsieve.gen.data.inputs import Stream
from opsieve.gen.declarations.catalogue import domain_version, operators
from opsieve.gen.declarations.tensor import ANY, INTEGERS, NUMBER, Tensor, leaf_range
from opsieve.gen.graph.encoding import (
    RAW,
    Array,
    EncodedGraph,
    encoded_constant,
    encoded_elements,
    encoded_info,
    encoded_integers,
    encoded_model,
    encoded_node,
    encoded_tensor,
)
from opsieve.gen.graph.graph import Named
from opsieve.gen.graph.graph_builder import GraphBuilder

# One fixed block of numbers in [0, 1): leaves take slices of it at drawn offsets, which costs a tenth of a
# stream for each.
_FRACTIONS: Final = Stream(0, "generated values").fractions(1 << 16)
_BEFORE_BLOCK: Final = 2  # leaves
_BLOCK: Final = 1 << 13  # of these are made elements of a dtype, for leaves of at most half as many
_WORDS: Final = ("a", "b", "cat", "Dog", "the quick brown fox", "", "naïve", "0", "x y", "zebra")
_DTYPES: Final = {
    dtype: np.dtype(object) if dtype == "string" else helper.tensor_dtype_to_np_dtype(n)
    for dtype, n in NUMBER.items()
}
_ROUND, _ENDS, _EQUAL = "round", "ends", "equal"
_FED: Final = (RAW - {"bfloat16"}) | {"string"}


def serialize(
    builder: GraphBuilder,
    outputs: Sequence[Tensor],
    name: str,
    types: bool = False,
    opened: Mapping[str, Named] = MappingProxyType({}),
) -> tuple[bytes, dict[str, Any]]:
    """The serialised ModelProto with these outputs, and an array for every graph input by name.

    Leaves that no node reads are left out. With `types` every inner tensor's type is in `value_info`.
    `opened` are shapes with names in them, by tensor (gen/generation/symbolic.py).
    """
    graph = EncodedGraph()
    values: dict[str, Any] = {}
    domains: set[str] = set()
    _part_texts(builder.program.leaves, outputs)
    _give_an_input(builder.program.leaves)
    how = _how(builder)
    for leaf in builder.program.leaves:
        if not leaf.reads:
            continue
        if leaf.leaf == "input":
            graph.inputs.append(encoded_info(leaf, opened.get(leaf.name)))
            values[leaf.name] = _elements(builder, leaf, how)
        elif leaf.leaf == "initializer":
            graph.initializers.append(_tensor(builder, leaf, leaf.name, how))
        else:
            graph.nodes.append(encoded_constant(leaf.name, _tensor(builder, leaf, "", how)))
    graph.nodes.extend([encoded_node(node, domains) for node in builder.nodes])
    graph.outputs.extend([encoded_info(output, opened.get(output.name)) for output in outputs])
    if types:
        given = {output.name for output in outputs}
        graph.infos.extend(
            encoded_info(tensor, opened.get(tensor.name))
            for made in builder.nodes
            for tensor in made.outs
            if tensor.name and tensor.name not in given
        )
    version = helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", builder.opset), 8)
    opsets = [("", builder.opset), *((domain, domain_version(domain)) for domain in sorted(domains))]
    return encoded_model(version, "opsieve", graph.encoded(name), opsets), values


def _part_texts(leaves: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Text inputs become initializers where other inputs or outputs are of types that numpy lacks: no runtime
    is fed both.
    """
    texts = [leaf for leaf in leaves if leaf.dtype == "string" and leaf.leaf == "input"]
    if texts:
        inputs = [leaf for leaf in leaves if leaf.leaf == "input" and leaf.reads]
        if any(tensor.dtype not in _FED for tensor in (*inputs, *outputs)):
            for leaf in texts:
                leaf.leaf = "initializer"


def _give_an_input(leaves: Sequence[Tensor]) -> None:
    """A program without inputs would be folded away whole: where all of them turned out unused, a parameter
    becomes one.
    """
    read = [leaf for leaf in leaves if leaf.reads]
    if any(leaf.leaf == "input" for leaf in read):
        return
    for leaf in read:
        if leaf.values is None and leaf.dtype != "string":
            leaf.leaf = "input"
            return


def _tensor(builder: GraphBuilder, leaf: Tensor, name: str, how: str) -> bytes:
    """The TensorProto of a leaf that is no input."""
    if leaf.dtype not in RAW:
        return encoded_tensor(_elements(builder, leaf, how), leaf.dtype, name)
    if leaf.values is not None and leaf.dtype in INTEGERS:
        return encoded_integers(leaf.shape, leaf.dtype, leaf.values, name)
    return encoded_elements(_numbers(builder, leaf, how).tobytes(), leaf.shape, leaf.dtype, name)


def _elements(builder: GraphBuilder, leaf: Tensor, how: str) -> Array:
    """An array of a leaf's own."""
    return _numbers(builder, leaf, how).copy().reshape(leaf.shape)


def _numbers(builder: GraphBuilder, leaf: Tensor, how: str) -> Array:
    """The elements of a leaf in a row; others may share them. A leaf keeps to what the program's leaves are
    at the rate `round`.
    """
    if leaf.values is not None:
        return np.array(leaf.values, _DTYPES[leaf.dtype])
    held: Array | None = builder.program.held.get(leaf.name)
    if held is not None:
        return held
    low, high = leaf.low, leaf.high
    if not math.isfinite(high - low):  # it stands for a tensor of a program that is grown without ranges
        low, high = leaf_range(leaf.dtype, ANY)
    place, count = builder.rng.random(), math.prod(leaf.shape)
    if how and (leaf.dtype not in RAW or not builder.rng.chance(builder.style.round)):
        how = ""
    if count > _BLOCK // 2:
        filled = fill_array(leaf.dtype, (count,), low, high, place)
        return _shaped(filled, low, high, how)
    start, taken = int(place * (_BLOCK - count)), 1 if how == _EQUAL else count
    uses = _uses(leaf.dtype, low, high, how)
    if uses[0] < _BEFORE_BLOCK:
        uses[0] += 1
        some = _shaped(
            _between(_FRACTIONS[start : start + taken], leaf.dtype, low, high), low, high, how, start
        )
    else:
        some = _block(leaf.dtype, low, high, how)[start : start + taken]
    return np.repeat(some, count) if how == _EQUAL else some


def _how(builder: GraphBuilder) -> str:
    """What the leaves of a program are like: drawn anywhere in their intervals, or one of `_ROUND`, `_ENDS`,
    `_EQUAL`.
    """
    drawn, style = builder.rng.random(), builder.style
    for how, rate in ((_ROUND, style.coarse), (_ENDS, style.ends), (_EQUAL, style.equal)):
        if drawn < rate:
            varied = how == _EQUAL and any(
                (op := operators().get(node.op)) and op.varied for node in builder.nodes
            )
            return "" if varied else how
        drawn -= rate
    return ""


@functools.lru_cache(maxsize=1024)
def _uses(dtype: str, low: float, high: float, how: str) -> list[int]:
    """How often leaves had these bounds lately: a block costs as much as the elements of a dozen leaves."""
    return [0]


@functools.lru_cache(maxsize=256)
def _block(dtype: str, low: float, high: float, how: str) -> Array:
    """Elements between two bounds, for leaves to take slices of: most leaves have the bounds of others."""
    return _shaped(_between(_FRACTIONS[:_BLOCK], dtype, low, high), low, high, how)


def _shaped(array: Array, low: float, high: float, how: str, start: int = 0) -> Array:
    """A row of numbers within two bounds as multiples of a half, whose ends every sixth element is, or as
    ends and zeros only.

    `start` is the place of its first element in the row that it is part of.
    """
    if not how or array.dtype == bool or (array.dtype.kind in "iu" and how != _ENDS):
        return array
    numbers = array.astype(np.float64)
    if how == _ENDS:
        ends = np.array([low, high, min(max(low, 0.0), high)])
        if array.dtype.kind in "iu":
            ends = np.trunc(ends)
        made: Array = ends[np.arange(start, start + len(array)) * 7 % 11 % 3].astype(array.dtype)
        return made
    numbers = np.clip(np.round(numbers * 2) / 2, low, high)
    numbers[-start % 12 :: 12], numbers[(6 - start) % 12 :: 12] = low, high
    made = numbers.astype(array.dtype)
    return made


def fill_array(dtype: str, shape: Iterable[int], low: float, high: float, place: float) -> Array:
    """An array of a dtype with elements between two bounds, both included; `place` in [0, 1) tells which
    numbers.
    """
    shape = tuple(shape)
    count = math.prod(shape)
    start = int(place * (len(_FRACTIONS) - count)) if count < len(_FRACTIONS) else 0
    numbers = _FRACTIONS[start : start + count] if count <= len(_FRACTIONS) else np.resize(_FRACTIONS, count)
    return _between(numbers, dtype, low, high).reshape(shape)


def _between(numbers: Array, dtype: str, low: float, high: float) -> Array:
    """Elements of a dtype between two bounds, of numbers in [0, 1)."""
    if dtype == "string":
        words = np.empty(len(numbers), object)
        words[:] = [_WORDS[int(number * len(_WORDS))] for number in numbers]
        return words
    if dtype == "bool":
        return numbers < 0.5
    if "float" in dtype:
        return (numbers * (high - low) + low).astype(_DTYPES[dtype])
    least, most = math.ceil(low), math.floor(high)
    whole: Array = (np.floor(numbers * (most - least + 1)) + least).astype(_DTYPES[dtype])
    return whole
