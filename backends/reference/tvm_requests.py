"""The reference evaluator on TVM's programs.

A Relax module is traced with its inputs and the trace is evaluated; a TIR function runs step by step.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.reference import tir
from opsieve.backends.reference.relax.evaluator import ModuleEvaluator
from opsieve.gen.irs.registry import ONNX
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.tir.program import TirProgram

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run


def prepare_tir(request: "Request") -> "Run":
    """Prepare a step-by-step run of the function; its passes are skipped, because they keep its meaning.

    In float64, a result that depends on rounding (it changes when every operation is rounded to its type) is
    undefined: `tir.Undefined` says so.
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


def prepare_relax(request: "Request") -> "Run":
    """Prepare a Relax module; its passes are left out, since they change no result."""
    from opsieve.backends.reference.reference import BACKEND

    request.stage("import")
    module = from_json(request.model.decode("utf-8"))
    request.stage("compile")
    translates = request.options.get("tell") == "onnx"
    model = ModuleEvaluator(module, translates).trace(request.inputs).SerializeToString()
    if translates:
        return lambda inputs: {"model": np.frombuffer(model, np.uint8)}
    request.model, request.ir = model, ONNX
    return BACKEND.prepare(request)
