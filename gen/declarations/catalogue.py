"""All operators that are declared, and what of them a program of an opset may use.

Declarations are found by entry point (`opsieve.operators`): each is a tuple of `Operator`. Adding an operator
is adding a declaration to a family's module, or a module with an entry point.
"""

import functools
import os
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from opsieve.gen.declarations.declaration import Operator, SizeRule
from opsieve.gen.declarations.learned_file import learned_operators
from opsieve.gen.declarations.schema import NEWEST, OLDEST, form
from opsieve.gen.declarations.tensor import ANY, LARGEST, Domain

GROUP: Final = "opsieve.operators"
VARIABLE: Final = "OPSIEVE_OPERATORS"


@dataclass(frozen=True, slots=True, eq=False)
class OpChoice:
    """An operator as one opset has it, prepared for drawing: the dtypes and ranks that its first input may
    have.
    """

    op: Operator
    dtypes: frozenset[str]
    leaves: tuple[str, ...]  # the same dtypes in order
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


def learned_files() -> tuple[Path, ...]:
    """The files of declarations that the environment names, by which programs have operators that no package
    declares.
    """
    return tuple(map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))))


@functools.cache
def known() -> dict[str, Operator]:
    """Every declared operator by name, `Add` or `com.microsoft::Gelu`, in order of name. One that was learned
    gives way to one declared by hand.

    BadInput where a file that OPSIEVE_OPERATORS names cannot be read.
    """
    found = [operator for path in learned_files() for operator in learned_operators(path)]
    found += [operator for point in sorted(entry_points(group=GROUP)) for operator in point.load()]
    return {qualified(operator): operator for operator in sorted(found, key=qualified)}


@functools.cache
def operators() -> dict[str, Operator]:
    """The declared operators that programs are made of: all but those that are excluded for a reason."""
    return {name: operator for name, operator in known().items() if not operator.excluded}


def declared(domain: str, name: str) -> Operator | None:
    """The declaration of an operator as nodes name it, None when there is none."""
    return known().get(f"{domain}::{name}" if domain not in ("", "ai.onnx") else name)


def size_rule(domain: str, name: str) -> SizeRule:
    """The rule for sizes that stand elsewhere than in shapes, of an operator as nodes name it; NONE of one
    that is not declared.
    """
    found = declared(domain, name)
    return SizeRule.NONE if found is None else found.size_rule


def shape_input(domain: str, name: str) -> int | None:
    """The input that lists the sizes of the output, of an operator as nodes name it; None of all others."""
    found = declared(domain, name)
    return None if found is None else found.shape_input


def commutes(name: str) -> bool:
    """Whether the first two inputs of an operator of ONNX's own can change places."""
    found = known().get(name)
    return found is not None and found.commutes


def qualified(operator: Operator) -> str:
    """The name with its domain, the standard one left out."""
    return f"{operator.domain}::{operator.name}" if operator.domain else operator.name


@functools.cache
def choices(opset: int, only: frozenset[str] | None = None, dtypes: frozenset[str] | None = None) -> OpTable:
    """What may be drawn at an opset: the operators that it has, with the dtypes their first input may have.

    `only` limits the operators by qualified name (None: all of ONNX's own domain), `dtypes` those of first
    inputs.
    """
    found = []
    for name, operator in operators().items():
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
    """Those of some operators that can bring several tensors together of which the first has a dtype."""
    return tuple(
        choice for choice in from_all if dtype in choice.dtypes and (choice.op.pairs or _reads_two(choice.op))
    )


@functools.lru_cache(maxsize=1024)
def pairing(from_all: OpTable) -> tuple[OpChoice, ...]:
    """Those of some operators of which a further input broadcasts with the first, or that merge."""
    return tuple(choice for choice in from_all if choice.op.pairs)


@functools.cache
def _reads_two(operator: Operator) -> bool:
    """Whether an input beside the first has to be there and has its type variable."""
    had = None if operator.domain else form(operator.name, NEWEST)
    return had is not None and any(
        slot.type == had.inputs[0].type and not slot.optional and not slot.variadic for slot in had.inputs[1:]
    )


@functools.cache
def first_dtypes(operator: Operator, opset: int) -> frozenset[str]:
    """The dtypes that the first input may have at an opset; empty when the opset has no such operator."""
    if opset < max(operator.since, OLDEST):
        return frozenset()
    if operator.domain:
        return frozenset(operator.dtypes)
    had = form(operator.name, opset)
    if had is None:
        return frozenset()
    if not had.inputs:
        return frozenset(operator.dtypes or ("float32",))
    allowed = had.dtypes(0)
    if operator.dtypes:
        return allowed & frozenset(operator.dtypes)
    return frozenset(dtype for dtype in allowed if dtype in LARGEST and dtype != "string")
