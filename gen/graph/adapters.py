"""Making an existing tensor fit where none does: at most a few nodes that change its dtype, rank, sizes or
range.

What optimisers rewrite are chains, so a program should hang together (docs/benchmarks/generator.md,
"Structure"): where a sampler asks for a tensor that is not there, one that is there is brought into the
wanted shape by the operators that people use for it. All are added by their declarations, so they are valid
and inside the budget; where one of them cannot be, those before it are taken back.
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
from opsieve.gen.graph.scope import ProgramState


class GrowingGraph(Builder, Protocol):
    """What adapters ask of the graph in which they stand, beside what samplers ask."""

    program: ProgramState
    nodes: list[Node]

    def add(self, op: Operator, ins: Sequence[Tensor | None], attrs: Attributes) -> list[Tensor] | None:
        """A node by its declaration; None, and nothing done, where its result cannot stand."""

    def undo(self, start: int) -> None:
        """Take back the nodes from a place on."""


ADAPTERS: Final = (
    "Abs",
    "Cast",
    "Clip",
    "Expand",
    "Greater",
    "Less",
    "Pad",
    "Reshape",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Where",
)
_SIGNS: Final = ("Greater", "Less")
# What a comparison is compared with so that some elements answer yes and some no: the largest element, or the
# least.
COMPARED: Final = {
    "Equal": "ReduceMax",
    "Less": "ReduceMax",
    "GreaterOrEqual": "ReduceMax",
    "Greater": "ReduceMin",
    "LessOrEqual": "ReduceMin",
}
_LARGEST_USEFUL: Final = 1e4  # results of a larger size soon leave their type: they are brought back first
_EDGES: Final = ("constant", "constant", "edge", "reflect")


def adapt_first(builder: GrowingGraph, tensor: Tensor, choice: OpChoice) -> Tensor | None:
    """A tensor as the first input of an operator; None when it cannot be made one."""
    if (
        tensor.dtype in choice.dtypes
        and choice.low <= len(tensor.shape) <= choice.high
        and stays(builder, tensor, choice.safe)
    ):
        return tensor
    mark = len(builder.nodes)
    made: Tensor | None = tensor
    if not choice.low <= len(tensor.shape) <= choice.high:
        made = _ranked(builder, tensor, choice.low, choice.high)
    if made is not None and made.dtype not in choice.dtypes:
        made = _cast(builder, made, _preferred(builder, choice))
    return _all_or_nothing(builder, mark, made, choice.safe)


def adapt_to(
    builder: GrowingGraph, tensor: Tensor, dtype: str, shape: Shape, domain: Domain = ANY
) -> Tensor | None:
    """A tensor in a dtype and shape (where a size is FREE anything goes) and inside a domain; None when it
    cannot be made so.
    """
    if tensor.dtype == dtype and _fits(tensor.shape, shape) and stays(builder, tensor, domain):
        return tensor
    mark = len(builder.nodes)
    made: Tensor | None = tensor if tensor.dtype == dtype else _cast(builder, tensor, (dtype,))
    if made is not None:
        made = _shaped(builder, made, shape, domain)
    return _all_or_nothing(builder, mark, made, domain)


def steps_first(tensor: Tensor, choice: OpChoice, ranged: bool) -> int:
    """About how many nodes it takes to make a tensor the first input of an operator."""
    return (
        (tensor.dtype not in choice.dtypes)
        + (not choice.low <= len(tensor.shape) <= choice.high)
        + (ranged and choice.safe is not ANY and not tensor.within(choice.safe))
    )


def nearest(tensors: Sequence[Tensor], choice: OpChoice, ranged: bool, hub: int) -> Tensor:
    """Of some tensors the first of those that most nodes lead to, less the nodes it takes to make it the
    first input of an operator.

    With `hub` that which most nodes read: so many nodes that adapt are as bad as one reader is good.
    """
    dtypes, low, high, safe = choice.dtypes, choice.low, choice.high, choice.safe
    ranged = ranged and safe is not ANY
    near, most = tensors[0], -(1 << 60)
    for tensor in tensors:
        good = hub * tensor.reads if hub else tensor.depth
        if good > most:  # else steps do not change it
            good -= (
                (tensor.dtype not in dtypes)
                + (not low <= len(tensor.shape) <= high)
                + (ranged and not tensor.within(safe))
            )
            if good > most:
                near, most = tensor, good
    return near


def steps_to(tensor: Tensor, dtype: str, shape: Shape, domain: Domain, ranged: bool) -> int:
    """About how many nodes it takes to bring a tensor into a dtype and shape, and inside a domain."""
    return (
        (tensor.dtype != dtype)
        + (not _fits(tensor.shape, shape))
        + (len(tensor.shape) > len(shape))
        + (ranged and domain is not ANY and not tensor.within(domain))
    )


def nearest_to(
    tensors: Sequence[Tensor], dtype: str, shape: Shape, domain: Domain, ranged: bool
) -> tuple[Tensor, int]:
    """Of some tensors the first that takes fewest nodes to be brought into a dtype and shape, and inside a
    domain; and how many.
    """
    near, fewest = tensors[0], steps_to(tensors[0], dtype, shape, domain, ranged)
    for tensor in tensors[1:]:
        if not fewest:
            break
        steps = steps_to(tensor, dtype, shape, domain, ranged)
        if steps < fewest:
            near, fewest = tensor, steps
    return near, fewest


def extreme(builder: GrowingGraph, comparison: str, tensor: Tensor) -> Tensor | None:
    """The element of a tensor by which a comparison with it answers both yes and no; None where there is
    none.
    """
    return _added(builder, COMPARED[comparison], [tensor], {}) if math.prod(tensor.shape) > 1 else None


def _all_or_nothing(builder: GrowingGraph, mark: int, made: Tensor | None, domain: Domain) -> Tensor | None:
    """What was made since a mark, inside a domain; None, and nothing left, where that failed."""
    made = None if made is None else _ranged(builder, made, domain)
    if made is None:
        builder.undo(mark)
    return made


def _added(
    builder: GrowingGraph, name: str, ins: Sequence[Tensor | None], attrs: Attributes
) -> Tensor | None:
    """The result of one more node; None where the opset, the budget, the request or the compilers do not have
    it.
    """
    program, operator, x = builder.program, operators()[name], ins[0]
    assert x is not None
    if program.only is not None and name not in program.only:
        return None
    if x.dtype not in first_dtypes(operator, builder.opset):
        return None
    made = builder.add(operator, ins, attrs)
    return None if made is None else made[0]


# Dtypes


def _preferred(builder: GrowingGraph, choice: OpChoice) -> Sequence[str]:
    """The dtypes that an operator takes: those of the palette, else usual ones."""
    targets = [dtype for dtype in choice.leaves if dtype in builder.style.palette]
    return targets or [dtype for dtype in choice.leaves if dtype in USUAL and dtype != "string"]


def _cast(builder: GrowingGraph, tensor: Tensor, targets: Sequence[str]) -> Tensor | None:
    """The tensor in one of some dtypes that holds all its values."""
    if not targets:
        return None
    dtype = builder.rng.choice(targets)
    if dtype not in LARGEST or dtype == "string" or "Cast" not in operators():
        return None
    low, high = tensor.low, tensor.high
    # what is computed is seldom zero: cast, nearly all of it were true
    if dtype == "bool" and low < 0 < high:
        return _added(builder, builder.rng.choice(_SIGNS), [tensor, builder.ints([0], tensor.dtype, ())], {})
    if dtype != "bool" and (low < LEAST[dtype] or high > LARGEST[dtype]):
        low, high = USUAL.get(dtype, (0.0, 0.0))
        clipped = _ranged(builder, tensor, Domain(low, high)) if builder.style.ranged else None
        if clipped is None:
            return None
        tensor = clipped
    return _added(builder, "Cast", [tensor], {"to": NUMBER[dtype]})


# Ranks and sizes


def _ranked(builder: GrowingGraph, tensor: Tensor, low: int, high: int) -> Tensor | None:
    """The tensor with `low` dimensions where it has fewer, `high` where it has more."""
    rank = len(tensor.shape)
    if rank < low:
        return _added(builder, "Unsqueeze", [tensor, builder.ints(list(range(low - rank)))], {})
    ones = [axis for axis, side in enumerate(tensor.shape) if side == 1]
    if len(ones) >= rank - high:
        return _added(builder, "Squeeze", [tensor, builder.ints(ones[: rank - high])], {})
    if not high:
        return None
    sides = (*tensor.shape[: high - 1], math.prod(tensor.shape[high - 1 :]))
    return _added(builder, "Reshape", [tensor, builder.ints(sides)], {})


def _shaped(builder: GrowingGraph, tensor: Tensor, shape: Shape, domain: Domain) -> Tensor | None:
    """The tensor with these sizes: reshaped or expanded where that does it, else of the same rank, then cut
    and padded.
    """
    if _fits(tensor.shape, shape):
        return tensor
    if FREE not in shape:
        if math.prod(shape) == math.prod(tensor.shape):
            return _added(builder, "Reshape", [tensor, builder.ints(shape)], {})
        if _spreads(tensor.shape, shape):
            return _spread(builder, tensor, shape, domain)
    if len(tensor.shape) != len(shape):
        ranked = _ranked(builder, tensor, len(shape), len(shape)) if shape else None
        if ranked is None:
            return None
        tensor = ranked
    if any(side > wanted != FREE for side, wanted in zip(tensor.shape, shape, strict=True)):
        cut = _cut(builder, tensor, shape)
        if cut is None:
            return None
        tensor = cut
    if _fits(tensor.shape, shape):
        return tensor
    sides = tuple(
        side if wanted == FREE else wanted for side, wanted in zip(tensor.shape, shape, strict=True)
    )
    if _spreads(tensor.shape, sides):
        return _spread(builder, tensor, sides, domain)
    return _padded(builder, tensor, sides)


def _spread(builder: GrowingGraph, tensor: Tensor, shape: Shape, domain: Domain) -> Tensor | None:
    """The tensor with sizes that it broadcasts to; one number not throughout, which would hide wrong orders
    and axes behind it.
    """
    if math.prod(tensor.shape) == 1 and tensor.dtype in builder.takes("Where", "T"):
        mask, others = builder.weight("bool", shape), builder.weight(tensor.dtype, shape, domain)
        made = _added(builder, "Where", [mask, tensor, others], {})
        if made is not None:
            return made
    return _added(builder, "Expand", [tensor, builder.ints(shape)], {})


def _fits(shape: Shape, wanted: Shape) -> bool:
    return shape == wanted or (
        len(shape) == len(wanted) and all(b in (FREE, a) for a, b in zip(shape, wanted, strict=True))
    )


def _spreads(shape: Shape, wanted: Shape) -> bool:
    """Whether a shape broadcasts to another."""
    tail = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def _cut(builder: GrowingGraph, tensor: Tensor, shape: Shape) -> Tensor | None:
    """The tensor without what it has too much of, at the front or the back."""
    rng = builder.rng
    axes = [
        axis
        for axis, (side, wanted) in enumerate(zip(tensor.shape, shape, strict=True))
        if side > wanted != FREE
    ]
    starts = [rng.between(0, tensor.shape[axis] - shape[axis]) for axis in axes]
    ends = [start + shape[axis] for start, axis in zip(starts, axes, strict=True)]
    return _added(
        builder, "Slice", [tensor, builder.ints(starts), builder.ints(ends), builder.ints(axes)], {}
    )


def _padded(builder: GrowingGraph, tensor: Tensor, shape: Shape) -> Tensor | None:
    """The tensor with more at its borders."""
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
    return _added(builder, "Pad", [tensor, builder.ints([*before, *after])], attrs)


# Values


def stays(builder: GrowingGraph, tensor: Tensor, domain: Domain) -> bool:
    """Whether a tensor need not be clipped."""
    if not builder.style.ranged:
        return True
    if domain is ANY:
        return tensor.size <= _LARGEST_USEFUL or not is_float(tensor.dtype)
    return tensor.within(domain)


def _ranged(builder: GrowingGraph, tensor: Tensor, domain: Domain) -> Tensor | None:
    """The tensor inside a domain: as it is, or what is outside brought to its ends."""
    if stays(builder, tensor, domain):
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
        positive = _added(builder, "Abs", [tensor], {})  # a Clip were zero wherever the tensor is negative
        if positive is not None:
            return positive
    if not is_float(tensor.dtype):
        low, high = float(math.ceil(low)), float(math.floor(high))
    made = _added(
        builder,
        "Clip",
        [tensor, builder.ints([low], tensor.dtype, ()), builder.ints([high], tensor.dtype, ())],
        {},
    )
    return made if made is not None and made.within(domain) else None
