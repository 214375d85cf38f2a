"""What ONNX's own schemas say of an operator at an opset: slots, element types, attributes. Read once each,
then remembered.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx.defs
from onnx.defs import OpSchema

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
        """The dtypes that an input may have; those of the last slot for every further input of a variadic
        operator.
        """
        if not self.inputs:
            return frozenset()
        slot = self.inputs[min(position, len(self.inputs) - 1)]
        return self.types[slot.type]


@functools.cache
def form(name: str, opset: int, domain: str = "") -> OpsetSchema | None:
    """The form of an operator that an opset has, None when it has none (or only a deprecated one)."""
    try:
        schema = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None
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
    """The version of a domain that programs import: the latest that onnx has schemas of, 1 of a domain that
    it does not know.
    """
    return max(
        (schema.since_version for schema in onnx.defs.get_all_schemas() if schema.domain == domain), default=1
    )


@functools.lru_cache(maxsize=4096)
def has_attribute(name: str, attribute: str) -> bool:
    """Whether the newest form of an operator of ONNX's own has an attribute of this name."""
    had = form(name, NEWEST)
    return had is not None and attribute in had.attributes


@functools.lru_cache(maxsize=4096)
def has_bodies(name: str) -> bool:
    """Whether an operator of ONNX's own has attributes that are graphs."""
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
    """The dtypes that ONNX's type strings stand for, of those that the toolkit has values of."""
    return frozenset(name for text in strings if (name := _named(text)))


def _named(text: str) -> str:
    """`tensor(float)` -> `float32`, `seq(tensor(float))` -> `sequence(float32)`; "" for what the toolkit has
    no values of.
    """
    for prefix, kind in (("seq(", "sequence"), ("optional(", "optional")):
        if text.startswith(prefix):
            inner = _named(text[len(prefix) : -1])
            return f"{kind}({inner})" if inner else ""
    if not text.startswith(_TENSOR):
        return ""
    inner = text[len(_TENSOR) : -1]
    name = _NAMES.get(inner, inner)
    return name if name in NUMBERS else ""
