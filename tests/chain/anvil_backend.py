"""The backend `anvil`, a plug-in: a compiler with releases, builds, an unoptimised build and passes, of which
every failure is planted.
"""

import os
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import onnx.reference.ops._op_list  # noqa: F401 -- once for the zygotes of all releases, in the process before them

from opsieve.backends.compilers.worker_common import CLASSES, meaning_of

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

NAMED = {**CLASSES, "FakeUnsupported": "unsupported", "FakeRejection": "rejected", "BadFaults": "environment"}
NAMED.update(
    {"ValidationError": "rejected", "InferenceError": "rejected", "RuntimeImplementationError": "unsupported"}
)
NAMED["RuntimeContextError"] = "unsupported"

MODULE_SCRIPT = """\
def run(module, inputs):
    import anvil

    return anvil.build(module.encode(), %a, form=%a)(inputs)
"""
SCRIPT = """\
def run(model, inputs):
    import anvil

    return anvil.build(model, %a)(inputs)
"""


class Anvil:
    """The backend `anvil`."""

    name = "anvil"
    package = "anvil"
    extra = ""
    irs = ("onnx", "relax", "tir")
    helper = True  # nobody looks for its bugs unasked
    options: Mapping[str, tuple[str, ...]] = {
        "faults": (), "level": ("on", "off"), "disabled": (), "trace": ("off", "on"), "seed": (),
        "like": ("", "1.0")
    }  # fmt: skip
    main_option = "faults"
    baseline: Mapping[str, str] = {"level": "off"}
    environment: Mapping[str, str] = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    lacks: tuple[str, ...] = ("a compiler: its failures are planted",)

    def base(self, python: tuple[int, int]) -> tuple[str, ...]:
        return ("numpy", "onnx")

    def companions(self, release: str) -> tuple[str, ...]:
        return ()

    def load(self) -> str:
        sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # behind that of a release
        import anvil

        return str(anvil.__version__)

    def prepare(self, request: "Request") -> "Run":
        import anvil

        return anvil.build(request.model, dict(request.options), request.stage, request.ir)

    def classify(self, stage: str, exception: str, message: str) -> str:
        return meaning_of(exception, message, (), NAMED)

    def script_of_module(self, program: Any, text: bool, options: Mapping[str, str]) -> str:
        return "" if text else MODULE_SCRIPT % (dict(options), program.ir)

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        return SCRIPT % (dict(options),)


BACKEND = Anvil()
