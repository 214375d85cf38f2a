"""The optimised model that onnxruntime saves, loaded again and run by onnxruntime with its optimiser off.

https://onnxruntime.ai/docs/performance/model-optimizations/graph-optimizations.html (offline mode): a saved
model must load and mean the same as the original. A failure of onnxruntime during optimisation is a failure
of the target `onnxruntime` at this level, and `environment` here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.ort import LEVELS, refuse_unknown
from opsieve.backends.compilers.transformers import pass_options, targets
from opsieve.backends.compilers.worker_common import NotRun, UnknownName


def save_and_read(model: Any, options: Mapping[str, str]) -> Any:
    """Return the model that a session of the level saves. Raises NotRun if onnxruntime cannot make the
    session.
    """
    import onnx
    import onnxruntime as ort

    chosen = ort.SessionOptions()
    # Only fatal messages: warnings on stderr would be taken for the log of a failure.
    chosen.log_severity_level = 4
    chosen.intra_op_num_threads = chosen.inter_op_num_threads = 1
    if not hasattr(ort.GraphOptimizationLevel, LEVELS[options["level"]]):
        raise UnknownName("no level " + options["level"] + " in this release of onnxruntime")
    chosen.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[options["level"]])
    disabled = pass_options.split_names(options["disabled_optimizers"])
    try:
        refuse_unknown(ort, disabled)
    except ValueError as error:
        raise UnknownName(str(error)) from error
    extra = {"disabled_optimizers": disabled} if disabled else {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "saved.onnx")
        chosen.optimized_model_filepath = path
        try:
            ort.InferenceSession(
                model.SerializeToString(), chosen, providers=["CPUExecutionProvider"], **extra
            )
        # It fails here as the target `onnxruntime` does at this level, where it is reported.
        except Exception as error:
            raise NotRun(str(error)) from error
        return onnx.load(path)


BACKEND = targets.Transformed(
    "onnxruntime-saved",
    {"level": tuple(LEVELS), "disabled_optimizers": ()},
    "level",
    ("onnx", "protobuf", "flatbuffers", "packaging", "coloredlogs", "sympy", "ml_dtypes"),
    (),
    save_and_read,
    package="onnxruntime",
    checked=False,
)
