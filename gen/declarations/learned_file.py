"""Declarations that were learned by probing (`opsieve learn`), as a TOML file that a person can edit.

    domain = "com.microsoft"

    [[operator]]
    name = "BiasGelu"

    [[operator.form]]
    inputs = ["float32[a, b, 2*c] in -1..1", "float32[2*c] in -1..1 constant", "", "int64[2] = 4, 1"]
    attributes = { axis = [-1, 1] }
    outputs = ["float32[a, b, 2*c]"]

A form is a set of instances: every letter stands for any size, a number for itself, `2*c` for even sizes,
`a*b` and `a+b` for what they say; "" is an input left out; `= 4, 1` are the
elements themselves; what is `constant` is never computed. A size `?` of an output is one that only a run
tells. An attribute has one of the values listed. What an operator takes is what one of its forms matches.
"""

import json
import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.learned import LearnedForm, LearnedOperator, LearnedTensor, SizeTerm
from opsieve.gen.declarations.learned_body import LearnedBody, body_of
from opsieve.gen.declarations.tensor import LARGEST
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import bound_reading, read_file
from opsieve.gen.model.printable import count_noun

_TERM = re.compile(r"(?:(\d{1,6})|(?:([1-9]\d{0,3})\*)?([a-z])|([a-z])([*+])([a-z])|(\?))")
_TYPE = re.compile(
    r"(sparse )?([a-z0-9_]{1,20})\[([^\]]{0,400})\](?: in (-?[0-9.e+-]{1,20})\.\.(-?[0-9.e+-]{1,20}))?(?: ="
    r" (-?\d{1,9}(?:, -?\d{1,9}){0,63}))?( constant)?"
)
_NAME = r"^[A-Za-z_]\w{0,79}\Z"
_DOMAIN = r"^(?:[A-Za-z_][\w-]{0,79}(?:\.[\w-]{1,80}){0,9})?\Z"
_LARGEST_FILE = 4 << 20
_MOST_RANK = 8


class _FormTable(msgspec.Struct):
    """A table [[operator.form]]."""

    outputs: Annotated[list[str], msgspec.Meta(min_length=1)]
    inputs: list[str] = []
    attributes: dict[str, Annotated[list[Any], msgspec.Meta(min_length=1)]] = {}
    varies: bool = False


class _OperatorTable(msgspec.Struct):
    """A table [[operator]]."""

    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    form: Annotated[list[_FormTable], msgspec.Meta(min_length=1)]
    accepted: tuple[int, int] = (0, 0)


class _FileTable(msgspec.Struct):
    """A file of declarations."""

    domain: Annotated[str, msgspec.Meta(pattern=_DOMAIN)]
    operator: list[_OperatorTable] = []


def write_toml(operators: Sequence[LearnedOperator], head: str = "") -> str:
    """Return the TOML of some operators of one domain; `head` holds lines of comment."""
    lines = [f"# {line}" for line in head.splitlines()]
    lines.append(f"domain = {_value(operators[0].domain if operators else '')}")
    for operator in operators:
        lines += ["", "[[operator]]", f"name = {_value(operator.name)}"]
        if operator.tried:
            lines.append(f"accepted = [{operator.accepted}, {operator.tried}]")
        for form in operator.forms:
            lines += ["", "[[operator.form]]"]
            lines.append(f"inputs = [{', '.join(_value(_input(each)) for each in form.inputs)}]")
            if form.attributes:
                pairs = [
                    f"{name} = [{', '.join(map(_value, values))}]" for name, values in form.attributes.items()
                ]
                lines.append(f"attributes = {{ {', '.join(pairs)} }}")
            lines.append(f"outputs = [{', '.join(_value(str(out)) for out in form.outputs)}]")
            if form.varies:
                lines.append("varies = true")
    return "\n".join(lines) + "\n"


def _input(each: LearnedTensor | None) -> str:
    if each is None:
        return ""
    elements = (
        f"= {', '.join(map(str, each.values))}"
        if each.values
        else f"in {_number(each.low)}..{_number(each.high)}"
    )
    return f"{each} {elements}{' constant' if each.constant else ''}"


@bound_reading
def read_learned(path: Path) -> tuple[LearnedOperator, ...]:
    """The operators of a file. BadInput, with its name, where it is not of this form."""
    data = read_file(path, _LARGEST_FILE)
    try:
        return parse_toml(data.decode("utf-8"))
    except BadInput as error:
        raise BadInput(f"{shown(str(path))}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{shown(str(path))} is no TOML: {shown(str(error), 200)}") from None


