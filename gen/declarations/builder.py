"""The interface through which samplers use a program under construction, and the rates at which they decide.

Two classes implement it: one whose sizes are numbers (gen/graph/graph_builder.py), and one whose sizes are
symbolic (gen/strategies/nnsmith/symbolic_builder.py). A sampler that uses only this interface serves both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.symbolic_arith import Size, Truth
from opsieve.gen.declarations.tensor import ANY, Domain, Tensor


@dataclass(frozen=True, slots=True)
class SamplerRates:
    """Rates of optional choices, named by the choice. The same name in two operators is the same decision."""

    # Attributes and inputs that may be left out; `default`: an attribute is written though it has its
    # default.
    attribute: float = 0.5
    unlikely_attribute: float = 0.4
    rare_attribute: float = 0.3
    default: float = 0.5
    likely_input: float = 0.6
    optional_input: float = 0.5
    rare_input: float = 0.3

    # Axes and positions, counted from the back or left to the default.
    negative_axis: float = 0.3
    negative_cache_axis: float = 0.5
    negative_start: float = 0.25
    negative_end: float = 0.25
    # A slice ends beyond the last element, or is counted from the end.
    end_beyond: float = 0.25
    all_axes: float = 0.12
    all_axes_named: float = 0.2
    # Only some axes are padded and named.
    padded_axes: float = 0.3
    negative_pad: float = 0.2
    axis_left_out: float = 0.3

    # Shapes and orders.
    to_scalar: float = 0.2
    # A size of a shape is -1.
    inferred_size: float = 0.4
    # A size of a shape is 0.
    copied_size: float = 0.2
    copied_open_size: float = 0.3
    new_axis: float = 0.4
    # Every axis of size 1 is squeezed, without naming one.
    all_ones: float = 0.2
    default_order: float = 0.15

    # Windows: convolutions and pools.
    strided: float = 0.6
    dilated: float = 0.3
    dilated_transposed: float = 0.2
    auto_pad: float = 0.2
    padded: float = 0.5
    # The same rate with open sizes.
    open_padded: float = 0.6
    uneven_pads: float = 0.4
    grouped: float = 0.4
    depthwise: float = 0.5

    # Products and normalisations.
    batched_product: float = 0.6
    stretched_batch: float = 0.2
    vector_product: float = 0.1
    no_statistics: float = 0.8

    # Quantised operators.
    whole_tensor: float = 0.5
    blocked: float = 0.3

    # Bodies and sequences.
    # Otherwise a branch only passes a value through.
    branch_grown: float = 0.7
    handed_on: float = 0.5
    # A body gets a planted structure, if the strategy has some.
    planted_body: float = 0.7
    loop_condition: float = 0.4
    # A loop without stacked results has no turn.
    no_turn: float = 0.2
    early_end: float = 0.3
    second_scan: float = 0.3
    other_scan_axis: float = 0.5
    into_empty: float = 0.3
    no_position: float = 0.4


Sizes = tuple[Size, ...]
# A size that a sampler leaves open
FREE: Final = -1
# The kinds of leaves.
KINDS: Final = ("input", "initializer", "constant")


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on the cost of a program: elements of one tensor, elements of all tensors, multiply-adds of all
    nodes.
    """

    tensor: int = 2048
    elements: int = 1 << 17
    work: int = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Style:
    """How programs of a strategy look: rates between 0 and 1, and the dtypes they prefer.

    Instances are compared by identity, for caches.

    General rates. `pick`: an input is an existing tensor (Isra's picking rate). `ranged`: intervals of values
    are respected; otherwise a value search has to find inputs.

    Rates of structure. `merged`: draw an operator that can merge several tensors; `alone`: the same if no
    recent result broadcasts with the last one; `suited`: draw another operator if the first input would need
    adapters. `chain`: the first input is a recent result, made to fit: the one with most ancestors, or at the
    rate `hub` the one with most readers; `unread`: otherwise a tensor without readers, if there is one;
    `adapt`: otherwise any tensor, made to fit. `diamond`: a further input that broadcasts is a recent result,
    at the rate `crowd` the one with most readers; `fit`: otherwise an existing tensor, made to fit; `meet`:
    that tensor comes from another piece of the program; `frugal`: tensors that take several adapters are left
    out. `joined`: the pieces that are left at the end are joined. `middle`: a result that has readers is an
    output, too; `dead`: one result without readers is not an output.

    Rates of types and shapes. `palette`: the dtypes of leaves, weighted; those that an operator does not
    accept are skipped. `loyal`: a dtype comes from the palette if possible. `same_shape`: a partner has the
    exact shape of its operand; `itself`: it may then be that operand; `divided`: the partner of a comparison
    is an extreme of the operand, so that both answers occur. `suffix`: a new partner has only some of the
    last axes; `stretched`: some of its sizes are 1, at the rate `ones` each. `known_shape`: a new leaf has
    the shape of an existing tensor; `ranks`: otherwise its rank is one of these.

    Rates of values. `computed`: nodes compute a parameter (a shape, axes, a bound) mostly from the sizes of a
    tensor; `fed`: an input holds it instead. `shared`: a constant reuses an equal one; `folded`: a new
    constant is a Constant node rather than an initializer. The leaves of one program, each at the rate
    `round`, hold few different numbers (`coarse`), the ends of their intervals and zeros (`ends`), or one
    number each (`equal`). `rates`: how often samplers use each optional choice.
    """

    pick: float = 0.97
    ranged: bool = True
    merged: float = 0.8
    alone: float = 0.35
    suited: float = 0.8
    chain: float = 1.0
    unread: float = 0.6
    adapt: float = 0.6
    hub: float = 0.02
    crowd: float = 0.3
    fit: float = 0.5
    diamond: float = 0.97
    meet: float = 0.9
    frugal: float = 0.9
    joined: float = 0.995
    middle: float = 0.04
    dead: float = 0.1
    palette: tuple[str, ...] = ("float32",)
    loyal: float = 0.9
    same_shape: float = 0.6
    itself: float = 0.05
    divided: float = 0.6
    suffix: float = 0.6
    stretched: float = 0.4
    ones: float = 0.4
    known_shape: float = 0.4
    ranks: tuple[int, ...] = (0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5)
    computed: float = 0.6
    fed: float = 0.08
    shared: float = 0.5
    folded: float = 0.25
    coarse: float = 0.3
    ends: float = 0.1
    equal: float = 0.02
    round: float = 0.8
    rates: SamplerRates = field(default_factory=SamplerRates)


