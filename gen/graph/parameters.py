"""Parameters that nodes compute: shapes, axes, pads, bounds and counts, mostly from the sizes of a tensor.

Exporters of models with open sizes write them as Shape, Gather, Slice, Concat and arithmetic. A chain gives
exactly the numbers that were asked for, so they stay known to rules (`Tensor.values`).
"""

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from opsieve.gen.declarations.tensor import LARGEST, NUMBER, Number, Tensor
from opsieve.gen.graph.adapters import GrowingGraph
from opsieve.gen.graph.graph import Shape
from opsieve.gen.graph.scope import ProgramState

OPERATORS: Final = frozenset(
    ("Shape", "Size", "Gather", "Slice", "Concat", "Add", "Sub", "Mul", "Cast", "Div")
)
# The divisor with which numbers of a dtype are computed. Floats end in a Div, because onnx's inference treats
# whatever it follows through a Cast as integers. Narrow integers are left out: compilers expect constant
# zero points.
_PARTS: Final = MappingProxyType({"int64": 1, "int32": 1, "float32": 2, "float64": 2, "float16": 2})
# The largest number that is computed in integers: every float type holds it exactly.
_LARGEST_FLOAT: Final = 1024
# The number of latest leaves at which a chain may begin.
_LATEST: Final = 4
# The first opset at which Shape has attributes
_SHAPE_OF_AXES: Final = 15


class _Unsupported(Exception):
    """A compiler under test lacks an operator of the chain."""


def compute_numbers(
    builder: GrowingGraph, numbers: Sequence[Number], dtype: str, shape: Shape
) -> Tensor | None:
    """Add nodes that compute these numbers, or an input that holds them; None if that is impossible."""
    rng, program, mark = builder.rng, builder.program, len(builder.nodes)
    # Only in the main graph: the analyses do not follow values that bodies compute.
    parts = _PARTS.get(dtype, 0) if numbers and len(shape) < 2 and builder.scope.outer is None else 0
    if not parts or not (program.only is None or program.only >= OPERATORS):
        return None
    scaled = [number * parts for number in numbers]
    if parts > 1 and not all(-_LARGEST_FLOAT <= each <= _LARGEST_FLOAT for each in scaled):
        return None
    values = tuple(map(int, scaled))
    if values != tuple(scaled):
        return None
    if parts == 1 and builder.style.ranged and program.has_input and rng.chance(builder.style.fed):
        return feed_numbers(program, numbers, dtype, shape)
    source = _find_source(builder, values)
    if source is None:
        return None
    try:
        made = _compute_from(builder, values, shape, source)
        if dtype != "int64":
            made = _add(builder, "Cast", [made], shape, values, dtype, to=NUMBER[dtype])
        if parts > 1:
            made = _add(builder, "Div", [made, builder.constant([parts], dtype, ())], shape, numbers, dtype)
    except _Unsupported:
        builder.undo(mark)
        return None
    return made


def feed_numbers(program: ProgramState, numbers: Sequence[Number], dtype: str, shape: Shape) -> Tensor:
    """Return an input of the program that holds these numbers."""
    low, high = min(numbers), max(numbers)
    made = Tensor(program.make_name("x"), dtype, shape, low, high, tuple(numbers), "input")
    program.leaves.append(made)
    return made


def _find_source(builder: GrowingGraph, values: Shape) -> Tensor | None:
    """Find a tensor with these sizes, else draw one with any sizes.

    Other nodes read it, so its numbers reach the outputs in any case.
    """
    leaves = [leaf for leaf in builder.program.leaves[-_LATEST:] if leaf.leaf == "input"]
    there = [
        each
        for each in (*builder.scope.recent, *leaves)
        if each.reads and each.shape and each.dtype in LARGEST
    ]
    exact = [each for each in there if each.shape == values]
    return builder.rng.choice(exact or there) if there else None


def _compute_from(builder: GrowingGraph, values: Shape, shape: Shape, source: Tensor) -> Tensor:
    """Compute numbers from the sizes of a tensor."""
    rng, sizes, rank, count = builder.rng, source.shape, len(source.shape), len(values)
    start = next((at for at in range(rank) if sizes[at : at + count] == values), None) if shape else None
    if start is not None and count < rank and builder.opset >= _SHAPE_OF_AXES and rng.below(2):
        return _add(builder, "Shape", [source], shape, values, start=start, end=start + count)
    if count > 1 and start is None and rng.below(2):
        cut = rng.between(1, count - 1)
        parts = [builder.constant(values[:cut]), _compute_from(builder, values[cut:], (count - cut,), source)]
        return _add(builder, "Concat", parts, shape, values, axis=0)
    if not shape and not rng.below(4):
        near = _add(builder, "Size", [source], (), (math.prod(sizes),))
        return _shift(builder, near, values)
    whole = _add(builder, "Shape", [source], (rank,), sizes)
    if start is not None and count == rank:
        return whole
    if start is not None and rng.below(2):
        ends = [builder.constant((start,)), builder.constant((start + count,))]
        return _add(builder, "Slice", [whole, *ends], shape, values)
    axes = [sizes.index(value) if value in sizes else rng.below(rank) for value in values]
    places = builder.constant(axes, "int64", shape)
    near = _add(builder, "Gather", [whole, places], shape, tuple(sizes[axis] for axis in axes))
    return near if near.values == values else _shift(builder, near, values)


def _shift(builder: GrowingGraph, near: Tensor, values: Shape) -> Tensor:
    """Turn known numbers into the wanted `values` by adding, subtracting or multiplying constants."""
    assert near.values is not None
    pairs = list(zip(values, near.values, strict=True))
    if all(value and size and value % size == 0 for value, size in pairs):
        op, others = "Mul", [value // size for value, size in pairs]
    elif builder.rng.below(2):
        op, others = "Add", [value - size for value, size in pairs]
    else:
        op, others = "Sub", [size - value for value, size in pairs]
    other = builder.constant(others, "int64", near.shape)
    return _add(builder, op, [near, other], near.shape, values)


def _add(
    builder: GrowingGraph, op: str, ins: Sequence[Tensor], shape: Shape, values: Sequence[Number],
    dtype: str = "int64", **attrs: Any,
) -> Tensor:  # fmt: skip
    """Add a node with known elements, which only the next node of the chain reads."""
    if not builder.has(op, ins, attrs):
        raise _Unsupported
    program = builder.program
    made = Tensor(program.make_name("v"), dtype, shape, min(values), max(values), tuple(values))
    program.elements += len(values)
    builder.emit_as(op, ins, attrs, made)
    return made
