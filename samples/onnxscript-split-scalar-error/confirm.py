"""Confirm that a SplitToSequence with an unknown chunk size makes the optimiser fail."""

import sys
import traceback
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1, 2, 3, 4], np.float32), "size": np.array(2, np.int64)}


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


np.testing.assert_allclose(run(model)[0], np.array([3, 4], np.float32), rtol=1e-5)  # so the model is valid
try:
    run(onnxscript.optimizer.optimize(model))
    seen = ""
except Exception as error:
    seen = repr(traceback.format_exception(error))
is_confirmed = "ndim" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