class Builder(Protocol):
    """A program under construction. Each request is answered at once: with an existing tensor if one fits,
    else with a new leaf.
    """

    rng: Rng
    opset: int
    style: Style
    budget: Budget

    def leaf(self, dtype: str, shape: Sizes, domain: Domain = ANY, kinds: tuple[str, ...] = KINDS) -> Tensor:
        """Make a new leaf of one of the kinds, with elements in a domain."""

    def weight(self, dtype: str, shape: Sizes, domain: Domain = ANY) -> Tensor:
        """Make a new leaf where models have parameters."""

    def ints(self, values: Sequence[Size], dtype: str = "int64", shape: Sizes | None = None) -> Tensor:
        """Return a tensor with exactly these elements; a vector unless a shape is given."""

    def constant(self, values: Sequence[Size], dtype: str = "int64", shape: Sizes | None = None) -> Tensor:
        """Return a leaf with exactly these elements; a vector unless a shape is given."""

    def match(self, dtype: str, shape: Sizes, domain: Domain = ANY) -> Tensor:
        """Return a tensor of this dtype and shape inside the domain; FREE fits any size."""

    def partner(self, x: Tensor, domain: Domain = ANY, dtype: str = "", oneway: bool = False) -> Tensor:
        """Return a tensor that broadcasts with `x` (to the shape of `x` if `oneway`), of its dtype or the
        given one.
        """

    def fits(self, shape: Sizes, other: Sizes, oneway: bool) -> bool:
        """Return whether two shapes broadcast to a shape within the budget; to the first one if `oneway`."""

    def side(self) -> Size:
        """Return a size of a dimension."""

    def shape(self, low: int = 0, high: int = 5) -> Sizes:
        """Return a shape of `low` to `high` dimensions that fits the budget."""

    def takes(self, name: str, variable: str) -> frozenset[str]:
        """Return the dtypes that a type variable of an operator of ONNX's own stands for at this program's
        opset.
        """

    def choose_dtype(self, allowed: frozenset[str]) -> str:
        """Choose an allowed dtype of the palette; sometimes, or without one, any allowed dtype."""


class OpenBuilder(Builder, Protocol):
    """A builder whose sizes are open. What must hold among them is appended to `relations` where `requires`
    does not say it.

    Factors (strides, dilations, groups, repeats) are to be drawn, so that all relations are linear and checks
    take a fraction of a millisecond. Of shapes that are inputs, elements in `copied` are written as 0 (that
    of the same axis), those in `inferred` as -1 (what is left).
    """

    relations: list[Truth]
    copied: set[tuple[str, int]]
    inferred: set[tuple[str, int]]

    def number(self, low: int, high: int = 64, own: tuple[int, ...] = (), spread: bool = True) -> Size:
        """Return an open number from `low` to `high`; `own` values are drawn as often as whole ranges, one
        not `spread` is left to the solver.
        """

    def pin_number(self, size: Size) -> int:
        """Draw a number and require the size to equal it, which keeps products linear."""
