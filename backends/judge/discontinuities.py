"""Operators that jump: a rounding error before a Floor, an ArgMax or a comparison can become any difference
behind it.

A mismatch behind such an operator is excused by the rule `jump` in one of two ways.

Own values: the candidate is asked for what goes into each jump as well. If its outputs stay the same bit for
bit, the float64 reference computes every stretch of the model from the candidate's own value at the stretch's
start. When each stretch agrees, the candidate is right everywhere and only a value near a jump fell to the
other side. A value that is wrong before a jump excuses nothing. If only the part behind the jumps disagrees,
the reach below is tried with a hundredth of the screen.

Values that decide how many there are (NonZero, Unique) are such operators too: a shape can be excused.

Reach: otherwise (asking changed what the compiler did, or the operator itself computes before it rounds) the
candidate is asked for the values before the jumps alone, with nothing behind them, for all and for the last
three one by one; where they are right, the float64 reference runs with them moved by what an honest rounding
error can be: ten times that of the native reference, a tenth of the screen at least and the screen at most;
all up, all down, the later the lower or the higher, and in random directions. An output within the envelope
of these runs could have come from an honest rounding error.

`excuses` asks its questions through a function that observes; where a model jumps stands in
discontinuity_points.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto

from opsieve.backends.compare import Policy, compare, error, identical
from opsieve.backends.compilers.float64_model import promote_value
from opsieve.backends.judge import discontinuity_points, perturbation
from opsieve.gen.irs.onnx.edits import tap_model

# The systematic directions come first: random ones seldom push all equal elements over a tie.
_DIRECTED_SHIFTS = 4
# Two values near a tie move apart in one of four: missed in one of 100 cases
_RANDOM_SHIFTS = 16
# Of the screen: how far the value that a fused kernel used can lie from the one it stores when it is asked
# to.
_UNSEEN = 0.01
# Of the screen: how far a value may lie off where the candidate cannot be asked for it and the reference
# rounds less; and how many times the error of the native reference. Both are those of the rule
# `peers-share-the-error`.
_HONEST = 0.1
# Points that are requested one by one.
_LAST = 3
_PEER_FACTOR = 10.0


def excuses(
    model: ModelProto,
    inputs: discontinuity_points.Values,
    got: Mapping[str, Any],
    wrong: Sequence[str],
    dtypes: Mapping[str, str],
    policy: Policy,
    ask: discontinuity_points.Ask,
    wide: bool = True,
    last: int = _LAST,
) -> tuple[str, ...]:
    """Return the outputs among `wrong` whose mismatch the rule `jump` excuses; `got` are the candidate's
    outputs.

    If the model has no float64 version, the reference in the model's own types takes its place: not `wide`.
    `last` is how many points are requested one by one if requesting all of them changes the candidate's
    behaviour.
    """
    where = discontinuity_points.find_points(model, wrong)
    if not where.names and not where.scales:
        return ()
    fed = {value.name for value in model.graph.input}
    made = [name for name in where.names if name not in fed]
    native = ask("native", tap_model(model, made), inputs)
    if native.outputs is None:
        return ()
    kinds = {name: _get_dtype(native.outputs.get(name)) for name in made}
    # Only floats have rounding errors; integers that feed a jump are exact.
    made = [name for name in made if kinds[name] in policy.screens]
    given = [name for name in where.names if name in fed and _get_dtype(inputs.get(name)) in policy.screens]
    if not made and not given and not where.scales:
        return ()
    # A jump that only reads inputs has nothing computed before it.
    centre = ask("float64", tap_model(model, made), inputs) if made else native
    if centre.outputs is None:
        return ()
    peers = {name: error(native.outputs[name], centre.outputs[name]) for name in made}
    case = _Case(model, inputs, got, dtypes, kinds, peers, policy, ask)
    # If an operator computes before it jumps, its inputs do not show on which side it fell.
    own = case.test_own_values(wrong, made) if made and where.decided else None
    if made and not case.is_right_before(made, own, centre.outputs, wide, last):
        return ()
    excused = own.excused if own is not None else ()
    left = [name for name in wrong if name not in excused]
    if not left:
        return excused
    model, inputs = discontinuity_points.feed_constants(model, inputs, where.scales)
    given = [*given, *where.scales]
    kinds.update((name, _get_dtype(inputs[name])) for name in given)
    # The candidate's own values were right, so only what a fused kernel hides may still move.
    steps = {name: _UNSEEN * policy.screen(kinds[name]) for name in (*made, *given)}
    if own is None:
        steps.update((name, case.get_allowed_error(name)) for name in made)
        steps.update(
            (name, _HONEST * policy.screen(kinds[name])) for name in given if name not in where.scales
        )
    remainders = {} if own is not None else case.measure_rounding(made)
    own_types = {} if wide else {name: np.dtype(kinds[name]) for name in steps}
    steps = {
        # A smaller step would be rounded away in the point's own type, and nothing would move.
        name: max(step, float(ml_dtypes.finfo(own_types[name]).eps)) if name in own_types else step
        for name, step in steps.items()
    }
    return (
        *excused,
        *_find_reachable(
            model, inputs, got, left, dtypes, steps, remainders, given, where.scales, own_types, policy, ask
        ),
    )


@dataclass(frozen=True, slots=True)
class _Own:
    """The result of testing the candidate's own values: wrong before a discontinuity, or the outputs that
    they excuse.
    """

    is_wrong_before: bool
    excused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stretches:
    """The model cut at the points, with the candidate's values there as feeds, and float64's result of each
    stretch.
    """

    model: ModelProto
    feeds: discontinuity_points.Values
    right: discontinuity_points.Values


@dataclass(frozen=True, slots=True)
class _Case:
    """A mismatch under test; `peers` are the errors of the native reference at the points."""

    model: ModelProto
    inputs: discontinuity_points.Values
    got: Mapping[str, Any]
    dtypes: Mapping[str, str]
    kinds: Mapping[str, str]
    peers: Mapping[str, float]
    policy: Policy
    ask: discontinuity_points.Ask

    def get_allowed_error(self, name: str) -> float:
        """Return how far a rounding error may move a point, relative to its largest magnitude.

        The limit is ten times the reference's own error, within the screen.
        """
        screen = self.policy.screen(self.kinds[name])
        return min(screen, max(_HONEST * screen, _PEER_FACTOR * self.peers[name]))

    def measure_rounding(self, made: list[str]) -> dict[str, "np.ndarray[Any, Any]"]:
        """Measure how far rounding alone moves each element of the points."""
        moved = (
            perturbation.measure_movements(
                discontinuity_points.cut_prefix(self.model, made), self.inputs, made, self.policy, self.ask
            )
            if made
            else {}
        )
        return {name: movement.reach for name, movement in moved.items()}

    def test_own_values(self, wrong: Sequence[str], made: list[str]) -> _Own | None:
        """Test the candidate's own values; returns `None` if the candidate computes differently with more
        outputs.
        """
        own = self.ask("candidate", tap_model(self.model, made), self.inputs)
        # Reading more values can switch off an optimisation; the values are then not those of the failing
        # run.
        if own.outputs is None or not all(identical(own.outputs.get(name), self.got[name]) for name in wrong):
            return None
        stretches = self._cut_stretches(self.model, own.outputs, wrong, made)
        if stretches is None:
            return None
        if not self._is_sound(own.outputs, stretches, made):
            return _Own(True)
        behind = compare(self.got, {name: stretches.right[name] for name in wrong}, self.dtypes, self.policy)
        return _Own(False, tuple(name for name in wrong if name not in behind.mismatches))

    def is_right_before(
        self, made: list[str], own: _Own | None, right: discontinuity_points.Values, wide: bool, last: int
    ) -> bool:
        """Whether the candidate is right up to the points.

        Its own values decide if available, then a run of all points without the part behind them, then the
        last points one by one.
        """
        if own is not None:
            return not own.is_wrong_before
        # The last ones have the longest computation behind them; to ask for each costs a run of the
        # candidate.
        alone = made[len(made) - last :] if len(made) > 1 else []
        return self.is_sound_before(made) and all(
            self.is_sound_alone(name, right[name], wide) for name in alone
        )

    def is_sound_before(self, made: list[str]) -> bool:
        """Return whether the candidate is right up to the discontinuities, in a model that ends there."""
        prefix = discontinuity_points.cut_prefix(self.model, made)
        own = self.ask("candidate", prefix, self.inputs)
        if own.outputs is None:
            return True
        stretches = self._cut_stretches(prefix, own.outputs, (), made)
        return stretches is None or self._is_sound(own.outputs, stretches, made)

    def is_sound_alone(self, name: str, right: Any, wide: bool) -> bool:
        """Whether the candidate is right at one point in a model that ends there; this shows faults hidden by
        more outputs.
        """
        prefix = discontinuity_points.cut_prefix(self.model, [name])
        own = self.ask("candidate", prefix, self.inputs).outputs
        if own is None or compare(own, {name: right}, self.kinds, self.policy).agrees:
            return True
        if error(own.get(name), right) <= _PEER_FACTOR * self.peers[name]:
            return True
        moved = perturbation.measure_movements(prefix, self.inputs, [name], self.policy, self.ask)
        if name in moved and moved[name].is_explaining(own.get(name), self.policy):
            return True
        return name in own and bool(
            # With `last=0`, or each level of the recursion would ask for points again.
            excuses(prefix, self.inputs, own, [name], self.kinds, self.policy, self.ask, wide, last=0)
        )

    def _cut_stretches(
        self, model: ModelProto, own: discontinuity_points.Values, wrong: Sequence[str], made: list[str]
    ) -> "_Stretches | None":
        """Compute each stretch in float64 from the candidate's values at its start; returns `None` if that is
        impossible.
        """
        if not all(_get_dtype(own.get(name)) == self.kinds[name] for name in made):
            return None
        parts, feeds = (
            discontinuity_points.sever(model, made, wrong),
            {**self.inputs, **{name: own[name] for name in made}},
        )
        right = self.ask("float64", parts, feeds).outputs
        return None if right is None else _Stretches(parts, feeds, right)

    def _is_sound(self, own: discontinuity_points.Values, stretches: "_Stretches", made: list[str]) -> bool:
        """Whether each point is within the screen, ten times the native reference's error, or the effect of
        rounding.

        Two results that should cancel leave a remainder that is large beside 0.
        """
        before = {name: stretches.right[name + discontinuity_points.MADE] for name in made}
        off = compare({name: own[name] for name in made}, before, self.kinds, self.policy).mismatches
        left = [name for name in off if error(own[name], before[name]) > _PEER_FACTOR * self.peers[name]]
        if not left:
            return True
        ends = [name + discontinuity_points.MADE for name in left]
        moved = perturbation.measure_movements(stretches.model, stretches.feeds, ends, self.policy, self.ask)
        return all(
            name + discontinuity_points.MADE in moved
            and moved[name + discontinuity_points.MADE].is_explaining(own[name], self.policy)
            for name in left
        )


def _find_reachable(
    model: ModelProto,
    inputs: discontinuity_points.Values,
    got: Mapping[str, Any],
    wrong: Sequence[str],
    dtypes: Mapping[str, str],
    steps: Mapping[str, float],
    remainders: Mapping[str, "np.ndarray[Any, Any]"],
    given: Sequence[str],
    scales: Sequence[str],
    types: Mapping[str, "np.dtype[Any]"],
    policy: Policy,
    ask: discontinuity_points.Ask,
) -> tuple[str, ...]:
    """Find the excused outputs.

    `steps` are how far the points may move, relative to their largest magnitude (scales: to each value).
    `remainders` are the effect of rounding by itself, which is larger where terms cancel. `types` are those
    of points in other types than float64.
    """
    made = [name for name in steps if name not in given]
    changed = discontinuity_points.add_shifts(model, made, wrong)
    still = {name + discontinuity_points.SHIFT: np.zeros((), types.get(name, np.float64)) for name in made}
    centre = ask("float64", changed, {**inputs, **still})
    if centre.outputs is None:
        return ()
    values = {name: np.asarray(centre.outputs[name + discontinuity_points.MADE], np.float64) for name in made}
    values.update({name: np.asarray(promote_value(inputs[name])) for name in given})
    sizes = {name: np.asarray(_get_step(value, steps[name])) for name, value in values.items()}
    # Where terms cancel, rounding by itself moves a value farther than the step.
    sizes.update({name: np.maximum(sizes[name], left) for name, left in remainders.items()})
    sizes.update({name: steps[name] * np.abs(values[name]) for name in scales})
    # Drawn from a fixed seed: the same case gives the same verdict.
    random = np.random.default_rng(0)
    runs = [centre.outputs]
    for turn in range(_DIRECTED_SHIFTS + _RANDOM_SHIFTS):
        feeds = dict(inputs)
        for name, value in values.items():
            moved_to = _choose_direction(turn, value.shape, random) * sizes[name] + (
                np.zeros(value.shape) if name in made else value
            )
            feeds[name + discontinuity_points.SHIFT if name in made else name] = np.asarray(
                moved_to, types.get(name, np.float64)
            )
        moved = ask("float64", changed, feeds)
        if moved.outputs is not None:
            runs.append(moved.outputs)
    return tuple(
        name
        for name in wrong
        if _is_within(got[name], [run[name] for run in runs], policy.screen(dtypes.get(name, "")))
    )


def _choose_direction(
    turn: int, shape: tuple[int, ...], random: np.random.Generator
) -> "np.ndarray[Any, Any]":
    """Choose where the elements of a point move, from -1 to 1.

    The directions are all up, all down, decreasing, increasing (so that of many equal elements the last
    becomes the least or the greatest), and random.
    """
    if turn < 2:
        return np.full(shape, (1.0, -1.0)[turn])
    if turn < _DIRECTED_SHIFTS:
        ramp = np.linspace(1.0, -1.0, int(np.prod(shape))).reshape(shape)
        return ramp if turn == 2 else -ramp
    return random.choice((-1.0, 1.0), shape)


def _is_within(got: Any, runs: Sequence[Any], screen: float) -> bool:
    """Whether every element of `got` lies between the least and the greatest of the runs, within the
    screen.
    """
    if not isinstance(got, np.ndarray) or got.dtype.kind in "OUSc":
        return False
    alike = [np.asarray(run, np.float64) for run in runs if np.shape(run) == got.shape]
    if not alike or got.size == 0:
        return False
    value, stack = got.astype(np.float64), np.stack(alike)
    with np.errstate(all="ignore"):
        low, high = stack.min(axis=0), stack.max(axis=0)
        # The ordinary tolerance applies on top of what the jumps explain.
        slack = screen * float(np.abs(alike[0]).max())
        inside = (value >= low - slack) & (value <= high + slack)
    # NaN is in no interval; it is excused where one of the runs gives it too.
    return bool((inside | (np.isnan(value) & np.isnan(stack).any(axis=0))).all())


def _get_step(value: Any, share: float) -> float:
    # One infinite element would make every step infinite.
    finite = np.abs(value[np.isfinite(value)])
    return share * float(finite.max()) if finite.size else 0.0


def _get_dtype(value: Any) -> str:
    return str(value.dtype.name) if isinstance(value, (np.ndarray, np.generic)) else ""
