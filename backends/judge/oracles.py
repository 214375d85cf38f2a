"""The oracles for the right outputs, and the interface that runs them."""

from typing import Any, Protocol

from opsieve.backends import observation, registry
from opsieve.gen.model.program import Program

FLOAT64 = registry.resolve("reference:precision=float64")
NATIVE = registry.resolve("reference:precision=native")
# Shape inference: the types that follow from the inputs
DERIVING = registry.resolve("checker:tell=derived")
# How the outputs that the user gave are called among the oracles
EXPECTED = "expected outputs"
# The rules by which they decide alone, or confirm the reference alone; a part of a program has none.
BY_EXPECTED = "expected-is-truth"
VOUCHED = "expected-confirms"
# Asked where the unoptimised build does not settle who is wrong.
SECOND_ORACLES = (
    registry.resolve("onnxruntime:level=disable_all"),
    registry.resolve("tvm"),
    registry.resolve("torch"),
    registry.resolve("openvino"),
    registry.resolve("tract"),
)

Values = dict[str, Any]


class Lab(Protocol):
    """Runs programs on targets."""

    def observe(
        self,
        target: registry.ResolvedTarget,
        program: Program,
        inputs: Values,
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> observation.Observation:
        """Run the program on the target; in a process forked for it alone if `fresh`, and `repeat` more
        times to measure its time.
        """


def is_independent(target: registry.ResolvedTarget, other: registry.ResolvedTarget) -> bool:
    """Whether `other` is another compiler that shares no optimiser with `target`.

    The unoptimised build of the same compiler shares the kernels and is not independent; it only counts
    against the optimiser.
    """
    return target.family != other.family


def is_confirming(target: registry.ResolvedTarget, other: registry.ResolvedTarget) -> bool:
    """Whether equal outputs of `other` show that the optimiser of `target` did no harm.

    That holds for its own unoptimised build and for an independent compiler; another build of the same
    optimiser shares its faults.
    """
    return is_independent(target, other) or other == target.baseline or target == other.baseline
