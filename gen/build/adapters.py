"""Making an existing tensor fit where none does: an Unsqueeze or a Reshape to the wanted rank, a Cast to a wanted dtype."""

import functools
import math
from typing import TYPE_CHECKING

from opsieve.gen.spec.dtype_facts import LARGEST, LEAST, NUMBER, USUAL, is_float
from opsieve.gen.spec.schema import form
from opsieve.gen.spec.tensor import Attributes, Tensor

if TYPE_CHECKING:
    from opsieve.gen.build.graph_builder import GraphBuilder
    from opsieve.gen.spec.catalogue import OpChoice


def adapt(builder: "GraphBuilder", choice: "OpChoice") -> Tensor | None:
    """A tensor that nobody reads yet, as a first input of an operator; None when it cannot be made one."""
    if not builder.scope.loose:
        return None
    tensor = builder.rng.choice(builder.scope.loose)
    if tensor.dtype not in _taken(builder.opset):
        return None
    if not choice.low <= len(tensor.shape) <= choice.high:
        ranked = _ranked(builder, tensor, choice.low, choice.high)
        if ranked is None:
            return None
        tensor = ranked
    if tensor.dtype not in choice.dtypes:
        cast = _cast(builder, tensor, choice)
        if cast is None:
            return None
        tensor = cast
    return tensor if not builder.style.ranged or tensor.within(choice.safe) else None


@functools.cache
def _taken(opset: int) -> frozenset[str]:
    """The dtypes that all three operators take."""
    taken = frozenset(LARGEST) - {"string"}
    for name, variable in (("Reshape", "T"), ("Unsqueeze", "T"), ("Cast", "T1")):
        had = form(name, opset)
        taken &= had.types[variable] if had is not None else frozenset()
    return taken


def _ranked(builder: "GraphBuilder", tensor: Tensor, low: int, high: int) -> Tensor | None:
    """The tensor with `low` dimensions where it has fewer, `high` where it has more."""
    if len(tensor.shape) < low:
        axes = list(range(low - len(tensor.shape)))
        op, sides, second = "Unsqueeze", (*(1 for _ in axes), *tensor.shape), builder.ints(axes)
    elif high:
        op, sides = "Reshape", (*tensor.shape[: high - 1], math.prod(tensor.shape[high - 1 :]))
        second = builder.ints(sides)
    else:
        return None
    if not builder.has(op, [tensor, second], {}):
        return None
    return builder.emit(op, "", [tensor, second], {}, [(tensor.dtype, sides)], (tensor.low, tensor.high))[0]


def _cast(builder: "GraphBuilder", tensor: Tensor, choice: "OpChoice") -> Tensor | None:
    """The tensor in a dtype that holds all its values, one of the palette rather than another."""
    targets = [dtype for dtype in choice.leaves if dtype in builder.style.palette]
    targets = targets or [dtype for dtype in choice.leaves if dtype in USUAL and dtype != "string"]
    if not targets:
        return None
    dtype = builder.rng.choice(targets)
    low, high = tensor.low, tensor.high
    if dtype == "bool":
        low, high = 0.0, 1.0
    elif not is_float(dtype) and math.isfinite(high - low):
        low, high = math.floor(low), math.ceil(high)
    attrs: Attributes = {"to": NUMBER[dtype]}
    if low < LEAST[dtype] or high > LARGEST[dtype] or not builder.has("Cast", [tensor], attrs):
        return None
    return builder.emit("Cast", "", [tensor], attrs, [(dtype, tensor.shape)], (low, high))[0]
