"""The catalogue of operators: ONNX's schemas at an opset, the declarations, and the choices that a program
may use.

Slots, element types and attributes come from ONNX's own schemas, each read once. Declarations are found by
entry point (`opsieve.operators`): each is a tuple of `Operator`. To add an operator, add a declaration to a
family's module, or a module with an entry point.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

import onnx.defs
from onnx.defs import OpSchema

from opsieve.gen.declarations.declaration import Operator, SizeRule
from opsieve.gen.declarations.tensor import ANY, LARGEST, Domain
from opsieve.gen.errors import load_plugin
from opsieve.gen.model.tensors import NUMBERS

NEWEST: Final = onnx.defs.onnx_opset_version()
OLDEST: Final = 13
_TENSOR: Final = "tensor("
# ONNX's names in type strings -> the names of numpy and ml_dtypes
_NAMES: Final = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """An input or output: its name, the type variable or type that it has, and whether it may be left out or
    repeated.
    """

    name: str
    type: str
    optional: bool
    variadic: bool


@dataclass(frozen=True, slots=True)
class OpsetSchema:
    """An operator as an opset has it. `types` maps a type variable to the dtypes that it may stand for.

    Sequences and optionals are written `sequence(float32)`. `since` is the version that the form appeared in.
    """

    name: str
    domain: str
    since: int
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    types: dict[str, frozenset[str]]
    attributes: dict[str, OpSchema.Attribute]
    least_inputs: int

    def dtypes(self, position: int) -> frozenset[str]:
        """Return the dtypes that an input may have; those of the last slot for every further input of a
        variadic operator.
        """
        if not self.inputs:
            return frozenset()
        return self.types[self.inputs[min(position, len(self.inputs) - 1)].type]


@functools.cache
def form(name: str, opset: int, domain: str = "") -> OpsetSchema | None:
    """Return the schema of an operator at an opset; `None` if it is missing or deprecated there."""
    try:
        schema = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        # onnx raises for an opset that is older than the operator.
        return None
    # A deprecated form is a placeholder without a meaning at this opset.
    if schema.deprecated:
        return None
    types = {c.type_param_str: named_dtypes(c.allowed_type_strs) for c in schema.type_constraints}
    for parameter in (*schema.inputs, *schema.outputs):
        if parameter.type_str not in types:
            types[parameter.type_str] = named_dtypes([parameter.type_str])
    return OpsetSchema(
        name,
        domain,
        schema.since_version,
        tuple(_slot(parameter) for parameter in schema.inputs),
        tuple(_slot(parameter) for parameter in schema.outputs),
        types,
        dict(schema.attributes),
        schema.min_input,
    )


@functools.cache
def domain_version(domain: str) -> int:
    """Return the version of a domain that programs import: the latest that onnx has schemas of, 1 of a domain
    that it does not know.
    """
    return max(
        (schema.since_version for schema in onnx.defs.get_all_schemas() if schema.domain == domain), default=1
    )


@functools.lru_cache(maxsize=4096)
def has_attribute(name: str, attribute: str) -> bool:
    """Return whether the newest form of an operator of ONNX's own has an attribute of this name."""
    had = form(name, NEWEST)
    return had is not None and attribute in had.attributes


@functools.lru_cache(maxsize=4096)
def has_bodies(name: str) -> bool:
    """Return whether an operator of ONNX's own has attributes that are graphs."""
    had = form(name, NEWEST)
    return had is not None and any(found.type == OpSchema.AttrType.GRAPH for found in had.attributes.values())


def _slot(parameter: OpSchema.FormalParameter) -> Slot:
    option = OpSchema.FormalParameterOption
    return Slot(
        parameter.name,
        parameter.type_str,
        parameter.option == option.Optional,
        parameter.option == option.Variadic,
    )


def named_dtypes(strings: Sequence[str]) -> frozenset[str]:
    """Return the dtypes that ONNX's type strings stand for, of those that the toolkit has values of."""
    return frozenset(name for text in strings if (name := _name_type(text)))


def _name_type(text: str) -> str:
    """Name a type: `tensor(float)` -> `float32`, `seq(tensor(float))` -> `sequence(float32)`, "" for types
    that the toolkit cannot hold.
    """
    for prefix, kind in (("seq(", "sequence"), ("optional(", "optional")):
        if text.startswith(prefix):
            inner = _name_type(text[len(prefix) : -1])
            return f"{kind}({inner})" if inner else ""
    if not text.startswith(_TENSOR):
        return ""
    inner = text[len(_TENSOR) : -1]
    name = _NAMES.get(inner, inner)
    return name if name in NUMBERS else ""


GROUP: Final = "opsieve.operators"


