"""Adapt an existing tensor where none fits: add a few nodes that change its dtype, rank, sizes or range.

Optimisers rewrite chains, so a program should be connected (docs/explanation/generator.md). Where a sampler
requests a tensor that does not exist, an existing one is brought into the requested type by the operators
that people use for it. Adapters are added by their declarations, so they are valid and within the budget. If
one of them fails, the nodes before it are removed again.
"""

import math
from collections.abc import Sequence
from typing import Final, Protocol

from opsieve.gen.declarations.builder import FREE, Builder
from opsieve.gen.declarations.catalogue import OpChoice, first_dtypes, operators
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.tensor import (
    ANY,
    LARGEST,
    LEAST,
    NUMBER,
    USUAL,
    Attributes,
    Domain,
    Tensor,
    is_float,
    leaf_range,
)
from opsieve.gen.graph.graph import Node, Shape
from opsieve.gen.graph.scope import ProgramState, TensorScope


class GrowingGraph(Builder, Protocol):
    """The part of a graph builder that adapters use beyond what samplers use."""

    program: ProgramState
    scope: TensorScope
    nodes: list[Node]

    def add(self, op: Operator, ins: Sequence[Tensor | None], attrs: Attributes) -> list[Tensor] | None:
        """Add a node by its declaration and return its outputs; None if its result is not allowed here."""

    def undo(self, start: int) -> None:
        """Remove the nodes from index `start` on."""

    def has(self, op: str, ins: Sequence[Tensor | None], attrs: Attributes) -> bool:
        """Return whether the compilers under test support an operator that is added without its
        declaration.
        """

    def emit_as(self, op: str, ins: Sequence[Tensor], attrs: Attributes, made: Tensor) -> None:
        """Add a node whose output is a tensor that only the caller uses."""


_SIGNS: Final = ("Greater", "Less")
# The reduction whose result a comparison reads, so that some elements answer yes and some no.
COMPARED: Final = {
    "Equal": "ReduceMax",
    "Less": "ReduceMax",
    "GreaterOrEqual": "ReduceMax",
    "Greater": "ReduceMin",
    "LessOrEqual": "ReduceMin",
}
# Larger results soon leave their type, so they are clipped first.
_LARGEST_USEFUL: Final = 1e4
_EDGES: Final = ("constant", "constant", "edge", "reflect")


def adapt_first(builder: GrowingGraph, tensor: Tensor, choice: OpChoice) -> Tensor | None:
    """Adapt a tensor to be the first input of an operator; None if that is impossible."""
    if (
        tensor.dtype in choice.dtypes
        and choice.low <= len(tensor.shape) <= choice.high
        and is_within(builder, tensor, choice.safe)
    ):
        return tensor
    mark = len(builder.nodes)
    made: Tensor | None = tensor
    if not choice.low <= len(tensor.shape) <= choice.high:
        made = _change_rank(builder, tensor, choice.low, choice.high)
    if made is not None and made.dtype not in choice.dtypes:
        # Dtypes of the palette are preferred, because the program's other tensors have them.
        targets = [dtype for dtype in choice.leaves if dtype in builder.style.palette]
        made = _cast_to(
            builder,
            made,
            (targets or [dtype for dtype in choice.leaves if dtype in USUAL and dtype != "string"]),
        )
    return _finish_or_undo(builder, mark, made, choice.safe)


def adapt_to(
    builder: GrowingGraph, tensor: Tensor, dtype: str, shape: Shape, domain: Domain = ANY
) -> Tensor | None:
    """Adapt a tensor to a dtype, shape (a size of FREE fits any) and domain; None if that is impossible."""
    if tensor.dtype == dtype and _is_shape(tensor.shape, shape) and is_within(builder, tensor, domain):
        return tensor
    mark = len(builder.nodes)
    made: Tensor | None = tensor if tensor.dtype == dtype else _cast_to(builder, tensor, (dtype,))
    if made is not None:
        made = _change_shape(builder, made, shape, domain)
    return _finish_or_undo(builder, mark, made, domain)


def count_steps_first(tensor: Tensor, choice: OpChoice, ranged: bool) -> int:
    """Estimate how many nodes it takes to adapt a tensor to the first input of an operator."""
    return (
        (tensor.dtype not in choice.dtypes)
        + (not choice.low <= len(tensor.shape) <= choice.high)
        + (ranged and choice.safe is not ANY and not tensor.within(choice.safe))
    )


def choose_nearest(tensors: Sequence[Tensor], choice: OpChoice, ranged: bool, hub: int) -> Tensor:
    """Choose the tensor that the most nodes lead to, less the nodes needed to adapt it to an operator's first
    input.

    With `hub`, choose the one that the most nodes read; `hub` adapting nodes then weigh as much as one
    reader.
    """
    dtypes, low, high, safe = choice.dtypes, choice.low, choice.high, choice.safe
    ranged = ranged and safe is not ANY
    near, most = tensors[0], -(1 << 60)
    for tensor in tensors:
        good = hub * tensor.reads if hub else tensor.depth
        # The steps that a tensor needs only make it worse, so they are counted for promising ones alone.
        if good > most:
            good -= (
                (tensor.dtype not in dtypes)
                + (not low <= len(tensor.shape) <= high)
                + (ranged and not tensor.within(safe))
            )
            if good > most:
                near, most = tensor, good
    return near