def learned_operators(path: Path) -> tuple[Operator, ...]:
    """Return the declarations of a file, in the form that a package of operators exports as `OPERATORS`."""
    return tuple(each.operator() for each in read_learned(path))


def parse_toml(text: str) -> tuple[LearnedOperator, ...]:
    """Parse the operators in a file's text. Raises BadInput for another format, TOMLDecodeError for invalid
    TOML.
    """
    try:
        file = msgspec.convert(tomllib.loads(text), _FileTable)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{error}; a file of declarations has a line domain and tables [[operator]], each with a line"
            ' name = "Word", at least one table [[operator.form]], and perhaps a line accepted = [20, 20];'
            " a form has lists inputs and outputs of types, and for each attribute a list of values"
        ) from None
    return tuple(
        LearnedOperator(
            table.name, file.domain, tuple(_form_of(form, table.name) for form in table.form), *table.accepted
        )
        for table in file.operator
    )


def _form_of(table: _FormTable, name: str) -> LearnedForm:
    form = LearnedForm(
        tuple(_tensor(text, name) if text else None for text in table.inputs),
        tuple(_tensor(text, name) for text in table.outputs),
        {key: tuple(_attribute(value, name) for value in values) for key, values in table.attributes.items()},
        table.varies,
    )
    # BadInput where a size is of a letter that no size of an input is alone or with a factor, or an input
    # has an unknown one.
    terms = [term for tensor in form.inputs if tensor is not None for term in tensor.sizes]
    known = {term.first for term in terms if not term.operation}
    for term in (*terms, *(term for tensor in form.outputs for term in tensor.sizes)):
        if not {term.first, term.second} <= {*known, ""} or (term.unknown and term in terms):
            raise BadInput(f"no input of {name} tells what the size {term} of one of its forms is")
    return form


def _attribute(value: Any, name: str) -> Any:
    body = body_of(value) if isinstance(value, dict) else None
    if isinstance(value, dict) and body is None:
        raise BadInput(
            f'a graph of {shown(name, 80)} has lists inputs and outputs of types such as "x: float32[a, 2]"'
        )
    parts = value if isinstance(value, list) else [value]
    # Elements of one type: texts, integers of 64 bits or finite numbers; True is none of these.
    plain = all(
        type(each) is str
        or (type(each) is int and -(2**63) <= each < 2**63)
        or (type(each) is float and math.isfinite(each))
        for each in parts
    )
    if body is None and not (len(set(map(type, parts))) == 1 and plain):
        raise BadInput(
            f"{shown(repr(value), 80)} is no value of an attribute of {name}: a number, a text, or a list of"
            " such"
        )
    return body if body is not None else value


def _tensor(text: str, name: str) -> LearnedTensor:
    match = _TYPE.fullmatch(text)
    inside = [part.strip() for part in match[3].split(",")] if match and match[3].strip() else []
    terms = [_term(part) for part in inside]
    if match is None or None in terms or len(terms) > _MOST_RANK or match[2] not in LARGEST:
        raise BadInput(
            f"{shown(text, 80)} in {shown(name, 80)} is no type such as float32[a, 2*b, 3] in -1..1"
        )
    sizes = tuple(term for term in terms if term is not None)
    try:
        low, high = float(match[4] or -1), float(match[5] or 1)
    except ValueError:
        low, high = 0.0, -1.0
    if not -math.inf < low <= high < math.inf:
        raise BadInput(
            f"{shown(text, 80)} in {shown(name, 80)} has no two numbers behind in, the smaller one first"
        )
    values = tuple(map(int, match[6].split(","))) if match[6] else ()
    count = math.prod(size.factor for size in sizes)
    fixed = not any(size.first or size.unknown for size in sizes)
    if values and fixed and count != len(values):
        raise BadInput(
            f"{shown(text, 80)} in {shown(name, 80)} lists {count_noun(len(values), 'element')} where its shape"
            f" has {count}"
        )
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


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _value(value: Any) -> str:
    """A value in TOML, which has JSON's texts, numbers and lists of them."""
    return value.to_toml() if isinstance(value, LearnedBody) else json.dumps(value, ensure_ascii=False)
