"""Write a finished builder as ONNX bytes, with values for its inputs."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    encode_constant,
    encode_elements,
    encode_info,
    encode_integers,
    encode_model,
    encode_node,
    encode_tensor,
)
from opsieve.gen.graph.graph import Named
from opsieve.gen.graph.graph_builder import GraphBuilder

# One fixed block of numbers in [0, 1): leaves take slices of it at drawn offsets, which costs a tenth of a
# stream for each.
_FRACTIONS: Final = Stream(0, "generated values").fractions(1 << 16)
# The number of leaves with the same bounds before a block is made for them.
_BEFORE_BLOCK: Final = 2
# The elements of a block; leaves of at most half as many take a slice of it.
_BLOCK: Final = 1 << 13
_WORDS: Final = ("a", "b", "cat", "Dog", "the quick brown fox", "", "naïve", "0", "x y", "zebra")
_DTYPES: Final = {
    dtype: np.dtype(object) if dtype == "string" else helper.tensor_dtype_to_np_dtype(n)
    for dtype, n in NUMBER.items()
}
_ROUND, _ENDS, _EQUAL = "round", "ends", "equal"
# An index behind all parts: a part that replaces nothing is appended.
BEHIND: Final = 1 << 30
_FIELDS: Final = ("nodes", "initializers", "inputs", "outputs", "infos")
# Types of inputs that can be fed next to texts: numpy has no bfloat16.
_FED: Final = (RAW - {"bfloat16"}) | {"string"}


@dataclass(slots=True)
class EncodedProgram:
    """A program as encoded parts, and an array for every graph input by name.

    `stored` are the leaves that are initializers, with the index of each. `opened` are shapes with named
    sizes, by tensor (gen/generation/symbolic.py).
    """

    name: str
    ir_version: int
    opsets: Sequence[tuple[str, int]]
    opened: Mapping[str, Named]
    graph: EncodedGraph
    values: dict[str, Any] = field(default_factory=dict)
    stored: list[tuple[int, Tensor]] = field(default_factory=list)

    def join(self, parts: Sequence[tuple[str, int, bytes]] = ()) -> bytes:
        """Join the parts to a ModelProto, with other parts in place of those at an index, or BEHIND them.

        Empty parts are left out.
        """
        graph = self.graph
        if parts:
            fields = {each: [*getattr(graph, each)] for each in _FIELDS}
            for name, place, part in parts:
                fields[name][place : place + 1] = [part]
            graph = EncodedGraph(**{name: [*filter(None, each)] for name, each in fields.items()})
        return encode_model(self.ir_version, "opsieve", graph.encode(self.name), self.opsets)


def serialize(
    builder: GraphBuilder,
    outputs: Sequence[Tensor],
    name: str,
    types: bool = False,
    opened: Mapping[str, Named] = MappingProxyType({}),
) -> tuple[bytes, dict[str, Any]]:
    """Serialise the ModelProto with these outputs, and return an array for every graph input by name."""
    encoded = encode_program(builder, outputs, name, types, opened)
    return encoded.join(), encoded.values


def encode_program(
    builder: GraphBuilder,
    outputs: Sequence[Tensor],
    name: str,
    types: bool = False,
    opened: Mapping[str, Named] = MappingProxyType({}),
) -> EncodedProgram:
    """Encode the parts of a program with these outputs.

    Leaves that no node reads are left out. With `types`, `value_info` has the type of every inner tensor.
    """
    domains: set[str] = set()
    _store_text_inputs(builder.program.leaves, outputs)
    _ensure_input(builder.program.leaves)
    how = _draw_character(builder)
    version = helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", builder.opset), 8)
    made = EncodedProgram(name, version, (), opened, EncodedGraph())
    graph = made.graph
    for leaf in builder.program.leaves:
        if not leaf.reads:
            continue
        if leaf.leaf == "input":
            graph.inputs.append(encode_info(leaf, opened.get(leaf.name)))
            made.values[leaf.name] = _draw_elements(builder, leaf, how)
        elif leaf.leaf == "initializer":
            made.stored.append((len(graph.initializers), leaf))
            graph.initializers.append(_encode_leaf(builder, leaf, leaf.name, how))
        else:
            graph.nodes.append(encode_constant(leaf.name, _encode_leaf(builder, leaf, "", how)))
    graph.nodes.extend([encode_node(node, domains) for node in builder.nodes])
    graph.outputs.extend([encode_info(output, opened.get(output.name)) for output in outputs])
    if types:
        given = {output.name for output in outputs}
        graph.infos.extend(
            encode_info(tensor, opened.get(tensor.name))
            for node in builder.nodes
            for tensor in node.outs
            if tensor.name and tensor.name not in given
        )
    made.opsets = [("", builder.opset), *((domain, domain_version(domain)) for domain in sorted(domains))]
    return made


def _store_text_inputs(leaves: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Store text inputs as initializers if other inputs or outputs have types that numpy lacks: no runtime
    takes both.
    """
    texts = [leaf for leaf in leaves if leaf.dtype == "string" and leaf.leaf == "input"]
    if texts:
        inputs = [leaf for leaf in leaves if leaf.leaf == "input" and leaf.reads]
        if any(tensor.dtype not in _FED for tensor in (*inputs, *outputs)):
            for leaf in texts:
                leaf.leaf = "initializer"


