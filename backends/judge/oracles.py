"""Who can be asked what a program should give, and what asks them."""

from typing import Any, Protocol

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.model.program import Program

FLOAT64 = resolve("reference:precision=float64")
NATIVE = resolve("reference:precision=native")
DERIVING = resolve("checker:tell=derived")  # shape inference: the types that follow from the inputs
EXPECTED = "expected outputs"  # how the outputs that the user gave are called among the oracles
# Asked where the unoptimised build does not settle who is wrong.
SECOND_ORACLES = (
    resolve("onnxruntime:level=disable_all"),
    resolve("tvm"),
    resolve("torch"),
    resolve("openvino"),
    resolve("tract"),
)

Values = dict[str, Any]


class Lab(Protocol):
    """Runs programs on targets."""

    def observe(
        self, target: ResolvedTarget, program: Program, inputs: Values, *, fresh: bool = False
    ) -> Observation:
        """What the program does on the target; in a process forked for it alone when `fresh`."""


def independent(target: ResolvedTarget, other: ResolvedTarget) -> bool:
    """Whether the code of `other` has no part in what `target` makes: another compiler, not one that shares
    its optimiser.

    The unoptimised build is not meant here: it shares the kernels, and its word counts against the optimiser.
    """
    return target.family != other.family


def confirms(target: ResolvedTarget, other: ResolvedTarget) -> bool:
    """Whether outputs of `other` that are equal to those of `target` say that the target's optimiser did no
    harm.

    Its own unoptimised build does, and an independent compiler; another build of the same optimiser shares
    its faults.
    """
    return independent(target, other) or other == target.baseline or target == other.baseline
