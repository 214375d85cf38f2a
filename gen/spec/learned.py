"""Declarations that were learned by probing (`opsieve learn`), as a TOML file that a person can edit and as operators.

    domain = "com.microsoft"

    [[operator]]
    name = "BiasGelu"

    [[operator.form]]
    inputs = ["float32[a, b, 2*c] in -1..1", "float32[2*c] in -1..1 constant", "", "int64[2] = 4, 1"]
    attributes = { axis = [-1, 1] }
    outputs = ["float32[a, b, 2*c]"]

A form is a set of instances: every letter stands for any size, a number for itself, `2*c` for even sizes, `a*b` and `a+b` for what they say; "" is an input left
out; `= 4, 1` are the
elements themselves; what is `constant` is never computed. A size `?` of an output is one that only a run tells. An attribute has one of the values listed. What an operator takes is what one of its forms matches.
"""

import functools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.model.files import read_file
from opsieve.gen.spec.builder import Builder
from opsieve.gen.spec.declaration import Operator
from opsieve.gen.spec.domains import ANY, Domain
from opsieve.gen.spec.dtype_facts import LARGEST, LEAST
from opsieve.gen.spec.instance import Instance
from opsieve.gen.spec.learned_body import LearnedBody, body_of
from opsieve.gen.spec.symbolic_arith import Truth
from opsieve.gen.spec.tensor import Bounds, Ins, Tensor, Typed

UNKNOWN = "?"
_TERM = re.compile(r"(?:(\d{1,6})|(?:([1-9]\d{0,3})\*)?([a-z])|([a-z])([*+])([a-z])|(\?))")
_TYPE = re.compile(
    r"(sparse )?([a-z0-9_]{1,20})\[([^\]]{0,400})\](?: in (-?[0-9.e+-]{1,20})\.\.(-?[0-9.e+-]{1,20}))?(?: = (-?\d{1,9}(?:, -?\d{1,9}){0,63}))?( constant)?"
)
_LARGEST_FILE = 4 << 20
_SIZES = (1, 2, 3, 4, 5, 6, 8)
_MOST_RANK = 8
_VARIES = "its results differ from run to run"
_SPARSE = "an input is a sparse tensor, which no test case carries"

Sizes = Mapping[str, int]


@functools.cache
def domain_version(domain: str) -> int:
    """The version of a domain that programs import: the latest that onnx has schemas of, 1 of a domain that it does not know."""
    return max((schema.since_version for schema in onnx.defs.get_all_schemas() if schema.domain == domain), default=1)


@dataclass(frozen=True, slots=True)
class SizeTerm:
    """A size: `factor` alone, `factor` times the size `first`, or `first` and `second` combined by `operation` (* or +); neither where unknown."""

    factor: int = 1
    first: str = ""
    operation: str = ""
    second: str = ""
    unknown: bool = False

    def value(self, sizes: Sizes) -> int | None:
        """The number that it is where letters have these sizes; None where one has none."""
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
        return str(self.factor) if not self.first else f"{self.factor}*{self.first}" if self.factor != 1 else self.first


