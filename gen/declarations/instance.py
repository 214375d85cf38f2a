"""Instances of operators, and the parts that declarations combine: attributes with their values, inputs with
their shapes.

Most operators need no sampler of their own. Their declaration lists what an instance has beside its first
input, in the order in which it is drawn, and one generic sampler (`Operator.instance`) draws it:

    Operator("LRN", parts=(Attr("size", (1, 3, 5)), Attr("alpha", (1e-3, 0.1), share=0.4)))
    Operator("PRelu", parts=(Partner(Domain(-1, 2), oneway=True),))
    Operator("InstanceNormalization", parts=(Input(channels, Domain(0.2, 2)), Input(channels), EPSILON))
    Operator("Attention", parts=(First("batch heads queries size"), Count("keys", between(1, 6)), Input("batch
    heads keys size"), ...))

A part is any function of a draft; these are the usual ones. Whatever may be given as a value may also be a
function of the draft, so that it can hang on what was drawn before it. Shapes may be written as text
(gen/declarations/shape_patterns.py), whose names stand for sizes of the first input, for numbers that were
drawn (`Count`), for attributes, and for what an input that was found has there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opsieve.gen.declarations.builder import Builder, OpenBuilder, Sizes
from opsieve.gen.declarations.shape_patterns import Sized, name_sizes, shape_of
from opsieve.gen.declarations.symbolic_arith import Size, Truth
from opsieve.gen.declarations.tensor import ANY, Attributes, Domain, Tensor, is_float


class Instance:
    """The result of a sampler: the inputs of a node (None for an omitted one), its attributes, and the number
    of outputs.

    `outputs` None wants all of them. One is made for every draw: a frozen dataclass would take three times as
    long.
    """

    __slots__ = ("attributes", "inputs", "outputs")

    def __init__(
        self,
        inputs: Sequence[Tensor | None],
        attributes: Attributes | None = None,
        outputs: int | None = None,
    ) -> None:
        self.inputs = inputs
        self.attributes: Attributes = {} if attributes is None else attributes
        self.outputs = outputs


class Draft:
    """An instance while its parts are drawn: `x` is its first input, `axis` the last axis that was drawn, as
    it is written.

    `sizes` is what names of shapes stand for. `open` is the builder where sizes are open, else None.
    """

    __slots__ = ("attrs", "axis", "builder", "inputs", "open", "outputs", "rng", "sizes", "x")

    def __init__(self, builder: Builder, x: Tensor, open_builder: OpenBuilder | None = None) -> None:
        self.builder = builder
        self.open = open_builder
        self.rng = builder.rng
        self.x = x
        self.inputs: list[Tensor | None] = [x]
        self.attrs: Attributes = {}
        self.sizes: Sized = {}
        self.outputs: int | None = None
        self.axis = 0

    def __getitem__(self, name: str) -> Any:
        """Look up a size, a drawn number or an attribute by name."""
        return self.sizes[name] if name in self.sizes else self.attrs[name]

    @property
    def opset(self) -> int:
        """The opset of the program."""
        return self.builder.opset

    @property
    def side(self) -> Size:
        """The size of the first input along the axis that was drawn last."""
        return self.x.shape[self.axis]

    def shape(self, asked: "Shaped | str") -> Sizes:
        """Return the shape that a part asks for."""
        wanted = asked if isinstance(asked, str) else asked(self)
        return shape_of(wanted, self.sizes, self.attrs) if isinstance(wanted, str) else wanted

    def number(self, low: int, high: Size, widest: int = 0) -> Size:
        """Draw a number from `low` to `high`; with open sizes an open number up to `widest`, if given."""
        return self.rng.between(low, high) if self.open is None else self.open.number(low, widest or high)

    def holds(self, *truths: Truth) -> bool:
        """Return whether relations hold; with open sizes they are required, and the answer is True."""
        if self.open is None:
            return all(truths)
        self.open.relations += truths
        return True

    def begin(self, x: Tensor) -> None:
        """Replace the first input by another tensor."""
        self.x = x
        self.inputs = [x]

    def draws(self, share: float | None) -> bool:
        """Draw whether a part with this rate (None: always) is present."""
        return share is None or self.rng.random() < share

    def instance(self) -> Instance:
        """Return the draft as an instance, without omitted inputs at the end."""
        inputs = self.inputs
        # ONNX leaves out optional inputs at the end; only those before another input have an empty name.
        while inputs[-1] is None:
            inputs.pop()
        return Instance(inputs, self.attrs, self.outputs)


Part = Callable[[Draft], None]
Shaped = Callable[[Draft], Sizes | str]


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute: one of some values, a number between two bounds, or the result of a function of the
    draft.

    It is given at the rate `share` (None: always).
    """

    name: str
    values: Sequence[Any] | Callable[[Draft], Any]
    share: float | None = None

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        if self.share is None or draft.rng.random() < self.share:
            draft.attrs[self.name] = (
                self.values(draft) if callable(self.values) else draft.rng.choice(self.values)
            )


