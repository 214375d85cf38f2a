"""Bound the effect of rounding on a program's outputs: float64 with each result moved by one unit in the last
place.

Monte Carlo arithmetic (Parker, "Monte Carlo arithmetic: exploiting randomness in floating-point arithmetic",
UCLA CSD 970002, 1997; CESTAC of Vignes before it): the movements are random in direction, and the resulting
movement of the outputs is the error allowed for a correct compiler. It shows a case that one correct run
hides: two results that should cancel, and do so in the reference because it rounds them alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto

from opsieve.backends.compare import Policy
from opsieve.backends.judge import oracles, pieces
from opsieve.backends.judge.discontinuity_points import SHIFT, Ask, add_shifts, get_rounding
from opsieve.gen.declarations.properties import Rounding
from opsieve.gen.irs.onnx.edits import tap_model
from opsieve.gen.model.tensors import read_tensor

# Each run costs an evaluation of the program. More runs would find larger movements, which the factor below
# covers.
RUNS = 6
_FLOATS = frozenset(["float16", "bfloat16", "float32", "float64"])
# Of the largest movement seen: as for the peers of `peers-share-the-error`
_FACTOR = 10.0


@dataclass(frozen=True, slots=True)
class Movement:
    """The float64 value of a tensor, and the largest movement of each element by rounding."""

    centre: "np.ndarray[Any, Any]"
    moved: "np.ndarray[Any, Any]"

    @property
    def reach(self) -> "np.ndarray[Any, Any]":
        """The allowed error of each element."""
        return _FACTOR * self.moved

    def is_explaining(self, got: Any, policy: Policy) -> bool:
        """Whether every element of a compiler's result is within the effect of rounding, or the screen."""
        if not isinstance(got, np.ndarray) or got.shape != self.moved.shape or not got.size:
            return False
        allowed = policy.screen(got.dtype.name) * np.abs(self.centre).max()
        return bool((_get_distance(got, self.centre) <= np.maximum(self.reach, allowed)).all())


def measure_movements(
    model: ModelProto, inputs: oracles.Values, outputs: Sequence[str], policy: Policy, ask: Ask
) -> dict[str, Movement]:
    """Measure the movement of each of `outputs`; {} if the model is too large, or a reference fails on it.

    Inputs do not move, because they are given: a Sin of 1e8 has a single right value.
    """
    names = pieces.list_made_values(model)
    if not outputs or not names or len(names) > pieces.MOST_VALUES:
        return {}
    native = ask("native", tap_model(model, names), inputs).outputs
    centre = ask("float64", tap_model(model, names), inputs).outputs
    if native is None or centre is None:
        return {}
    held = {name: read_tensor(tensor) for name, tensor in pieces.get_constants(model).items()}
    makers = {output: node for node in model.graph.node for output in node.output}
    # One unit in the last place of the type in which the compiler computes, not of float64.
    units = {
        name: float(ml_dtypes.finfo(value.dtype).eps)
        * _get_scale(name, makers[name], {**held, **inputs, **centre})
        for name, value in native.items()
        if name in names and _is_float(value)
    }
    changed = add_shifts(model, list(units), outputs)
    # A fixed seed, so that the same case gets the same verdict.
    random = np.random.default_rng(0)
    right = {name: np.asarray(centre[name], np.float64) for name in outputs if _is_float(centre.get(name))}
    moved = {name: np.zeros(value.shape) for name, value in right.items()}
    for _ in range(RUNS):
        # Draw a half to one unit up or down: whole units alone would move one pair in two alike, which
        # then still cancels.
        feeds = {
            name + SHIFT: np.asarray(
                (random.choice((-1.0, 1.0), unit.shape) * random.uniform(0.5, 1.0, unit.shape)) * unit
            )
            for name, unit in units.items()
        }
        run = ask("float64", changed, {**inputs, **feeds}).outputs or {}
        for name, seen in moved.items():
            if name in run and np.shape(run[name]) == seen.shape:
                np.maximum(seen, _get_distance(run[name], right[name]), out=seen)
    return {name: Movement(right[name], seen) for name, seen in moved.items()}


def _get_scale(name: str, node: NodeProto, values: oracles.Values) -> "np.ndarray[Any, Any]":
    """Return the scale of the rounding error of each element of a node: its magnitude, for sums that of the
    terms.
    """
    size, own = np.abs(np.asarray(values[name], np.float64)), get_rounding(node)
    # A sum rounds at the size of its terms, which is far above the result where they cancel.
    if Rounding.SUMS in own:
        given = [values[read] for read in node.input[:2] if _is_float(values.get(read))]
        return np.maximum(size, math.prod(_get_largest(value) for value in given))
    # A Sigmoid or a Sin computes with numbers around 1 even where its result is tiny.
    return np.maximum(size, 1.0) if Rounding.BOUNDED in own else size


def _get_largest(value: Any) -> float:
    size = np.abs(np.asarray(value, np.float64))
    return float(size.max(where=np.isfinite(size), initial=0.0))


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.name in _FLOATS


def _get_distance(value: Any, truth: Any) -> "np.ndarray[Any, Any]":
    with np.errstate(all="ignore"):
        return np.abs(np.asarray(value, np.float64) - np.asarray(truth, np.float64))
