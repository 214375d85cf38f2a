"""Declarations that were learned by probing (`opsieve learn`), as operators; the file that holds them is
`learned_file`.

A form is a set of instances: every letter stands for any size. What an operator takes is what one of its
forms matches.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsieve.gen.declarations.builder import Builder
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.instance import Instance
from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.tensor import ANY, LARGEST, LEAST, Bounds, Domain, Ins, Tensor, Typed

UNKNOWN = "?"
_SIZES = (1, 2, 3, 4, 5, 6, 8)
_VARIES = "its results differ from run to run"
_SPARSE = "an input is a sparse tensor, which no test case carries"

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SizeTerm:
    """A size: `factor` alone, `factor` times the size `first`, or `first` and `second` combined by
    `operation` (* or +); `unknown` if only a run determines it.
    """

    factor: int = 1
    first: str = ""
    operation: str = ""
    second: str = ""
    unknown: bool = False

    def value(self, sizes: Sizes) -> int | None:
        """Compute the size from the sizes of its letters; returns `None` if a letter is missing."""
        if self.unknown or any(name and name not in sizes for name in (self.first, self.second)):
            return None
        if not self.first:
            return self.factor
        left = self.factor * sizes[self.first]
        if not self.operation:
            return left
        return left * sizes[self.second] if self.operation == "*" else left + sizes[self.second]

    def __str__(self) -> str:
        if self.unknown:
            return UNKNOWN
        if self.operation:
            return f"{self.first}{self.operation}{self.second}"
        return (
            str(self.factor)
            if not self.first
            else f"{self.factor}*{self.first}"
            if self.factor != 1
            else self.first
        )


@dataclass(frozen=True, slots=True)
class LearnedTensor:
    """The type of an input or output: its dtype, a term for each size, and between which numbers its elements
    lie; or `values`, all of them.

    `constant`: an input that no node computes; `sparse`: one that is fed as a sparse tensor.
    """

    dtype: str
    sizes: tuple[SizeTerm, ...]
    low: float = -1.0
    high: float = 1.0
    values: tuple[int, ...] = ()
    constant: bool = False
    sparse: bool = False

    @property
    def domain(self) -> Domain:
        """Where elements lie."""
        return ANY if self.dtype == "string" else Domain(self.low, self.high)

    def shape(self, sizes: Sizes) -> tuple[int, ...] | None:
        """Compute the shape from the sizes of its letters; returns `None` if one is unknown."""
        found = [term.value(sizes) for term in self.sizes]
        return None if None in found else tuple(side for side in found if side is not None)

    def __str__(self) -> str:
        return f"{'sparse ' if self.sparse else ''}{self.dtype}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True, slots=True)
class LearnedForm:
    """Instances of one kind: types of inputs (None where one is left out) and outputs, the values that each
    attribute may have. `varies`: results differ from run to run.
    """

    inputs: tuple[LearnedTensor | None, ...]
    outputs: tuple[LearnedTensor, ...]
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    varies: bool = False

    def __hash__(self) -> int:
        return hash((self.inputs, self.outputs))

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters that stand for sizes."""
        terms = [term for tensor in self.inputs if tensor is not None for term in tensor.sizes]
        return tuple(dict.fromkeys(name for term in terms for name in (term.first, term.second) if name))

    def sizes(self, ins: Sequence[Tensor | None], attrs: Mapping[str, Any]) -> dict[str, int] | None:
        """Match an instance and return the sizes of its letters; returns `None` if it does not match."""
        if len(ins) > len(self.inputs) or any(
            not any(
                each.fits(attrs.get(name)) if isinstance(each, LearnedBody) else each == attrs.get(name)
                for each in values
            )
            for name, values in self.attributes.items()
        ):
            return None
        found: dict[str, int] = {}
        given = [*ins, *[None] * (len(self.inputs) - len(ins))]
        for tensor, learned in zip(given, self.inputs, strict=True):
            if (tensor is None) != (learned is None):
                return None
            if tensor is None or learned is None:
                continue
            if tensor.dtype != learned.dtype or not bind(learned, tensor.shape, found):
                return None
        pairs = zip(given, self.inputs, strict=True)
        agree = all(a is None or b is None or b.shape(found) == tuple(a.shape) for a, b in pairs)
        return found if agree else None


