"""Two optional oracles: is the optimised build slower, or does it need more memory, than the unoptimised one?

Both compare a target with the unoptimised build of the same compiler, run in turn so that other load affects
both. Time is the CPU time of all threads, which other load affects little. It is judged by a margin and a
sign test over the pairs; memory by a margin over the least of several runs.
"""

from collections.abc import Callable, Sequence
from math import comb
from statistics import median
from typing import Any

from opsieve.backends import registry, verdict
from opsieve.backends.judge import oracles, reasons
from opsieve.backends.observation import Observation
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program

# With 15 pairs the sign test reaches its level even if two of them are disturbed by other processes.
ROUNDS = 15
# The optimised build may take this many times the time of the unoptimised one
MARGIN = 1.5
# The smallest difference in CPU seconds: below it, the cost of the call dominates.
TIME_FLOOR = 50e-6
# Level of the one-sided sign test. It needs no distribution of times, which are neither normal nor
# independent of the machine.
LEVEL = 0.01
# Optimised builds may keep packed copies beside the weights of the model.
MEMORY_MARGIN = 2.0
# Below this difference, allocators and lazily loaded libraries dominate the peak of a process.
MEMORY_FLOOR = 64 << 20
# Of the target, of its unoptimised build
_Sides = tuple[list[Observation], list[Observation]]


def judge_slowdown(optimised: Sequence[float], unoptimised: Sequence[float]) -> verdict.Verdict:
    """Judge paired CPU times in seconds.

    `fail` if the medians are more than `MARGIN` apart and the sign test says that the optimised build takes
    more than `MARGIN` times the time of its pair (one-sided, level 0.01: with 15 pairs at least 13 must);
    `pass` otherwise.
    """
    if len(optimised) != len(unoptimised) or not optimised:
        raise ValueError("slowdown needs as many times of one build as of the other, and at least one")
    slower = sum(is_slower(*pair) for pair in zip(optimised, unoptimised, strict=True))
    chance = compute_sign_test(slower, len(optimised))
    # A clock may measure 0 for a tiny program.
    ratio = median(optimised) / max(median(unoptimised), 1e-12)
    reason = (
        f"the optimised build takes {ratio:.2f} times the CPU time of the unoptimised one"
        f" ({1e3 * median(optimised):.3g} for {1e3 * median(unoptimised):.3g} ms; over {MARGIN:g} times in"
        f" {slower} of {len(optimised)} pairs)"
    )
    if ratio > MARGIN and chance <= LEVEL:
        return verdict.Verdict("fail", reason, "slowdown", "run", rules=("slowdown",), blame="optimiser")
    return verdict.Verdict("pass", reason, rules=("slowdown",))


def judge_memory(optimised: Sequence[int], unoptimised: Sequence[int]) -> verdict.Verdict:
    """Judge peak memory in bytes: `fail` if even the least of the optimised build exceeds the margin."""
    if not optimised or not unoptimised:
        raise ValueError("memory needs at least one peak of either build")
    # The comparison that favours the compiler: other load only ever adds to a peak.
    a, b = min(optimised), max(unoptimised)
    reason = f"the optimised build needs {a / 2**20:.0f} MiB, the unoptimised one {b / 2**20:.0f} MiB"
    if a > MEMORY_MARGIN * b and a - b > MEMORY_FLOOR:
        return verdict.Verdict("fail", reason, "memory", "run", rules=("memory",), blame="optimiser")
    return verdict.Verdict("pass", reason, rules=("memory",))


def compute_sign_test(successes: int, trials: int) -> float:
    """Return the probability of at least this many successes among fair coins."""
    return sum(comb(trials, k) for k in range(successes, trials + 1)) / 2.0**trials


def measure_slowdown(
    program: Program,
    inputs: dict[str, Any],
    target: registry.ResolvedTarget,
    lab: oracles.Lab,
    rounds: int = ROUNDS,
) -> verdict.Verdict:
    """Run the target and its unoptimised build in turn and judge the run times.

    Every round is a fresh process of each; rounds stop once a slowdown is excluded. `undecided` without an
    unoptimised build, or if a run fails.
    """
    # The fewest slow pairs with which the test reaches its level; with too many quick ones it cannot.
    slow = next((k for k in range(rounds + 1) if compute_sign_test(k, rounds) <= LEVEL), rounds + 1)

    def is_settled(sides: _Sides) -> bool:
        pairs = zip(_list_times(sides[0]), _list_times(sides[1]), strict=True)
        return sum(not is_slower(*pair) for pair in pairs) > rounds - slow

    sides = _run_in_turn(program, inputs, target, lab, rounds, is_settled, ir_of(program).timed_repeats)
    return (
        sides
        if isinstance(sides, verdict.Verdict)
        else judge_slowdown(_list_times(sides[0]), _list_times(sides[1]))
    )


def _list_times(side: Sequence[Observation]) -> list[float]:
    return [observation.cpu_seconds for observation in side]


def is_slower(took: float, usual: float) -> bool:
    """Return whether a run took more than `MARGIN` times the CPU seconds of the unoptimised build."""
    return took > MARGIN * usual and took - usual > TIME_FLOOR


def measure_memory(
    program: Program,
    inputs: dict[str, Any],
    target: registry.ResolvedTarget,
    lab: oracles.Lab,
    rounds: int = 3,
) -> verdict.Verdict:
    """Run the target and its unoptimised build in turn and judge the peaks of resident memory; one good pair
    is enough.
    """

    def is_settled(sides: _Sides) -> bool:
        return judge_memory(_list_peaks(sides[0]), _list_peaks(sides[1])).verdict == "pass"

    sides = _run_in_turn(program, inputs, target, lab, rounds, is_settled)
    return (
        sides
        if isinstance(sides, verdict.Verdict)
        else judge_memory(_list_peaks(sides[0]), _list_peaks(sides[1]))
    )


def _list_peaks(side: Sequence[Observation]) -> list[int]:
    return [observation.peak_memory for observation in side]


def _run_in_turn(
    program: Program,
    inputs: dict[str, Any],
    target: registry.ResolvedTarget,
    lab: oracles.Lab,
    rounds: int,
    settled: Callable[[_Sides], bool],
    repeat: int = 0,
) -> _Sides | verdict.Verdict:
    """Observe the target and its unoptimised build, pair by pair, until more pairs cannot change the
    result.
    """
    baseline = target.baseline
    if baseline is None or baseline == target:
        return reasons.make_verdict(
            "undecided", reasons.make_reason(reasons.Cause.NO_BASELINE, target=target)
        )
    sides: _Sides = ([], [])
    for turn in range(rounds):
        # Who goes first alternates: the second of a pair may find warmer caches.
        order = ((target, sides[0]), (baseline, sides[1]))
        for who, side in order if turn % 2 == 0 else reversed(order):
            # A fresh process each: memory that an earlier test took would count for the next one.
            observation = lab.observe(who, program, inputs, fresh=True, repeat=repeat)
            if observation.outcome != "ok":
                return reasons.make_verdict(
                    "undecided",
                    reasons.make_reason(reasons.Cause.NOT_MEASURED, target=who, outcome=observation.outcome),
                )
            side.append(observation)
        if settled(sides):
            break
    return sides
