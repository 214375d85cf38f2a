"""What rounding alone can do to a program's outputs: float64, with every result on the way moved by a unit in the last place of its own type.

Monte Carlo arithmetic (Parker, "Monte Carlo arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD 970002, 1997; CESTAC
of Vignes before it): the movements are random in direction, and what the outputs move by is what an honest compiler may be off by. It
shows what one honest run does not: two results that should cancel, and do so in the reference because it rounds them alike.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto

from opsieve.backends.compare import Policy
from opsieve.backends.judge.discontinuities import Ask
from opsieve.backends.judge.discontinuity_points import SHIFT, shifted
from opsieve.backends.judge.localise import MOST_VALUES
from opsieve.backends.judge.oracles import Values
from opsieve.backends.judge.pieces import made_values, tapped

RUNS = 6
_FACTOR = 10.0  # of the largest movement seen: as for the peers of `peers-share-the-error`


def magnified(
    model: ModelProto, inputs: Values, got: Mapping[str, Any], wrong: Sequence[str], policy: Policy, ask: Ask
) -> tuple[str, ...]:
    """The outputs among `wrong` of which every element is off by no more than rounding can move it; `got` is what the candidate gave."""
    names = made_values(model)
    if not wrong or not names or len(names) > MOST_VALUES:
        return ()
    native = ask("native", tapped(model, names), inputs).outputs
    centre = ask("float64", tapped(model, names), inputs).outputs
    if native is None or centre is None:
        return ()
    units = {
        name: float(ml_dtypes.finfo(value.dtype).eps) * np.abs(np.asarray(centre[name], np.float64))
        for name, value in native.items()
        if name in names and isinstance(value, np.ndarray) and policy.screen(value.dtype.name)
    }
    changed = shifted(model, list(units), wrong)
    random = np.random.default_rng(0)  # the same case gives the same verdict
    moved = {name: np.zeros(np.shape(centre[name])) for name in wrong if name in centre}
    for _ in range(RUNS):
        feeds = {
            name + SHIFT: np.asarray(random.choice((-1.0, 1.0), unit.shape) * unit) for name, unit in units.items()
        }
        run = ask("float64", changed, {**inputs, **feeds}).outputs or {}
        for name, seen in moved.items():
            if name in run and np.shape(run[name]) == seen.shape:
                np.maximum(seen, _off(run[name], centre[name]), out=seen)
    return tuple(name for name, seen in moved.items() if _explained(got[name], centre[name], seen, policy))


def _explained(got: Any, truth: Any, moved: "np.ndarray[Any, Any]", policy: Policy) -> bool:
    if not isinstance(got, np.ndarray) or got.shape != moved.shape or not got.size:
        return False
    off, largest = _off(got, truth), np.abs(np.asarray(truth, np.float64)).max()
    return bool((off <= np.maximum(_FACTOR * moved, policy.screen(got.dtype.name) * largest)).all())


def _off(value: Any, truth: Any) -> "np.ndarray[Any, Any]":
    with np.errstate(all="ignore"):
        return np.abs(np.asarray(value, np.float64) - np.asarray(truth, np.float64))