def bind(learned: LearnedTensor, shape: Sequence[Any], sizes: dict[str, int]) -> bool:
    """Learn from a shape what letters that stand alone or with a factor are; whether it can have the type."""
    if len(shape) != len(learned.sizes) or any(type(side) is not int for side in shape):
        return False
    for side, term in zip(shape, learned.sizes, strict=True):
        if term.first and not term.operation and term.first not in sizes:
            if side % term.factor or not side:
                return False
            sizes[term.first] = side // term.factor
        value = term.value(sizes)
        if value is not None and value != side:
            return False
    return True


@dataclass(frozen=True, slots=True)
class LearnedOperator:
    """The learned facts about an operator of a domain. `accepted` of `tried` fresh instances were accepted
    during learning.
    """

    name: str
    domain: str
    forms: tuple[LearnedForm, ...]
    accepted: int = 0
    tried: int = 0

    def operator(self) -> Operator:
        """The declaration that generators, mutations and the reducer use."""
        first = [form.inputs[0] for form in self.forms if form.inputs and form.inputs[0] is not None]
        sparse = all(any(each is not None and each.sparse for each in form.inputs) for form in self.forms)
        ranks = [len(tensor.sizes) for tensor in first] or [0]
        return Operator(
            self.name,
            self._sample,
            domain=self.domain,
            family="learned",
            dtypes=tuple(sorted({tensor.dtype for tensor in first})) or ("float32",),
            ranks=(min(ranks), max(ranks)),
            infer=self._infer,
            requires=lambda ins, attrs: [self._form(ins, attrs) is not None],
            bounds=self._bounds,
            excluded=_SPARSE if sparse else _VARIES if all(form.varies for form in self.forms) else "",
        )

    def _sample(self, builder: Builder, x: Tensor) -> Instance | None:
        form = builder.rng.choice(self.forms)
        sizes: dict[str, int] = {}
        learned = form.inputs[0]
        fits = (
            learned is not None
            and learned.dtype == x.dtype
            and bind(learned, x.shape, sizes)
            and not (learned.values or learned.constant)
            and x.within(learned.domain)
        )
        if not fits:
            sizes = {}
        for letter in form.letters:
            sizes.setdefault(letter, builder.rng.choice(_SIZES))
        ins: list[Tensor | None] = []
        for place, tensor in enumerate(form.inputs):
            if tensor is None:
                ins.append(None)
                continue
            shape = tensor.shape(sizes)
            if shape is None or math.prod(shape) > builder.budget.tensor:
                return None
            if not place and fits and shape == x.shape:
                ins.append(x)
            elif tensor.values:
                if math.prod(shape) != len(tensor.values):
                    return None
                ins.append(builder.ints(tensor.values, tensor.dtype, shape))
            elif tensor.constant:
                ins.append(builder.leaf(tensor.dtype, shape, tensor.domain, ("initializer", "constant")))
            else:
                ins.append(builder.match(tensor.dtype, shape, tensor.domain))
        return Instance(ins, {name: builder.rng.choice(values) for name, values in form.attributes.items()})

    def _form(self, ins: Ins, attrs: Mapping[str, Any]) -> tuple[LearnedForm, dict[str, int]] | None:
        for form in self.forms:
            sizes = form.sizes(ins, attrs)
            if sizes is not None:
                return form, sizes
        return None

    def _infer(self, ins: Ins, attrs: Mapping[str, Any]) -> list[Typed | None]:
        found = self._form(ins, attrs)
        if found is None:
            return []
        form, sizes = found
        return [
            (
                out.dtype,
                tuple(
                    f"unknown_{place}_{axis}" if (size := term.value(sizes)) is None else size
                    for axis, term in enumerate(out.sizes)
                ),
            )
            for place, out in enumerate(form.outputs)
        ]

    def _bounds(self, ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
        found = self._form(ins, attrs)
        return [
            (LEAST.get(out.dtype, -math.inf), LARGEST.get(out.dtype, math.inf))
            for out in (found[0].outputs if found is not None else ())
        ]