def count_steps_to(tensor: Tensor, dtype: str, shape: Shape, domain: Domain, ranged: bool) -> int:
    """Estimate how many nodes it takes to bring a tensor into a dtype, shape and domain."""
    return (
        (tensor.dtype != dtype)
        + (not _is_shape(tensor.shape, shape))
        + (len(tensor.shape) > len(shape))
        + (ranged and domain is not ANY and not tensor.within(domain))
    )


def choose_nearest_to(
    tensors: Sequence[Tensor], dtype: str, shape: Shape, domain: Domain, ranged: bool
) -> tuple[Tensor, int]:
    """Choose the first tensor that needs the fewest nodes to reach a dtype, shape and domain; return that
    number, too.
    """
    near, fewest = tensors[0], count_steps_to(tensors[0], dtype, shape, domain, ranged)
    for tensor in tensors[1:]:
        if not fewest:
            break
        steps = count_steps_to(tensor, dtype, shape, domain, ranged)
        if steps < fewest:
            near, fewest = tensor, steps
    return near, fewest


def add_extreme(builder: GrowingGraph, comparison: str, tensor: Tensor) -> Tensor | None:
    """Add the largest or smallest element of a tensor, with which a comparison gives both answers; None for
    one element.
    """
    return _add_named(builder, COMPARED[comparison], [tensor], {}) if math.prod(tensor.shape) > 1 else None


def _finish_or_undo(builder: GrowingGraph, mark: int, made: Tensor | None, domain: Domain) -> Tensor | None:
    """Clip an adapted tensor to a domain; remove the nodes since `mark` if it could not be adapted."""
    made = None if made is None else _clip_to(builder, made, domain)
    if made is None:
        builder.undo(mark)
    return made


def _add_named(
    builder: GrowingGraph, name: str, ins: Sequence[Tensor | None], attrs: Attributes
) -> Tensor | None:
    """Add a node by its operator's name; None if the opset, budget, request or a compiler excludes it."""
    program, operator, x = builder.program, operators()[name], ins[0]
    assert x is not None
    if program.only is not None and name not in program.only:
        return None
    if x.dtype not in first_dtypes(operator, builder.opset):
        return None
    made = builder.add(operator, ins, attrs)
    return None if made is None else made[0]


# Dtypes


def _cast_to(builder: GrowingGraph, tensor: Tensor, targets: Sequence[str]) -> Tensor | None:
    """Cast a tensor to one of some dtypes that holds all its values."""
    if not targets:
        return None
    dtype = builder.rng.choice(targets)
    if dtype not in LARGEST or dtype == "string" or "Cast" not in operators():
        return None
    low, high = tensor.low, tensor.high
    # Computed numbers are rarely zero, so that a Cast would make nearly all of them true.
    if dtype == "bool" and low < 0 < high:
        return _add_named(
            builder, builder.rng.choice(_SIGNS), [tensor, builder.ints([0], tensor.dtype, ())], {}
        )
    if dtype != "bool" and (low < LEAST[dtype] or high > LARGEST[dtype]):
        low, high = USUAL.get(dtype, (0.0, 0.0))
        clipped = _clip_to(builder, tensor, Domain(low, high)) if builder.style.ranged else None
        if clipped is None:
            return None
        tensor = clipped
    return _add_named(builder, "Cast", [tensor], {"to": NUMBER[dtype]})


# Ranks and sizes


def can_cut(builder: GrowingGraph, tensor: Tensor) -> bool:
    """Return whether a Slice can cut a tensor here."""
    return tensor.dtype in first_dtypes(operators()["Slice"], builder.opset) and builder.has(
        "Slice", [tensor], {}
    )


def make_cut(builder: GrowingGraph, tensor: Tensor, axes: Sequence[int]) -> Node:
    """Make a node, which is still to be added, that cuts axes of a tensor to its sizes.

    Its output is another tensor of the same type.
    """
    ends = [tensor.shape[axis] for axis in axes]
    ins = [tensor, *map(builder.constant, ([0] * len(axes), ends, axes))]
    for each in ins:
        each.reads += 1
    program = builder.program
    out = Tensor(program.make_name("v"), tensor.dtype, tensor.shape, tensor.low, tensor.high)
    return Node("Slice", "", ins, [out], {}, program.make_name("n"))


def _change_rank(builder: GrowingGraph, tensor: Tensor, low: int, high: int) -> Tensor | None:
    """Give a tensor at least `low` and at most `high` dimensions."""
    rank = len(tensor.shape)
    if rank < low:
        return _add_named(builder, "Unsqueeze", [tensor, builder.constant(list(range(low - rank)))], {})
    ones = [axis for axis, side in enumerate(tensor.shape) if side == 1]
    if len(ones) >= rank - high:
        return _add_named(builder, "Squeeze", [tensor, builder.constant(ones[: rank - high])], {})
    if not high:
        return None
    sides = (*tensor.shape[: high - 1], math.prod(tensor.shape[high - 1 :]))
    return _add_named(builder, "Reshape", [tensor, builder.ints(sides)], {})


