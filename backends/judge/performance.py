"""Two oracles that are off unless asked for: is the optimised build slower, does it need more memory than the
unoptimised one?

Both compare a target with the unoptimised build of the same compiler, run turn by turn so that what else the
machine does hits both. Time is judged by a stated margin and a sign test over the pairs; memory by a stated
margin over several runs' least.
"""

from collections.abc import Callable, Sequence
from math import comb
from statistics import median
from typing import Any

from opsieve.backends.judge.oracles import Lab
from opsieve.backends.judge.reasons import Cause, because, verdict
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import Verdict
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program

ROUNDS = 15
MARGIN = 1.5  # the optimised build may take this many times the time of the unoptimised one
LEVEL = 0.01  # of the sign test
MEMORY_MARGIN = 2.0
MEMORY_FLOOR = 64 << 20  # bytes of difference below which memory is not worth telling
_Sides = tuple[list[Observation], list[Observation]]  # of the target, of its unoptimised build


def slowdown(optimised: Sequence[float], unoptimised: Sequence[float], margin: float = MARGIN) -> Verdict:
    """The verdict on paired wall times in seconds.

    `fail` when the medians are more than `margin` apart and the sign test says that the optimised build takes
    more than `margin` times the time of its pair (one-sided, level 0.01: with 15 pairs at least 13 must);
    `pass` otherwise.
    """
    if len(optimised) != len(unoptimised) or not optimised:
        raise ValueError("slowdown needs as many times of one build as of the other, and at least one")
    slower = sum(a > margin * b for a, b in zip(optimised, unoptimised, strict=True))
    chance = sign_test(slower, len(optimised))
    ratio = median(optimised) / max(median(unoptimised), 1e-12)
    reason = (
        f"the optimised build takes {ratio:.2f} times the time of the unoptimised one"
        f" ({1e3 * median(optimised):.3g} for {1e3 * median(unoptimised):.3g} ms; over {margin:g} times in"
        f" {slower} of {len(optimised)} pairs)"
    )
    if ratio > margin and chance <= LEVEL:
        return Verdict("fail", reason, "slowdown", "run", rules=("slowdown",), blame="optimiser")
    return Verdict("pass", reason, rules=("slowdown",))


def memory(optimised: Sequence[int], unoptimised: Sequence[int], margin: float = MEMORY_MARGIN) -> Verdict:
    """The verdict on peak memory in bytes: `fail` when even the least of the optimised build is over the
    margin.
    """
    if not optimised or not unoptimised:
        raise ValueError("memory needs at least one peak of either build")
    a, b = min(optimised), max(unoptimised)
    reason = f"the optimised build needs {a / 2**20:.0f} MiB, the unoptimised one {b / 2**20:.0f} MiB"
    if a > margin * b and a - b > MEMORY_FLOOR:
        return Verdict("fail", reason, "memory", "run", rules=("memory",), blame="optimiser")
    return Verdict("pass", reason, rules=("memory",))


def sign_test(successes: int, trials: int) -> float:
    """The chance of at least so many successes among fair coins."""
    return sum(comb(trials, k) for k in range(successes, trials + 1)) / 2.0**trials


def measure_slowdown(
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    rounds: int = ROUNDS,
    margin: float = MARGIN,
) -> Verdict:
    """Run the target and its unoptimised build turn by turn and judge the run times.

    Every round is a fresh process of each, so nothing is remembered; no more rounds than it takes to know
    that it is not slower. `undecided` when there is no unoptimised build or a run does not end well.
    """
    slow = next((k for k in range(rounds + 1) if sign_test(k, rounds) <= LEVEL), rounds + 1)

    def settled(sides: _Sides) -> bool:
        return (
            sum(a <= margin * b for a, b in zip(_times(sides[0]), _times(sides[1]), strict=True))
            > rounds - slow
        )

    sides = _turns(program, inputs, target, lab, rounds, settled, ir_of(program).timed_repeats)
    return sides if isinstance(sides, Verdict) else slowdown(_times(sides[0]), _times(sides[1]), margin)


def _times(side: Sequence[Observation]) -> list[float]:
    return [observation.seconds.get("run", 0.0) for observation in side]


def may_be_slower(target: Observation, unoptimised: Observation, margin: float) -> bool:
    """Whether two runs that were done anyway leave it open: the one took more than the margin allows."""
    took, usual = _times((target, unoptimised))
    return bool(took > margin * usual)


def measure_memory(
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    rounds: int = 3,
    margin: float = MEMORY_MARGIN,
) -> Verdict:
    """Run the target and its unoptimised build turn by turn and judge the peaks of resident memory; one pair
    is enough where it is well.
    """

    def settled(sides: _Sides) -> bool:
        return memory(_peaks(sides[0]), _peaks(sides[1]), margin).verdict == "pass"

    sides = _turns(program, inputs, target, lab, rounds, settled)
    return sides if isinstance(sides, Verdict) else memory(_peaks(sides[0]), _peaks(sides[1]), margin)


def _peaks(side: Sequence[Observation]) -> list[int]:
    return [observation.peak_memory for observation in side]


def _turns(
    program: Program,
    inputs: dict[str, Any],
    target: ResolvedTarget,
    lab: Lab,
    rounds: int,
    settled: Callable[[_Sides], bool],
    repeat: int = 0,
) -> _Sides | Verdict:
    """Observations of the target and of its unoptimised build, pair by pair, until more of them would change
    nothing.
    """
    baseline = target.baseline
    if baseline is None or baseline == target:
        return verdict("undecided", because(Cause.NO_BASELINE, target=target))
    sides: _Sides = ([], [])
    for turn in range(rounds):
        # Who goes first alternates: the second of a pair may find warmer caches.
        order = ((target, sides[0]), (baseline, sides[1]))
        for who, side in order if turn % 2 == 0 else reversed(order):
            more = {"repeat": repeat} if repeat else {}
            observation = lab.observe(who, program, inputs, fresh=True, **more)
            if observation.outcome != "ok":
                return verdict(
                    "undecided", because(Cause.NOT_MEASURED, target=who, outcome=observation.outcome)
                )
            side.append(observation)
        if settled(sides):
            break
    return sides
