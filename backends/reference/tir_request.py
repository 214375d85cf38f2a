"""What the reference evaluator does with a program of the form `tir`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.reference import tir
from opsieve.gen.irs.tir.program import TirProgram

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run


def prepare(request: "Request") -> "Run":
    """The function, to be run step by step; passes are left out, for they change nothing of what it means.

    In float64 a result that rounding alone decides (another one comes out when every operation is rounded to
    its type) is none: `tir.Undefined` says so.
    """
    request.stage("compile")
    function = TirProgram(request.model).entry
    wide = request.options.get("precision") == "float64"

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        rounded = tir.run(function, inputs)
        if not wide:
            return rounded
        exact = tir.run(function, inputs, double=True)
        for name, value in exact.items():
            scale = 1 + np.abs(value.astype(np.float64))
            if np.any(np.abs(value.astype(np.float64) - rounded[name].astype(np.float64)) > 0.02 * scale):
                raise tir.Undefined("rounding alone decides what comes out")
        return exact

    return run