@dataclass(frozen=True, slots=True)
class LearnedTensor:
    """The type of an input or output: its dtype, a term for each size, and between which numbers its elements lie; or `values`, all of them.

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
        """Its shape where letters have these sizes; None where one has none, or a size is unknown."""
        found = [term.value(sizes) for term in self.sizes]
        return None if None in found else tuple(side for side in found if side is not None)

    def __str__(self) -> str:
        return f"{'sparse ' if self.sparse else ''}{self.dtype}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True, slots=True)
class LearnedForm:
    """Instances of one kind: types of inputs (None where one is left out) and outputs, the values that each attribute may have. `varies`: results differ from run to run."""

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
        """What the letters stand for in an instance; None where it is not of this form."""
        if len(ins) > len(self.inputs) or any(
            name not in attrs or not _is_one(attrs[name], values) for name, values in self.attributes.items()
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
        return found if self._agree(given, found) else None

    def _agree(self, ins: Sequence[Tensor | None], sizes: Sizes) -> bool:
        pairs = zip(ins, self.inputs, strict=True)
        return all(a is None or b is None or b.shape(sizes) == tuple(a.shape) for a, b in pairs)


def _is_one(value: Any, values: Sequence[Any]) -> bool:
    return any(each.fits(value) if isinstance(each, LearnedBody) else each == value for each in values)


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
    """What is known of an operator of a domain. `accepted` of `tried` fresh instances were accepted when it was learned."""

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
            requires=self._requires,
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
            (out.dtype, tuple(_named(term.value(sizes), place, axis) for axis, term in enumerate(out.sizes)))
            for place, out in enumerate(form.outputs)
        ]

    def _requires(self, ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
        return [self._form(ins, attrs) is not None]

    def _bounds(self, ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
        found = self._form(ins, attrs)
        return [
            (LEAST.get(out.dtype, -math.inf), LARGEST.get(out.dtype, math.inf))
            for out in (found[0].outputs if found is not None else ())
        ]


def _named(value: int | None, place: int, axis: int) -> Any:
    return value if value is not None else f"unknown_{place}_{axis}"


# The file


def written(operators: Sequence[LearnedOperator], head: str = "") -> str:
    """The TOML of some operators of one domain; `head` are lines of comment."""
    lines = [f"# {line}" for line in head.splitlines()]
    lines.append(f"domain = {_text(operators[0].domain if operators else '')}")
    for operator in operators:
        lines += ["", "[[operator]]", f"name = {_text(operator.name)}"]
        if operator.tried:
            lines.append(f"accepted = [{operator.accepted}, {operator.tried}]")
        for form in operator.forms:
            lines += ["", "[[operator.form]]"]
            lines.append(f"inputs = [{', '.join(_text(_input(each)) for each in form.inputs)}]")
            if form.attributes:
                pairs = [f"{name} = [{', '.join(map(_value, values))}]" for name, values in form.attributes.items()]
                lines.append(f"attributes = {{ {', '.join(pairs)} }}")
            lines.append(f"outputs = [{', '.join(_text(str(out)) for out in form.outputs)}]")
            if form.varies:
                lines.append("varies = true")
    return "\n".join(lines) + "\n"


def _input(each: LearnedTensor | None) -> str:
    if each is None:
        return ""
    elements = (
        f"= {', '.join(map(str, each.values))}" if each.values else f"in {_number(each.low)}..{_number(each.high)}"
    )
    return f"{each} {elements}{' constant' if each.constant else ''}"


def read_learned(path: Path) -> tuple[LearnedOperator, ...]:
    """The operators of a file. BadInput where it is not of this form."""
    try:
        return parsed(read_file(path, _LARGEST_FILE).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{shown(str(path))} is no TOML: {shown(str(error), 200)}") from None


def learned_operators(path: Path) -> tuple[Operator, ...]:
    """The declarations of a file: what a package of operators gives as its `OPERATORS`."""
    return tuple(each.operator() for each in read_learned(path))


def parsed(text: str) -> tuple[LearnedOperator, ...]:
    """The operators of a file's text. BadInput where it is not of this form, TOMLDecodeError where it is no TOML."""
    data = tomllib.loads(text)
    domain, entries = data.get("domain"), data.get("operator", [])
    if not isinstance(domain, str) or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise BadInput('a file of declarations has a line domain = "..." and tables [[operator]]')
    return tuple(_operator(entry, domain) for entry in entries)


def _operator(entry: dict[str, Any], domain: str) -> LearnedOperator:
    name, forms = entry.get("name"), entry.get("form", [])
    if not isinstance(name, str) or not isinstance(forms, list) or not forms:
        raise BadInput('an [[operator]] has a line name = "..." and at least one table [[operator.form]]')
    accepted, tried = entry.get("accepted", (0, 0))
    return LearnedOperator(name, domain, tuple(_form_of(form, name) for form in forms), int(accepted), int(tried))


def _form_of(entry: Any, name: str) -> LearnedForm:
    ins, outs = entry.get("inputs", []), entry.get("outputs", [])
    attributes = entry.get("attributes", {})
    sound = all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in (ins, outs))
    if not sound or not outs or not isinstance(attributes, dict):
        raise BadInput(f"a form of {shown(name, 80)} has lists inputs and outputs of types, and a table of attributes")
    if not all(isinstance(values, list) and values for values in attributes.values()):
        raise BadInput(f"an attribute of {shown(name, 80)} has a list of the values that it may have")
    return LearnedForm(
        tuple(None if not text else _tensor(text, name) for text in ins),
        tuple(_tensor(text, name) for text in outs),
        {key: tuple(_attribute(value, name) for value in values) for key, values in attributes.items()},
        entry.get("varies") is True,
    )


def _attribute(value: Any, name: str) -> Any:
    body = body_of(value) if isinstance(value, dict) else None
    if isinstance(value, dict) and body is None:
        raise BadInput(f'a graph of {shown(name, 80)} has lists inputs and outputs of types such as "x: float32[a, 2]"')
    return body if body is not None else value


def _tensor(text: str, name: str) -> LearnedTensor:
    match = _TYPE.fullmatch(text)
    inside = [part.strip() for part in match[3].split(",")] if match and match[3].strip() else []
    terms = [_term(part) for part in inside]
    if match is None or None in terms or len(terms) > _MOST_RANK or match[2] not in LARGEST:
        raise BadInput(f"{shown(text, 80)} in {shown(name, 80)} is no type such as float32[a, 2*b, 3] in -1..1")
    sizes = tuple(term for term in terms if term is not None)
    try:
        low, high = float(match[4] or -1), float(match[5] or 1)
    except ValueError:
        raise BadInput(f"{shown(text, 80)} in {shown(name, 80)} has no two numbers behind in") from None
    values = tuple(map(int, match[6].split(","))) if match[6] else ()
    return LearnedTensor(match[2], sizes, low, high, values, bool(match[7]), bool(match[1]))


def _term(text: str) -> SizeTerm | None:
    match = _TERM.fullmatch(text)
    if match is None:
        return None
    number, factor, letter, first, operation, second, unknown = match.groups()
    if number:
        return SizeTerm(int(number))
    if unknown:
        return SizeTerm(unknown=True)
    return SizeTerm(int(factor or 1), letter) if letter else SizeTerm(1, first, operation, second)


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, LearnedBody):
        return value.written()
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, (list, tuple)) else repr(value)