def _change_shape(builder: GrowingGraph, tensor: Tensor, shape: Shape, domain: Domain) -> Tensor | None:
    """Give a tensor these sizes: by Reshape or Expand if possible, else by a change of rank, cuts and
    padding.
    """
    if _is_shape(tensor.shape, shape):
        return tensor
    if FREE not in shape:
        if math.prod(shape) == math.prod(tensor.shape):
            return _add_named(builder, "Reshape", [tensor, builder.ints(shape)], {})
        if _is_broadcastable(tensor.shape, shape):
            return _broadcast_to(builder, tensor, shape, domain)
    if len(tensor.shape) != len(shape):
        ranked = _change_rank(builder, tensor, len(shape), len(shape)) if shape else None
        if ranked is None:
            return None
        tensor = ranked
    if any(side > wanted != FREE for side, wanted in zip(tensor.shape, shape, strict=True)):
        # Cut the axes that are too long, at the front or the back.
        rng = builder.rng
        axes = [
            axis
            for axis, (side, wanted) in enumerate(zip(tensor.shape, shape, strict=True))
            if side > wanted != FREE
        ]
        starts = [rng.between(0, tensor.shape[axis] - shape[axis]) for axis in axes]
        ends = [start + shape[axis] for start, axis in zip(starts, axes, strict=True)]
        cut = _add_named(
            builder, "Slice", [tensor, builder.ints(starts), builder.ints(ends), builder.ints(axes)], {}
        )
        if cut is None:
            return None
        tensor = cut
    if _is_shape(tensor.shape, shape):
        return tensor
    sides = tuple(
        side if wanted == FREE else wanted for side, wanted in zip(tensor.shape, shape, strict=True)
    )
    if _is_broadcastable(tensor.shape, sides):
        return _broadcast_to(builder, tensor, sides, domain)
    return _pad_sizes(builder, tensor, sides)


def _broadcast_to(builder: GrowingGraph, tensor: Tensor, shape: Shape, domain: Domain) -> Tensor | None:
    """Broadcast a tensor to a shape without repeating one number everywhere, which would hide wrong orders
    and axes.
    """
    if math.prod(tensor.shape) == 1 and tensor.dtype in builder.takes("Where", "T"):
        mask, others = builder.weight("bool", shape), builder.weight(tensor.dtype, shape, domain)
        made = _add_named(builder, "Where", [mask, tensor, others], {})
        if made is not None:
            return made
    return _add_named(builder, "Expand", [tensor, builder.ints(shape)], {})


def _is_shape(shape: Shape, wanted: Shape) -> bool:
    """Return whether a shape equals another one, in which FREE stands for any size."""
    return shape == wanted or (
        len(shape) == len(wanted) and all(b in (FREE, a) for a, b in zip(shape, wanted, strict=True))
    )


def _is_broadcastable(shape: Shape, wanted: Shape) -> bool:
    """Return whether a shape broadcasts to another one."""
    tail = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def _pad_sizes(builder: GrowingGraph, tensor: Tensor, shape: Shape) -> Tensor | None:
    """Pad the axes that are too short."""
    rng = builder.rng
    missing = [wanted - side for side, wanted in zip(tensor.shape, shape, strict=True)]
    before = [rng.between(0, more) for more in missing]
    after = [more - first for more, first in zip(missing, before, strict=True)]
    mode = rng.choice(_EDGES)
    if mode == "reflect" and any(
        max(pair) >= side for side, *pair in zip(tensor.shape, before, after, strict=True)
    ):
        mode = "edge"
    attrs: Attributes = {} if mode == "constant" else {"mode": mode}
    return _add_named(builder, "Pad", [tensor, builder.ints([*before, *after])], attrs)


# Values


def is_within(builder: GrowingGraph, tensor: Tensor, domain: Domain) -> bool:
    """Return whether a tensor lies in a domain, so that it needs no Clip."""
    if not builder.style.ranged:
        return True
    if domain is ANY:
        return tensor.size <= _LARGEST_USEFUL or not is_float(tensor.dtype)
    return tensor.within(domain)


def _clip_to(builder: GrowingGraph, tensor: Tensor, domain: Domain) -> Tensor | None:
    """Bring a tensor into a domain."""
    if is_within(builder, tensor, domain):
        return tensor
    if tensor.dtype == "bool":
        return None
    low, high = leaf_range(tensor.dtype, domain)
    if not low < high:
        return None
    if (
        domain.low == 0
        and not domain.nonzero
        and -domain.high <= tensor.low < 0
        and tensor.high <= domain.high
    ):
        # A Clip would give zero wherever the tensor is negative.
        positive = _add_named(builder, "Abs", [tensor], {})
        if positive is not None:
            return positive
    if not is_float(tensor.dtype):
        low, high = float(math.ceil(low)), float(math.floor(high))
    made = _add_named(
        builder,
        "Clip",
        [tensor, builder.ints([low], tensor.dtype, ()), builder.ints([high], tensor.dtype, ())],
        {},
    )
    return made if made is not None and made.within(domain) else None