def flag(name: str, share: float | None = None) -> Attr:
    """Make an attribute that is 0 or 1."""
    return Attr(name, (0, 1), share)


def between(low: int, high: int) -> Callable[[Draft], int]:
    """Make a rule that draws a number from `low` to `high`, both included."""
    return lambda draft: draft.rng.between(low, high)


def look_up(name: str) -> Callable[[Draft], Any]:
    """Make a rule that looks up a name in the draft."""
    return lambda draft: draft[name]


def sign_axis(builder: Builder, axis: int, rank: int) -> int:
    """Return an axis as it is written: sometimes counted from the back."""
    return axis - rank if builder.rng.random() < builder.style.rates.negative_axis else axis


def with_sizes(x: Tensor, shape: Sizes) -> Tensor:
    """Return the same tensor with other terms for its sizes; the caller requires them to be equal."""
    return Tensor(x.name, x.dtype, shape, x.low, x.high, x.values, x.leaf)


def drawn_axis(draft: Draft) -> int:
    """Draw an axis of the first input, sometimes counted from the end."""
    axis = draft.builder.rng.below(draft.x.rank)
    draft.axis = (
        axis - draft.x.rank if draft.builder.rng.random() < draft.builder.style.rates.negative_axis else axis
    )
    return draft.axis


@dataclass(frozen=True, slots=True)
class AxisAttr:
    """The attribute `axis`. It is always drawn; if it equals the default, it is given at the rate `share`."""

    default: int | None = None
    share: float = 0.5

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        axis = drawn_axis(draft)
        if axis != self.default or draft.rng.random() < self.share:
            draft.attrs["axis"] = axis


@dataclass(frozen=True, slots=True)
class Count:
    """A number that shapes name, or several, beside those that they take from inputs and attributes."""

    name: str
    values: Sequence[Any] | Callable[[Draft], Any]

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        draft.sizes[self.name] = (
            self.values(draft) if callable(self.values) else draft.rng.choice(self.values)
        )


@dataclass(frozen=True, slots=True)
class First:
    """The first input, whose sizes get names; where it does not `fit`, another tensor of the shape `other`
    takes its place.
    """

    shape: str | Callable[[Draft], str] = ""
    fits: Callable[[Draft], bool] | None = None
    other: Shaped | str = ""
    domain: Domain | Callable[[Draft], Domain] = ANY

    def __call__(self, draft: Draft) -> None:
        """Name its sizes, or find another."""
        text = self.shape if isinstance(self.shape, str) else self.shape(draft)
        before = draft.sizes
        # Names of a tensor that turns out not to fit must not remain.
        if self.fits is not None:
            draft.sizes = dict(before)
        name_sizes(text, draft.x.shape, draft.sizes)
        if self.fits is not None and not self.fits(draft):
            domain = self.domain(draft) if callable(self.domain) else self.domain
            draft.begin(draft.builder.match(draft.x.dtype, draft.shape(self.other), domain))
            draft.sizes = before
            name_sizes(text, draft.x.shape, draft.sizes)


@dataclass(frozen=True, slots=True)
class Input:
    """Another input: an existing tensor of a shape or a new one, of the first input's dtype or of another
    (one of several).

    It is there at the rate `share` (None: always), or where a function of the draft says so; else its place
    is left empty.
    """

    shape: Shaped | str
    domain: Domain | Callable[[Draft], Domain] = ANY
    dtype: str | Sequence[str] | Callable[[Draft], str] = ""
    share: float | Callable[[Draft], bool] | None = None

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        share = self.share
        if share is not None and not (share(draft) if callable(share) else draft.rng.random() < share):
            draft.inputs.append(None)
            return
        dtype = _dtype(self.dtype, draft) if self.dtype else draft.x.dtype
        domain = self.domain(draft) if callable(self.domain) else self.domain
        # Names that the text introduces take the sizes of the tensor that is found.
        wanted = self.shape if isinstance(self.shape, str) else self.shape(draft)
        if isinstance(wanted, str):
            found = draft.builder.match(dtype, shape_of(wanted, draft.sizes, draft.attrs), domain)
            name_sizes(wanted, found.shape, draft.sizes)
        else:
            found = draft.builder.match(dtype, wanted, domain)
        draft.inputs.append(found)


