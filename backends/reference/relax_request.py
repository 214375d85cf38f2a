"""A Relax module as a request of the reference: it is traced with the inputs, and the trace is evaluated."""

from typing import TYPE_CHECKING

import numpy as np

from opsieve.backends.reference.relax.evaluator import ModuleEvaluator
from opsieve.gen.irs.registry import ONNX
from opsieve.gen.irs.relax.reading import from_json

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run


def prepare(request: "Request") -> "Run":
    """A Relax module; its passes are left out, since they change no result."""
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
