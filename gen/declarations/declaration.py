"""The declaration of one operator: where it may stand, its output types, how an instance is made, safe
values.

A declaration is data and a few plain functions over "int-like" sizes (gen/declarations/symbolic_arith.py).
Which element types an operator takes at which opset, how many inputs it has and which are optional is read
from ONNX's own schemas (gen/declarations/catalogue.py), so a declaration never repeats it.

    infer(ins, attrs)       [(dtype, shape), ...], the types of the outputs; sizes may be terms, None is left
    out requires(ins, attrs)    relations that a valid instance satisfies, beyond what the schema says
    parts                   what an instance has beside its first input, in the order of drawing
    sample(builder, x)      where parts do not do: a valid Instance whose first input is `x`, or None
    symbolic                whether that also runs on open sizes (nnsmith), or the sampler that does
    bounds(ins, attrs)      (low, high) | [...], an interval for the elements of the first output, or of each
    safe                    a Domain per input, where results are defined and well-conditioned
    cost(ins, attrs, outs)  multiply-adds
    usual                   Domain or rule per input: what is drawn for a graph input without a value
    moves                   which inputs' elements pass on to the outputs as they are
    undefined               which results ONNX leaves open, from the values that a run met (properties.py)
    rounding                what becomes of a rounding error in it (properties.py)
    unmodelled(ins, attrs)  whether ONNX allows this instance although the declaration does not describe it
    size_rule, shape_input, per_axis    sizes that values of inputs or attributes repeat (SizeRule)

`ins` are tensors (or None where an optional input is left out). Sources: the ONNX operator pages.
"""

import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsieve.gen.declarations.builder import Builder, OpenBuilder
from opsieve.gen.declarations.instance import Draft, Instance, Part, Partner
from opsieve.gen.declarations.properties import OpenRule, Rounding, RoundingRule
from opsieve.gen.declarations.symbolic_arith import Size, Truth
from opsieve.gen.declarations.tensor import (
    ANY,
    USUAL,
    Bounds,
    Domain,
    Ins,
    Rule,
    Site,
    Tensor,
    Typed,
    leaf_range,
)

Sampler = Callable[[Builder, Tensor], Instance | None]


