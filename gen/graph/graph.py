"""What a program consists of while it is made: nodes, and graphs as attributes of nodes."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from opsieve.gen.declarations.tensor import Attributes, Tensor

Shape = tuple[int, ...]
Named = tuple[int | str, ...]  # a shape with names of sizes in it


@functools.lru_cache(maxsize=1 << 14)
def volume(shape: Named) -> int:
    """How many elements a shape has, as far as its sizes are numbers. Kept, as the same shapes come again and
    again.
    """
    return math.prod([side for side in shape if type(side) is int])


@functools.lru_cache(maxsize=1 << 14)
def is_closed(shape: Named) -> bool:
    """Whether all sizes are numbers."""
    return str not in map(type, shape)


class Node:
    """One node: an operator's name and domain, inputs (None where left out), outputs, attributes."""

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
    """A graph as an attribute: the inputs it is called with, its nodes, what it gives."""

    inputs: Sequence[Tensor]
    nodes: Sequence[Node]
    outputs: Sequence[Tensor]
