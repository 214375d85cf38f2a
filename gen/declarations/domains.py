"""Sets of numbers, and rules that find the set an input of a node has to come from.

A rule serves inputs that nobody gave: an index lies inside its axis, a shape is one that the data can take.
Each operator's declaration has its own (`Operator.usual`); here is what they have in common. Sources: the
ONNX operator documentation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from opsieve.gen.declarations.symbolic_arith import Size

Shape = tuple[int, ...]
Number = float | Size  # an int stays one; it may be open as a size may


@dataclass(frozen=True, slots=True)
class Domain:
    """Numbers from `low` to `high`, both included, without 0 if `nonzero`; or, if given, `exact` numbers in
    this order.

    `numeral` asks of a string that it reads as a number. An end may be an open size while sizes are open
    (gen/strategies/nnsmith).
    """

    low: Number = -math.inf
    high: Number = math.inf
    nonzero: bool = False
    exact: tuple[float, ...] | None = None
    numeral: bool = False

    def meet(self, other: "Domain") -> "Domain":
        """What both allow; what they cannot agree on is taken from `self`."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low > high:
            low, high = self.low, self.high
        exact = other.exact if self.exact is None else self.exact
        return Domain(low, high, self.nonzero or other.nonzero, exact, self.numeral or other.numeral)

    def unordered(self) -> "Domain":
        """The same numbers in any order."""
        if not self.exact:
            return Domain(self.low, self.high, self.nonzero, None, self.numeral)
        return Domain(min(self.exact), max(self.exact), self.nonzero)


@dataclass(frozen=True, slots=True)
class Site:
    """A use of a value: the node, the place among its inputs, and what is known of the shapes and constants
    around it.
    """

    node: onnx.NodeProto
    position: int
    shapes: Mapping[str, Shape | None]
    constants: Mapping[str, np.ndarray[Any, Any]]

    def shape(self, position: int) -> Shape | None:
        """The shape of the node's input at `position`, None when it is unknown or not there."""
        return self.shapes.get(self.node.input[position]) if position < len(self.node.input) else None

    def output(self, position: int = 0) -> Shape | None:
        """The shape of an output, None when it is unknown."""
        return self.shapes.get(self.node.output[position]) if position < len(self.node.output) else None

    def constant(self, position: int) -> list[int] | None:
        """The integers of an input that is constant."""
        name = self.node.input[position] if position < len(self.node.input) else ""
        return [int(item) for item in self.constants[name].ravel()] if name in self.constants else None

    def attribute(self, name: str, default: int) -> int:
        """An integer attribute."""
        return next((item.i for item in self.node.attribute if item.name == name), default)

    @property
    def length(self) -> int:
        """How many elements the value itself has; 1 when that is unknown."""
        shape = self.shape(self.position)
        return 1 if shape is None else math.prod(shape)


Rule = Callable[[Site], Domain]
ANY: Final = Domain()


def exact(values: Sequence[float]) -> Domain:
    """These numbers in this order."""
    return Domain(exact=tuple(values))


def below(size: int | None) -> Domain:
    """Positions in an axis of this size; 0 where it is not known."""
    return Domain(0, max(size - 1, 0)) if size is not None else Domain(0, 0)


def size_of(shape: Shape | None, axis: int) -> int | None:
    """The size of an axis, None when it is unknown or not there."""
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def axis_index(default: int) -> Rule:
    """Positions in the axis of the first input that the attribute `axis` names."""
    return lambda site: below(size_of(site.shape(0), site.attribute("axis", default)))


def dim_index(position: int, axis: int) -> Rule:
    """Positions in one axis of an input."""
    return lambda site: below(size_of(site.shape(position), axis))


def like_output(fallback: Domain) -> Rule:
    """The sizes of the first output, where there are as many as elements."""

    def rule(site: Site) -> Domain:
        out = site.output()
        return exact(out) if out is not None and len(out) == site.length else fallback

    return rule


def lengths(attribute: str, default: int) -> Rule:
    """How many steps each sequence of a batch has: at most those of the first input's axis that the attribute
    names.
    """
    return lambda site: Domain(1, max(size_of(site.shape(0), site.attribute(attribute, default)) or 1, 1))


def every_axis(site: Site) -> Domain:
    """As many axes as there are elements, from the first on."""
    return exact(range(site.length))


POSITIVE: Final = Domain(0.01, 2)
ZERO: Final = Domain(0, 0)
