"""Instances of an operator that are tried on a compiler, and what was said of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper

from opsieve.backends.probing.documented_shapes import Shape
from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.gen.data.inputs import Stream
from opsieve.gen.declarations.tensor import PLAIN, is_float
from opsieve.gen.model.tensors import NUMBERS

_FILLED = 0.5  # of a sparse input is no zero
_WORDS = ("a", "b c", "cat", "Dog", "1", "zebra")


@dataclass(frozen=True, slots=True)
class TrialInput:
    """The type of an input, and between which numbers its elements lie; or `values`, all of them. `constant`:
    it is an initializer; `sparse`: it is fed as a sparse tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    values: tuple[int, ...] = ()
    constant: bool = False
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class ShapePlan:
    """Where shapes of an instance come from documentation: what its names stand for, which are tied to
    others, the shape that each input has of them.
    """

    sizes: Mapping[str, int]
    ties: Mapping[str, str]
    shapes: Mapping[int, Shape]


@dataclass(frozen=True, slots=True)
class Trial:
    """An instance to run: its inputs (None where one is left out) and attributes; `draw` tells which elements
    it has.
    """

    inputs: tuple[TrialInput | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    plan: ShapePlan | None = None
    draw: int = 0


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The types of the outputs, None where the instance was refused; what was said then, whether the compiler
    died of it; else a digest of the outputs and whether it `varies` from run to run.
    """

    outputs: tuple[tuple[str, tuple[int, ...]], ...] | None
    reason: str = ""
    died: bool = False
    digest: str = ""
    varies: bool = False


def elements(trial: Trial, place: int) -> "np.ndarray[Any, Any]":
    """The elements of an input."""
    each = trial.inputs[place]
    assert each is not None
    stream, count = Stream(0, f"x{place} {trial.draw}"), math.prod(each.shape)
    if each.dtype == "string":
        words = [_WORDS[int(fraction * len(_WORDS))] for fraction in stream.fractions(count)]
        return np.array(words, dtype=object).reshape(each.shape)
    if each.values:
        drawn = np.array(each.values)
    elif is_float(each.dtype):
        drawn = each.low + (each.high - each.low) * stream.fractions(count)
    else:
        drawn = stream.integers(int(each.low), int(each.high), count)
    if each.sparse:
        drawn = drawn * (stream.fractions(count) < _FILLED)
    return drawn.reshape(each.shape).astype(helper.tensor_dtype_to_np_dtype(NUMBERS[each.dtype]))


def drawn_dtypes(schema: DomainSchema, type_: str) -> list[str]:
    """The dtypes of a type variable or type that instances are drawn of."""
    return [dtype for dtype in schema.types[type_] if dtype in PLAIN or dtype == "string"]
