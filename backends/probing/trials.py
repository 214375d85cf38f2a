"""Instances of an operator that are tried on a compiler, and their results."""

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

# Of a sparse input is no zero
_FILLED = 0.5
_WORDS = ("a", "b c", "cat", "Dog", "1", "zebra")


@dataclass(frozen=True, slots=True)
class TrialInput:
    """The type of an input, and the range of its elements; or `values`, all of them.

    `constant`: it is an initializer; `sparse`: it is fed as a sparse tensor.
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
    """The documented shapes of an instance: values of names, ties between them, and the shape of each
    input.
    """

    sizes: Mapping[str, int]
    ties: Mapping[str, str]
    shapes: Mapping[int, Shape]


@dataclass(frozen=True, slots=True)
class Trial:
    """An instance to run: its inputs (None: left out) and attributes; `draw` determines its elements."""

    inputs: tuple[TrialInput | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    plan: ShapePlan | None = None
    draw: int = 0


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The types of the outputs, or None with the message and whether the compiler died.

    `digest` is that of the outputs, which may differ from run to run (`varies`).
    """

    outputs: tuple[tuple[str, tuple[int, ...]], ...] | None
    reason: str = ""
    died: bool = False
    digest: str = ""
    varies: bool = False


def draw_elements(trial: Trial, place: int) -> "np.ndarray[Any, Any]":
    """Draw the elements of an input."""
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


def list_dtypes(schema: DomainSchema, type_: str) -> list[str]:
    """List the dtypes of a type variable or type from which instances are drawn."""
    return [dtype for dtype in schema.types[type_] if dtype in PLAIN or dtype == "string"]