@dataclass(frozen=True, slots=True, eq=False)
class OpChoice:
    """An operator as one opset has it, prepared for drawing: the dtypes and ranks that its first input may
    have.
    """

    op: Operator
    dtypes: frozenset[str]
    # Sorted, since a draw from a set would depend on the order of hashes.
    leaves: tuple[str, ...]
    low: int
    high: int
    safe: Domain


class OpTable(tuple[OpChoice, ...]):
    """What may be drawn. Compared by identity: every draw looks into caches by it, and a hash of hundreds of
    items takes microseconds.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


@functools.cache
def known_operators() -> dict[str, Operator]:
    """Return every declared operator by name (`Add`, `com.microsoft::Gelu`), sorted."""
    # Sorted, since entry points come in the order of installation and seeds must mean the same everywhere.
    points = sorted(entry_points(group=GROUP))
    found = [operator for point in points for operator in load_plugin(point, "set of operators")]
    return {name_with_domain(operator): operator for operator in sorted(found, key=name_with_domain)}


@functools.cache
def operators() -> dict[str, Operator]:
    """Return the declared operators that programs are made of: all but those that are excluded for a
    reason.
    """
    return {name: operator for name, operator in known_operators().items() if not operator.excluded}


def find_operator(domain: str, name: str) -> Operator | None:
    """Return the declaration of an operator as nodes name it; `None` for an undeclared one."""
    return known_operators().get(qualified_name(domain, name))


def size_rule(domain: str, name: str) -> SizeRule:
    """Return how an operator, as nodes name it, repeats sizes outside shapes; `NONE` for an undeclared
    one.
    """
    found = find_operator(domain, name)
    return SizeRule.NONE if found is None else found.size_rule


def shape_input(domain: str, name: str) -> int | None:
    """Return the position of the input that lists the output's sizes; `None` if the operator has no such
    input.
    """
    found = find_operator(domain, name)
    return None if found is None else found.shape_input


def commutes(name: str) -> bool:
    """Return whether the first two inputs of an operator of ONNX's own can change places."""
    found = known_operators().get(name)
    return found is not None and found.commutes


def qualified_name(domain: str, name: str) -> str:
    """Return the name by which an operator is declared, as nodes name it: with its domain, the standard one
    left out.
    """
    return name if domain in ("", "ai.onnx") else f"{domain}::{name}"


def name_with_domain(operator: Operator) -> str:
    """Return the name of an operator with its domain, which is omitted for ONNX's own."""
    return qualified_name(operator.domain, operator.name)


@functools.cache
def choices(opset: int, only: frozenset[str] | None = None, dtypes: frozenset[str] | None = None) -> OpTable:
    """What may be drawn at an opset: the operators that it has, with the dtypes their first input may have.

    `only` limits the operators by qualified name (None: all of ONNX's own domain), `dtypes` those of first
    inputs.
    """
    found = []
    for name, operator in operators().items():
        # Operators of other domains only by name, since few compilers have them.
        if (name not in only) if only is not None else operator.domain:
            continue
        allowed = first_dtypes(operator, opset)
        if dtypes is not None:
            allowed &= dtypes
        if allowed:
            safe = operator.safe[0] if operator.safe else ANY
            found.append(OpChoice(operator, allowed, tuple(sorted(allowed)), *operator.ranks, safe))
    return OpTable(found)


@functools.lru_cache(maxsize=4096)
def merging(from_all: OpTable, dtype: str) -> tuple[OpChoice, ...]:
    """Select the operators that can merge several tensors and whose first input accepts a dtype."""
    return tuple(
        choice for choice in from_all if dtype in choice.dtypes and (choice.op.pairs or _reads_two(choice.op))
    )


@functools.lru_cache(maxsize=1024)
def pairing(from_all: OpTable) -> tuple[OpChoice, ...]:
    """Select the operators with a further input that broadcasts with the first, or that merge tensors."""
    return tuple(choice for choice in from_all if choice.op.pairs)


@functools.cache
def _reads_two(operator: Operator) -> bool:
    """Return whether an input beside the first has to be there and has its type variable."""
    had = None if operator.domain else form(operator.name, NEWEST)
    return had is not None and any(
        slot.type == had.inputs[0].type and not slot.optional and not slot.variadic for slot in had.inputs[1:]
    )


@functools.cache
def first_dtypes(operator: Operator, opset: int) -> frozenset[str]:
    """Return the dtypes that the first input may have at an opset; empty when the opset has no such
    operator.
    """
    if opset < max(operator.since, OLDEST):
        return frozenset()
    if operator.domain:
        return frozenset(operator.dtypes)
    had = form(operator.name, opset)
    if had is None:
        return frozenset()
    # Without inputs the schema names no type, so the declaration does.
    if not had.inputs:
        return frozenset(operator.dtypes or ("float32",))
    allowed = had.dtypes(0)
    if operator.dtypes:
        return allowed & frozenset(operator.dtypes)
    return frozenset(dtype for dtype in allowed if dtype in LARGEST and dtype != "string")
