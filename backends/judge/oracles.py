"""Who can be asked what a program should give, and what asks them."""

from typing import Any, Protocol

from opsieve.backends.observation import Observation
from opsieve.backends.target import Target
from opsieve.gen.model.program import Program

FLOAT64 = Target("reference", options=(("precision", "float64"),))
NATIVE = Target("reference", options=(("precision", "native"),))
EXPECTED = "expected outputs"  # how the outputs that the user gave are called among the oracles
# Asked where the unoptimised build does not settle who is wrong.
SECOND_ORACLES = (Target("onnxruntime", options=(("level", "disable_all"),)), Target("tvm"))

Values = dict[str, Any]


class Lab(Protocol):
    """Runs programs on targets."""

    def observe(self, target: Target, program: Program, inputs: Values, *, fresh: bool = False) -> Observation:
        """What the program does on the target; in a process forked for it alone when `fresh`."""

    def baseline(self, target: Target) -> Target | None:
        """The unoptimised build of the same compiler and release; None when there is none."""