def _ensure_input(leaves: Sequence[Tensor]) -> None:
    """Make a parameter an input if the program has none: it would be folded as a whole."""
    read = [leaf for leaf in leaves if leaf.reads]
    if any(leaf.leaf == "input" for leaf in read):
        return
    for leaf in read:
        if leaf.values is None and leaf.dtype != "string":
            leaf.leaf = "input"
            return


def _encode_leaf(builder: GraphBuilder, leaf: Tensor, name: str, how: str) -> bytes:
    """Encode the TensorProto of a leaf that is not an input."""
    if leaf.dtype not in RAW:
        return encode_tensor(_draw_elements(builder, leaf, how), leaf.dtype, name)
    if leaf.values is not None and leaf.dtype in INTEGERS:
        return encode_integers(leaf.shape, leaf.dtype, leaf.values, name)
    return encode_elements(_draw_numbers(builder, leaf, how).tobytes(), leaf.shape, leaf.dtype, name)


def _draw_elements(builder: GraphBuilder, leaf: Tensor, how: str) -> Array:
    """Draw the elements of a leaf as an array."""
    return _draw_numbers(builder, leaf, how).copy().reshape(leaf.shape)


def _draw_numbers(builder: GraphBuilder, leaf: Tensor, how: str) -> Array:
    """Draw the elements of a leaf in a row, which other leaves may share.

    A leaf follows the character of the program's leaves at the rate `round`.
    """
    if leaf.values is not None:
        return np.array(leaf.values, _DTYPES[leaf.dtype])
    held: Array | None = builder.program.held.get(leaf.name)
    if held is not None:
        return held
    low, high = leaf.low, leaf.high
    # A program that is grown without ranges has leaves without bounds; they get the usual ones.
    if not math.isfinite(high - low):
        low, high = leaf_range(leaf.dtype, ANY)
    place, count = builder.rng.random(), math.prod(leaf.shape)
    if how and (leaf.dtype not in RAW or not builder.rng.chance(builder.style.round)):
        how = ""
    if count > _BLOCK // 2:
        return _round_numbers(fill_array(leaf.dtype, (count,), low, high, place), low, high, how)
    start, taken = int(place * (_BLOCK - count)), 1 if how == _EQUAL else count
    uses = _count_uses(leaf.dtype, low, high, how)
    if uses[0] < _BEFORE_BLOCK:
        uses[0] += 1
        some = _round_numbers(
            _scale_numbers(_FRACTIONS[start : start + taken], leaf.dtype, low, high), low, high, how, start
        )
    else:
        some = _make_block(leaf.dtype, low, high, how)[start : start + taken]
    return np.repeat(some, count) if how == _EQUAL else some


def _draw_character(builder: GraphBuilder) -> str:
    """Draw the character of a program's leaves: anywhere in their intervals, or one of `_ROUND`, `_ENDS`,
    `_EQUAL`.
    """
    drawn, style = builder.rng.random(), builder.style
    for how, rate in ((_ROUND, style.coarse), (_ENDS, style.ends), (_EQUAL, style.equal)):
        if drawn < rate:
            varied = how == _EQUAL and any(
                (op := operators().get(node.op)) and op.varied for node in builder.nodes
            )
            # An operator that needs different elements (`Operator.varied`) would be undefined on equal ones.
            return "" if varied else how
        drawn -= rate
    return ""


@functools.lru_cache(maxsize=1024)
def _count_uses(dtype: str, low: float, high: float, how: str) -> list[int]:
    """Count how often leaves had these bounds lately: a block costs as much as the elements of a dozen
    leaves.
    """
    return [0]


@functools.lru_cache(maxsize=256)
def _make_block(dtype: str, low: float, high: float, how: str) -> Array:
    """Make elements between two bounds; leaves take slices of the block, since most leaves share their
    bounds.
    """
    return _round_numbers(_scale_numbers(_FRACTIONS[:_BLOCK], dtype, low, high), low, high, how)


def _round_numbers(array: Array, low: float, high: float, how: str, start: int = 0) -> Array:
    """Round a row of numbers to multiples of a half with an end of the interval at every sixth place, or to
    ends and zeros.

    `start` is the place of the first element in the row that it belongs to.
    """
    if not how or array.dtype == bool or (array.dtype.kind in "iu" and how != _ENDS):
        return array
    numbers = array.astype(np.float64)
    if how == _ENDS:
        ends = np.array([low, high, min(max(low, 0.0), high)])
        if array.dtype.kind in "iu":
            ends = np.trunc(ends)
        # A fixed scatter of the three ends without a period of 3, which strides and axes often have.
        made: Array = ends[np.arange(start, start + len(array)) * 7 % 11 % 3].astype(array.dtype)
        return made
    numbers = np.clip(np.round(numbers * 2) / 2, low, high)
    numbers[-start % 12 :: 12], numbers[(6 - start) % 12 :: 12] = low, high
    made = numbers.astype(array.dtype)
    return made


def fill_array(dtype: str, shape: Iterable[int], low: float, high: float, place: float) -> Array:
    """Return an array of a dtype with elements between two bounds, both included; `place` in [0, 1) chooses
    the numbers.
    """
    shape = tuple(shape)
    count = math.prod(shape)
    start = int(place * (len(_FRACTIONS) - count)) if count < len(_FRACTIONS) else 0
    numbers = _FRACTIONS[start : start + count] if count <= len(_FRACTIONS) else np.resize(_FRACTIONS, count)
    return _scale_numbers(numbers, dtype, low, high).reshape(shape)


def _scale_numbers(numbers: Array, dtype: str, low: float, high: float) -> Array:
    """Scale numbers in [0, 1) to elements of a dtype between two bounds."""
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
