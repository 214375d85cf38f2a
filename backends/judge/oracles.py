"""Who can be asked what a program should give, and what asks them."""

from typing import Any, Protocol

from opsieve.backends.observation import Observation
from opsieve.backends.registry import family
from opsieve.backends.target import Target
from opsieve.gen.model.program import Program

FLOAT64 = Target("reference", options=(("precision", "float64"),))
NATIVE = Target("reference", options=(("precision", "native"),))
EXPECTED = "expected outputs"  # how the outputs that the user gave are called among the oracles
# Asked where the unoptimised build does not settle who is wrong.
SECOND_ORACLES = (
    Target("onnxruntime", options=(("level", "disable_all"),)),
    Target("tvm"),
    Target("torch"),
    Target("openvino"),
    Target("tract"),
)

Values = dict[str, Any]


class Lab(Protocol):
    """Runs programs on targets."""

    def observe(self, target: Target, program: Program, inputs: Values, *, fresh: bool = False) -> Observation:
        """What the program does on the target; in a process forked for it alone when `fresh`."""

    def baseline(self, target: Target) -> Target | None:
        """The unoptimised build of the same compiler and release; None when there is none."""


def independent(target: Target, other: Target) -> bool:
    """Whether the code of `other` has no part in what `target` makes: another compiler, not one that shares its optimiser.

    The unoptimised build is not meant here: it shares the kernels, and its word counts against the optimiser.
    """
    return family(target) != family(other)


def confirms(target: Target, other: Target, lab: Lab) -> bool:
    """Whether outputs of `other` that are equal to those of `target` say that the target's optimiser did no harm.

    Its own unoptimised build does, and an independent compiler; another build of the same optimiser shares its faults.
    """
    return independent(target, other) or other == lab.baseline(target) or target == lab.baseline(other)
