"""Instances of operators, and the parts that they are declared by: attributes with their values, inputs with their shapes.

Most operators need no sampler of their own. Their declaration lists what an instance has beside its first input, in the order in which it
is drawn, and one generic sampler (`Operator.instance`) draws it:

    Operator("LRN", parts=(Attr("size", (1, 3, 5)), Attr("alpha", (1e-3, 0.1), share=0.4)))
    Operator("PRelu", parts=(Partner(Domain(-1, 2), oneway=True),))
    Operator("InstanceNormalization", parts=(Input(channels, Domain(0.2, 2)), Input(channels), EPSILON))

A part is any function of a draft; these are the usual ones. Whatever may be given as a value may also be a function of the draft, so that
it can hang on what was drawn before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opsieve.gen.spec.builder import Builder, Sizes
from opsieve.gen.spec.domains import ANY, Domain
from opsieve.gen.spec.tensor import Attributes, Tensor


class Instance:
    """What a sampler gives: the inputs of a node (None where one is left out), its attributes, and how many outputs are wanted.

    `outputs` None wants all of them. One is made for every draw: a frozen dataclass would take three times as long.
    """

    __slots__ = ("attributes", "inputs", "outputs")

    def __init__(
        self, inputs: Sequence[Tensor | None], attributes: Attributes | None = None, outputs: int | None = None
    ) -> None:
        self.inputs = inputs
        self.attributes: Attributes = {} if attributes is None else attributes
        self.outputs = outputs


class Draft:
    """An instance while its parts are drawn: `x` is its first input, `axis` the last axis that was drawn, as it is written."""

    __slots__ = ("attrs", "axis", "builder", "inputs", "outputs", "rng")

    def __init__(self, builder: Builder, x: Tensor) -> None:
        self.builder = builder
        self.rng = builder.rng
        self.inputs: list[Tensor | None] = [x]
        self.attrs: Attributes = {}
        self.outputs: int | None = None
        self.axis = 0

    @property
    def x(self) -> Tensor:
        """The first input."""
        first = self.inputs[0]
        assert first is not None
        return first

    def draws(self, share: float | None, skip: float) -> bool:
        """Whether a part that is there at this `share`, or left out at the rate `skip`, is there this time."""
        if share is not None:
            return self.rng.random() < share
        return not skip or self.rng.random() >= skip

    def instance(self) -> Instance:
        """What was drawn."""
        return Instance(self.inputs, self.attrs, self.outputs)


Part = Callable[[Draft], None]
Shaped = Callable[[Draft], Sizes]


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute: one of some values, a number between two ends, or what a function of the draft gives.

    It is given at the rate `share` (None: always), or left out at the rate `skip`.
    """

    name: str
    values: Sequence[Any] | Callable[[Draft], Any]
    share: float | None = None
    skip: float = 0.0

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        if draft.draws(self.share, self.skip):
            draft.attrs[self.name] = self.values(draft) if callable(self.values) else draft.rng.choice(self.values)


def flag(name: str, share: float | None = None) -> Attr:
    """An attribute that is 0 or 1."""
    return Attr(name, (0, 1), share)


def between(low: int, high: int) -> Callable[[Draft], int]:
    """A number from `low` to `high`, both included."""
    return lambda draft: draft.rng.between(low, high)


def axis_of(builder: Builder, x: Tensor) -> int:
    """An axis of a tensor with at least one, now and then counted from the back."""
    axis = builder.rng.below(x.rank)
    return axis - x.rank if builder.rng.random() < builder.style.rates.negative_axis else axis


def signed(builder: Builder, axis: int, rank: int) -> int:
    """An axis as it is written: now and then counted from the back."""
    return axis - rank if builder.rng.random() < builder.style.rates.negative_axis else axis


def viewed(x: Tensor, shape: Sizes) -> Tensor:
    """The same tensor with other terms for its sizes, which the caller asks to be equal."""
    return Tensor(x.name, x.dtype, shape, x.low, x.high, x.values, x.leaf)


def drawn_axis(draft: Draft) -> int:
    """An axis of the first input, now and then counted from the back."""
    draft.axis = axis_of(draft.builder, draft.x)
    return draft.axis


@dataclass(frozen=True, slots=True)
class AxisAttr:
    """The attribute `axis`, which is drawn in any case: where it is the default it is given at the rate `share` only."""

    default: int | None = None
    share: float = 0.5

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        axis = drawn_axis(draft)
        if axis != self.default or draft.rng.random() < self.share:
            draft.attrs["axis"] = axis


@dataclass(frozen=True, slots=True)
class Input:
    """Another input: an existing tensor of a shape or a new one, of the first input's dtype or of another (one of several)."""

    shape: Shaped
    domain: Domain | Callable[[Draft], Domain] = ANY
    dtype: str | Sequence[str] = ""
    share: float | None = None

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        if not draft.draws(self.share, 0.0):
            return
        dtype = self.dtype if isinstance(self.dtype, str) else draft.rng.choice(self.dtype)
        domain = self.domain(draft) if callable(self.domain) else self.domain
        draft.inputs.append(draft.builder.match(dtype or draft.x.dtype, self.shape(draft), domain))


@dataclass(frozen=True, slots=True)
class Partner:
    """Another input that broadcasts with the first, to its very shape if `oneway`; they change places at the rate `1 - kept`."""

    domain: Domain | Callable[[Draft], Domain] = ANY
    oneway: bool = False
    kept: float = 1.0

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        domain = self.domain(draft) if callable(self.domain) else self.domain
        other = draft.builder.partner(draft.x, domain, oneway=self.oneway)
        draft.inputs.append(other)
        if self.kept < 1 and draft.rng.random() >= self.kept:
            draft.inputs.reverse()


@dataclass(frozen=True, slots=True)
class Numbers:
    """An input of numbers that the operator looks at: axes, sizes, repeats. A scalar if `scalar`, else a vector.

    With `first` it takes the place of the first input.
    """

    values: Callable[[Draft], Any]
    dtype: str | Sequence[str] = "int64"
    scalar: bool = False
    skip: float = 0.0
    first: bool = False

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        if not draft.draws(None, self.skip):
            return
        values = self.values(draft)
        dtype = self.dtype if isinstance(self.dtype, str) else draft.rng.choice(self.dtype)
        made = draft.builder.ints(
            [values] if self.scalar else values, dtype or draft.x.dtype, () if self.scalar else None
        )
        if self.first:
            draft.inputs = []
        draft.inputs.append(made)


@dataclass(frozen=True, slots=True)
class OutputCount:
    """How many outputs are wanted: from `low` to `high`, or only the first where `high` is left out."""

    low: int = 1
    high: int | None = None

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        draft.outputs = self.low if self.high is None else draft.rng.between(self.low, self.high)


def whole(draft: Draft) -> Sizes:
    """The shape of the first input."""
    return draft.x.shape


def channels(draft: Draft) -> Sizes:
    """One number for each channel: the second axis of the first input."""
    return (draft.x.shape[1],)


def last(draft: Draft) -> Sizes:
    """One number for each place of the first input's last axis."""
    return tuple(draft.x.shape[-1:])


def from_axis(draft: Draft) -> Sizes:
    """The sizes of the first input from the drawn axis on."""
    return tuple(draft.x.shape[draft.axis :])