def elementwise(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    """Return one output of the type of the first input, as most operators have."""
    return [(ins[0].dtype, ins[0].shape)]


def hull(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """Return the interval of an operator that only moves elements: that of its first input."""
    return (ins[0].low, ins[0].high)


def magnitude(
    largest: Callable[[Ins, Mapping[str, Any]], Size],
) -> Callable[[Ins, Mapping[str, Any]], Bounds]:
    """Make a rule for results of either sign whose magnitude is at most `largest(ins, attrs)`."""

    def bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
        size = largest(ins, attrs)
        return -size, size

    return bounds


def nothing(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """No relation beyond the schema's."""
    return ()


def axis_inside(default: int, beyond: int = 0) -> Callable[[Ins, Mapping[str, Any]], list[Truth]]:
    """Relations of an operator along one axis: it is one of the first input's, or up to `beyond` behind the
    last.
    """

    def requires(ins: Ins, attrs: Mapping[str, Any]) -> list[Truth]:
        rank, axis = len(ins[0].shape), attrs.get("axis", default)
        return [-rank <= axis, axis < rank + beyond]

    return requires


def is_described(ins: Ins, attrs: Mapping[str, Any]) -> bool:
    """Return False: the declaration describes every instance."""
    return False


def has_attribute(*names: str) -> Callable[[Ins, Mapping[str, Any]], bool]:
    """Make a rule for instances that have one of these attributes."""
    return lambda ins, attrs: any(name in attrs for name in names)


class Moves(enum.Enum):
    """The inputs whose elements the outputs hold unchanged."""

    NONE = 0
    # Elements of the first input, only some of them or in another order.
    FIRST = 1
    # All elements of the first input in their order.
    IN_ORDER = 2
    # Elements of all inputs.
    EVERY = 3


class RankEnds(enum.Flag):
    """Which ends of an operator's `ranks` its page sets, or the axis that it names; the others only keep
    programs small.
    """

    NONE = 0
    LEAST = 1
    LARGEST = 2
    BOTH = 3


class SizeRule(enum.Enum):
    """How sizes of an operator's outputs, or its attributes, follow from values that shapes do not show.
    Sources: the ONNX operator pages.
    """

    NONE = 0
    # Sizes of the first input in order, some multiplied together or split: Reshape, Squeeze.
    REGROUPED = 1
    # Sizes of the first input or larger ones, aligned at the last axis: Expand.
    GROWN = 2
    # Each multiplied by a factor, or taken from an input: Resize.
    RESCALED = 3
    # Between bounds given by inputs of equal length: Slice.
    CUT = 4
    # Sizes that an input lists: ConstantOfShape.
    FILLED = 5
    # Parts of one axis of the first input: Split.
    PARTED = 6
    # The sum of one axis over all inputs: Concat.
    JOINED = 7
    # The number of indices, which point into an axis of the first input: Gather.
    INDEXED = 8
    # Attributes repeat sizes of the second input, a filter for each group of channels: Conv
    FILTERED = 9
    # The same, where groups part the filter's first axis: ConvTranspose
    FILTERED_BACK = 10


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """The declaration of one operator.

    `name` and `domain` are ONNX's; the module docstring describes the functions. `dtypes` narrows the element
    types of the first input that the schema allows (() keeps all of them), `ranks` are the lowest and highest
    rank of the first input. `family` groups operators for statistics. `safe` holds a domain by input
    position; positions without one accept anything. `relation` is for domains that tie inputs together:
    expressions over the inputs (intervals or torch tensors) that must not be negative, such as Pow's. `since`
    is the first opset that the declaration describes. An operator without `parts` and `sample` has one input
    and no attributes. One with a reason in `excluded` is never generated; its declaration serves models that
    users bring. `same_shape` states that the first output has the shape of the first input although `infer`
    is a function of its own.

    `scalars` are the inputs that are scalars, `scales` those that are scales of a quantisation, `shape_input`
    the one that lists the sizes of the output, `per_axis` those with a number for each axis. `rigid`:
    constants beyond the first input depend on each other (two bounds in order), so a search of values leaves
    them alone. `converts`: it only converts values to another type. `sizes_unsaid`: the relations do not
    cover all sizes of further inputs. `ranks_spelled`: an attribute spells the ranks of all inputs. `merges`:
    its further inputs are data like the first. `random`: two runs may give different numbers. `commutes`: its
    first two inputs can change places, and the result is the same bit for bit. `varied`: it subtracts the
    square of the mean from the mean of squares, so leaves that hold one number each can make NaN of it.
    `sizes_only`: its result follows from the sizes of its inputs.
    """

    name: str
    sample: Sampler | None = None
    parts: tuple[Part, ...] = ()
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
    symbolic: Callable[[OpenBuilder, Tensor], Instance | None] | bool = False
    usual: Mapping[int, Domain | Rule] = field(default_factory=dict)
    moves: Moves = Moves.NONE
    same_shape: bool = False
    undefined: tuple[OpenRule, ...] = ()
    excluded: str = ""
    rank_ends: RankEnds = RankEnds.NONE
    unmodelled: Callable[[Ins, Mapping[str, Any]], bool] = is_described
    size_rule: SizeRule = SizeRule.NONE
    shape_input: int | None = None
    per_axis: tuple[int, ...] = ()
    scalars: tuple[int, ...] = ()
    scales: tuple[int, ...] = ()
    rigid: bool = False
    converts: bool = False
    sizes_unsaid: bool = False
    ranks_spelled: bool = False
    merges: bool = False
    random: bool = False
    rounding: Rounding | RoundingRule = Rounding.NONE
    commutes: bool = False
    varied: bool = False
    sizes_only: bool = False

    def instance(
        self, builder: Builder, x: Tensor, open_builder: OpenBuilder | None = None
    ) -> Instance | None:
        """Draw an instance whose first input is `x` or a substitute for it; returns `None` if this draw
        failed.

        `open_builder` is the builder where sizes are open.
        """
        if self.sample is not None:
            return self.sample(builder, x)
        if not self.parts:
            return Instance([x])
        draft = Draft(builder, x, open_builder)
        for part in self.parts:
            part(draft)
        return draft.instance()

    @property
    def keeps_shape(self) -> bool:
        """Whether the first output has the shape of the first input, whatever the attributes."""
        return not self.excluded and (self.same_shape or self.infer is elementwise)

    @property
    def pairs(self) -> bool:
        """Whether it brings several tensors together: a further input broadcasts with the first, or it
        merges.
        """
        return _pairs(self)

    def open_instance(self, builder: OpenBuilder, x: Tensor) -> Instance | None:
        """Draw an instance with symbolic sizes; returns `None` if this draw failed."""
        return self.symbolic(builder, x) if callable(self.symbolic) else self.instance(builder, x, builder)

    def usual_at(self, site: Site) -> Domain:
        """Return the values to draw for a graph input at this position of a node; `ANY` if they are
        unconstrained.

        Where the declaration has no `usual` for the place: the window in which leaves of generated programs
        lie there, or the safe domain itself where that has no ends.
        """
        found = self.usual.get(site.position)
        if found is not None:
            return found if isinstance(found, Domain) else found(site)
        safe = self.safe[site.position] if site.position < len(self.safe) else ANY
        low, high = leaf_range("float32", safe)
        if (low, high) == USUAL["float32"]:
            return ANY
        return safe if math.isinf(safe.low) or math.isinf(safe.high) else Domain(low, high, safe.nonzero)

    def asks(self, position: int | None = None) -> bool:
        """Return whether the values of an input, or of any, are constrained."""
        if position is None:
            return any(self.asks(place) for place in {*self.usual, *range(len(self.safe))})
        found = self.usual.get(position)
        if found is None:
            return (
                position < len(self.safe) and leaf_range("float32", self.safe[position]) != USUAL["float32"]
            )
        return not (isinstance(found, Domain) and found.numeral)


@functools.cache
def _pairs(operator: Operator) -> bool:
    return operator.merges or any(isinstance(part, Partner) for part in operator.parts)
