"""Confirm that a Max of one input makes the rewriter fail."""

import sys
import traceback
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1, 2, 3], np.float32)}


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


np.testing.assert_allclose(run(model)[0], np.array([1, 2, 2], np.float32), rtol=1e-5)  # so the model is valid
try:
    run(onnxscript.optimizer.optimize(model))
    seen = ""
except Exception as error:
    seen = repr(traceback.format_exception(error))
is_confirmed = "zero-size array" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
