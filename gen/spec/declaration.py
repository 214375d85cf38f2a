"""What one operator is: where it may stand, what comes out of it, how an instance is made, which values are safe.

A declaration is data and a few plain functions over "int-like" sizes (gen/spec/symbolic_arith.py). Which element types an operator
takes at which opset, how many inputs it has and which are optional is read from ONNX's own schemas (gen/spec/schema.py), so a
declaration never repeats it.

    infer(ins, attrs)     -> [(dtype, shape), ...]   types of the outputs; sizes may be z3 terms; None where one is left out
    requires(ins, attrs)  -> relations               that a valid instance satisfies, beyond what the schema says
    sample(builder, x)     -> (ins, attrs) | None     an instance whose first input is `x`, valid by construction
    bounds(ins, attrs)    -> (low, high) | [...]     an interval for the elements of the first output, or of each
    safe                  -> Domain per input        where results are defined and well-conditioned
    cost(ins, attrs, outs)-> multiply-adds

`ins` are tensors (or None where an optional input is left out). Sources: the ONNX operator pages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.symbolic_arith import Size, Truth

ANY = Domain()
Attributes = dict[str, Any]  # int, float, str, list of one of these, numpy array (a tensor), Body (a graph)
Typed = tuple[str, tuple[Size, ...]]  # a size may also be a name: one that only a run tells
OUTPUTS = (
    "#outputs"  # in what `sample` gives beside the attributes: how many of the outputs are wanted (all, if absent)
)
Bounds = tuple[float, float]
_TINY = 1e-6  # as good as zero: ends of intervals are rounded (a sine of 0 is none), and float16 has nothing below 6e-8


class Tensor:
    """A value of a program: its name, its type, an interval that holds all its elements, and how often it is read.

    `values` are its elements where an operator needs to know them (a shape, axes, pads), row by row; else None. `dtype` may
    also be `sequence(float32)` or `optional(float32)`; then `shape` is that of the elements. `leaf` is "" for the output of a
    node, else `input`, `initializer` or `constant` (a Constant node).
    """

    __slots__ = ("dtype", "high", "leaf", "low", "name", "reads", "shape", "values")

    def __init__(
        self,
        name: str,
        dtype: str,
        shape: tuple[Size, ...],
        low: float = 0.0,
        high: float = 0.0,
        values: tuple[float, ...] | None = None,
        leaf: str = "",
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.low = low
        self.high = high
        self.values = values
        self.leaf = leaf
        self.reads = 0

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> float:
        """The largest magnitude an element can have."""
        return max(-self.low, self.high)

    def within(self, domain: Domain) -> bool:
        """Whether every element lies in a domain."""
        return (
            domain.low <= self.low
            and self.high <= domain.high
            and not (domain.nonzero and self.low < _TINY and self.high > -_TINY)
        )

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} in {self.low:g}..{self.high:g}"


Ins = Sequence[Tensor]  # an optional input that is left out is None; rules that look at one say so
# The first argument is the graph that the node joins (gen/build/graph_builder.py), which stands on a floor above.
Sample = Callable[[Any, Tensor], tuple[Sequence[Tensor | None], Attributes] | None]


def elementwise(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    """The rule of most operators: one output, of the type of the first input."""
    return [(ins[0].dtype, ins[0].shape)]


def hull(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """The interval of what only moves elements: that of the first input."""
    return (ins[0].low, ins[0].high)


def nothing(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """No relation beyond the schema's."""
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """The declaration of one operator. `name` and `domain` are ONNX's; the module docstring tells the functions.

    `dtypes` narrows the element types of the first input that the schema allows (() leaves them), `ranks` are those of the
    first input, both included. `family` groups operators for statistics. `safe` holds a domain by input position; positions
    without one take anything. `relation` is for domains that tie inputs together: expressions over the inputs (intervals or
    torch tensors) that must not be negative, such as Pow's. `since` is the first opset that the declaration describes.
    """

    name: str
    sample: Sample
    infer: Callable[[Ins, Mapping[str, Any]], Sequence[Typed | None]] = elementwise
    requires: Callable[[Ins, Mapping[str, Any]], Sequence[Truth]] = nothing
    bounds: Callable[[Ins, Mapping[str, Any]], Bounds | list[Bounds]] = hull
    safe: tuple[Domain, ...] = ()
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, int] = (0, 5)
    domain: str = ""
    family: str = "other"
    since: int = 1
    cost: Callable[[Ins, Mapping[str, Any], Sequence[Typed]], int] | None = None
    relation: Callable[..., Sequence[Any]] | None = None
