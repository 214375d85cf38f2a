"""The parts of a program under construction: nodes, and graphs as attributes of nodes."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from opsieve.gen.declarations.tensor import Attributes, Tensor

Shape = tuple[int, ...]
# A shape with names of sizes in it
Named = tuple[int | str, ...]


@functools.lru_cache(maxsize=1 << 14)
def count_elements(shape: Named) -> int:
    """Count the elements of a shape over the sizes that are numbers. Cached, because shapes recur."""
    return math.prod([side for side in shape if type(side) is int])


@functools.lru_cache(maxsize=1 << 14)
def is_closed(shape: Named) -> bool:
    """Return whether all sizes are numbers."""
    return str not in map(type, shape)


class Node:
    """A node: operator and domain, inputs (None if left out), outputs and attributes."""

    __slots__ = ("attrs", "domain", "ins", "name", "op", "outs")

    def __init__(
        self,
        op: str,
        domain: str,
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        attrs: Attributes,
        name: str,
    ) -> None:
        self.op = op
        self.domain = domain
        self.ins = ins
        self.outs = outs
        self.attrs = attrs
        self.name = name


@dataclass(frozen=True, slots=True)
class BodyGraph:
    """A graph as an attribute: its inputs, nodes and outputs."""

    inputs: Sequence[Tensor]
    nodes: Sequence[Node]
    outputs: Sequence[Tensor]