def _dtype(asked: str | Sequence[str] | Callable[[Draft], str], draft: Draft) -> str:
    if isinstance(asked, str):
        return asked or draft.x.dtype
    return asked(draft) if callable(asked) else draft.rng.choice(asked)


@dataclass(frozen=True, slots=True)
class Partner:
    """Another input that broadcasts with the first, to its very shape if `oneway`; they change places at the
    rate `1 - kept`.
    """

    domain: Domain | Callable[[Draft], Domain] = ANY
    oneway: bool = False
    kept: float = 1.0

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        domain = self.domain(draft) if callable(self.domain) else self.domain
        draft.inputs.append(draft.builder.partner(draft.x, domain, oneway=self.oneway))
        if self.kept < 1 and draft.rng.random() >= self.kept:
            draft.inputs.reverse()


@dataclass(frozen=True, slots=True)
class Numbers:
    """An input of numbers that the operator looks at: axes, sizes, repeats. A vector unless a shape is given,
    a scalar if `scalar`.

    `values` gives all of them, or one of a scalar, which may also be one of several. It is there at the rate
    `share` (None: always); else its place is empty. With `first` it takes the place of the first input. With
    `fixed` it is a constant: the rank of the result depends on it. Floats are constants, too, unless they are
    a `bound`, of which no rule reads the elements.
    """

    values: Callable[[Draft], Any] | Sequence[Any]
    dtype: str | Sequence[str] | Callable[[Draft], str] = "int64"
    scalar: bool = False
    first: bool = False
    share: float | None = None
    shape: Shaped | str | None = None
    fixed: bool = False
    bound: bool = False

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        if self.share is not None and draft.rng.random() >= self.share:
            draft.inputs.append(None)
            return
        values = self.values(draft) if callable(self.values) else draft.rng.choice(self.values)
        shape = () if self.scalar else None if self.shape is None else draft.shape(self.shape)
        dtype = _dtype(self.dtype, draft)
        fixed = self.fixed or (is_float(dtype) and not self.bound)
        make = draft.builder.constant if fixed else draft.builder.ints
        made = make((values,) if self.scalar else values, dtype, shape)
        if self.first:
            draft.begin(made)
        else:
            draft.inputs.append(made)


def some(*parts: Part, share: float | None = None, where: Callable[[Draft], object] | None = None) -> Part:
    """Make parts that are present together: at the rate `share` (always if None), and only `where` a draft
    allows them.
    """

    def draw_parts(draft: Draft) -> None:
        if (where is None or where(draft)) and (share is None or draft.rng.random() < share):
            for part in parts:
                part(draft)

    return draw_parts


def left_out(draft: Draft) -> None:
    """Leave out an optional input."""
    draft.inputs.append(None)


def never(draft: Draft) -> bool:
    """Reject every first input."""
    return False


def since(opset: int, *parts: Part) -> Part:
    """Make parts that an operator has since an opset."""
    return some(*parts, where=lambda draft: draft.opset >= opset)


def one_of(*parts: Part) -> Part:
    """Make a part that draws one of several parts with equal likelihood."""
    return lambda draft: draft.rng.choice(parts)(draft)


@dataclass(frozen=True, slots=True)
class OutputCount:
    """The number of outputs: from `low` to `high`, or `low` if `high` is omitted."""

    low: int = 1
    high: int | None = None

    def __call__(self, draft: Draft) -> None:
        """Draw it."""
        draft.outputs = self.low if self.high is None else draft.rng.between(self.low, self.high)


def whole(draft: Draft) -> Sizes:
    """Return the shape of the first input."""
    return draft.x.shape


def channels(draft: Draft) -> Sizes:
    """Return a shape of one number for each channel: the second axis of the first input."""
    return (draft.x.shape[1],)


def last(draft: Draft) -> Sizes:
    """Return a shape of one number for each place of the first input's last axis."""
    return tuple(draft.x.shape[-1:])


def from_axis(draft: Draft) -> Sizes:
    """Return the sizes of the first input from the drawn axis on."""
    return tuple(draft.x.shape[draft.axis :])
