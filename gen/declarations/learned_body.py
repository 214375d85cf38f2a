"""Graphs that are attributes of learned operators: a signature that an operator asks for, filled with
constants.

    decoder = [{ inputs = ["input_ids: int32[batch, length]"], outputs = ["logits: float32[batch, length, 8]"]
    }]

A word is a size that only a run tells: an output has it from an input that has the same word. What outputs
hold are fixed numbers: a declaration is of types, not of meaning.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opsieve.gen.declarations.tensor import LARGEST, is_float
from opsieve.gen.model.tensors import NUMBERS

_VALUE = re.compile(r"([A-Za-z_]\w{0,79}): ([a-z0-9_]{1,20})\[([\w, ]{0,200})\]")
_SIZE = re.compile(r"\d{1,4}|[A-Za-z_]\w{0,39}")
_MOST_RANK, _MOST_VALUES, _LARGEST = 8, 32, 1 << 16
_PERIOD = 64


@dataclass(frozen=True, slots=True)
class BodyValue:
    """An input or output of a body: its name, dtype, and sizes, each a number or a word."""

    name: str
    dtype: str
    sizes: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True, slots=True)
class LearnedBody:
    """A graph attribute: the types of its inputs and outputs."""

    inputs: tuple[BodyValue, ...]
    outputs: tuple[BodyValue, ...]

    def graph(self, name: str) -> onnx.GraphProto:
        """The graph. An output has fixed numbers along its last sizes, repeated along the others; a word that
        no input has is 1.
        """
        found = {word: (each.name, axis) for each in self.inputs for axis, word in enumerate(each.sizes)}
        nodes = [node for out in self.outputs for node in _make_nodes(out, found)]
        return helper.make_graph(nodes, name, _infos(self.inputs), _infos(self.outputs))

    def following(self, rank: int) -> "LearnedBody":
        """The body whose outputs have the sizes of its first input, of this rank, before their last ones."""
        if not self.inputs:
            return self
        words = tuple(f"n{axis}" for axis in range(rank))
        outs = []
        for out in self.outputs:
            count = min(rank, max(len(out.sizes) - 1, 0))
            outs.append(replace(out, sizes=(*words[:count], *out.sizes[count:])))
        return LearnedBody((replace(self.inputs[0], sizes=words), *self.inputs[1:]), tuple(outs))

    def to_toml(self) -> str:
        """Return its table in a file of declarations."""
        sides = (("inputs", self.inputs), ("outputs", self.outputs))
        texts = [f"{side} = {json.dumps([str(each) for each in values])}" for side, values in sides]
        return f"{{ {', '.join(texts)} }}"

    def fits(self, value: Any) -> bool:
        """Whether a graph of a program (`inputs` and `outputs` with names and dtypes) has this signature."""
        if not (hasattr(value, "inputs") and hasattr(value, "outputs")):
            return False
        return _signature(value) == _signature(self)


def _infos(values: Sequence[BodyValue]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(each.name, NUMBERS[each.dtype], each.sizes) for each in values]


def _signature(graph: Any) -> list[list[tuple[str, str]]]:
    return [[(each.name, each.dtype) for each in side] for side in (graph.inputs, graph.outputs)]


def body_of(entry: Mapping[str, Any]) -> LearnedBody | None:
    """Read a body from a table of a file; returns `None` if the table is not a body."""
    sides = [entry.get(side) for side in ("inputs", "outputs")]
    if set(entry) != {"inputs", "outputs"} or not all(isinstance(side, list) for side in sides):
        return None
    made = [[_value(text) for text in side or ()][: _MOST_VALUES + 1] for side in sides]
    if any(value is None or len(side) > _MOST_VALUES for side in made for value in side) or not made[1]:
        return None
    ins, outs = ([value for value in side if value is not None] for side in made)
    names = [value.name for value in (*ins, *outs)]
    return LearnedBody(tuple(ins), tuple(outs)) if len(set(names)) == len(names) else None


def _value(text: Any) -> BodyValue | None:
    match = _VALUE.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in LARGEST:
        return None
    parts = [part.strip() for part in match[3].split(",")] if match[3].strip() else []
    if len(parts) > _MOST_RANK or not all(_SIZE.fullmatch(part) for part in parts):
        return None
    sizes = tuple(int(part) if part.isdigit() else part for part in parts)
    volume = math.prod(side for side in sizes if isinstance(side, int))
    return BodyValue(match[1], match[2], sizes) if volume <= _LARGEST else None


def _make_nodes(out: BodyValue, found: Mapping[int | str, tuple[str, int]]) -> Iterator[onnx.NodeProto]:
    """Make the nodes of an output: its numbers, expanded to its shape."""
    fixed = next((axis for axis in range(len(out.sizes), 0, -1) if isinstance(out.sizes[axis - 1], str)), 0)
    values = f"{out.name}_values"
    # Numbers of all kinds from -1 to 1, of a type without fractions 1 alone: a truth value goes on with
    # it.
    shape = tuple(side for side in out.sizes[fixed:] if isinstance(side, int))
    count = math.prod(shape)
    steps = (
        (np.arange(count) * 37 + 11) % _PERIOD / (_PERIOD / 2) - 1 if is_float(out.dtype) else np.ones(count)
    )
    yield _constant(values, steps.reshape(shape).astype(helper.tensor_dtype_to_np_dtype(NUMBERS[out.dtype])))
    if not fixed:
        yield helper.make_node("Identity", [values], [out.name])
        return
    parts = []
    for axis, side in enumerate(out.sizes):
        part = f"{out.name}_size_{axis}"
        parts.append(part)
        if side not in found or isinstance(side, int):
            yield _constant(part, np.array([side if isinstance(side, int) else 1], np.int64))
            continue
        source, place = found[side]
        yield helper.make_node("Shape", [source], [f"{part}_all"])
        yield _constant(f"{part}_axis", np.array([place], np.int64))
        yield helper.make_node("Gather", [f"{part}_all", f"{part}_axis"], [part], axis=0)
    yield helper.make_node("Concat", parts, [f"{out.name}_shape"], axis=0)
    yield helper.make_node("Expand", [values, f"{out.name}_shape"], [out.name])


def _constant(name: str, array: "np.ndarray[Any, Any]") -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
