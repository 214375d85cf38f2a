"""Instances of an operator that are tried on a compiler, and what was said of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsieve.backends.probing.documented_shapes import Shape
from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.gen.spec.dtype_facts import PLAIN


@dataclass(frozen=True, slots=True)
class TrialInput:
    """The type of an input, and between which numbers its elements lie; or `values`, all of them. `constant`: it is an initializer."""

    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    values: tuple[int, ...] = ()
    constant: bool = False


@dataclass(frozen=True, slots=True)
class ShapePlan:
    """Where shapes of an instance come from documentation: what its names stand for, which are tied to others, the shape that each input has of them."""

    sizes: Mapping[str, int]
    ties: Mapping[str, str]
    shapes: Mapping[int, Shape]


@dataclass(frozen=True, slots=True)
class Trial:
    """An instance to run: its inputs (None where one is left out) and attributes."""

    inputs: tuple[TrialInput | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    plan: ShapePlan | None = None


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The types of the outputs, None where the instance was refused; what was said then, and whether the compiler died of it."""

    outputs: tuple[tuple[str, tuple[int, ...]], ...] | None
    reason: str = ""
    died: bool = False


def drawn_dtypes(schema: DomainSchema, type_: str) -> list[str]:
    """The dtypes of a type variable or type that instances are drawn of."""
    return [dtype for dtype in schema.types[type_] if dtype in PLAIN or dtype == "string"]
