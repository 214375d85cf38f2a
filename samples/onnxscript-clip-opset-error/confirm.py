"""Confirm that a Clip of opset 10 gets its bound as an input."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1, 2, 3], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model)[0], np.array([2, 2, 3], np.float32), rtol=1e-5)  # so the model is valid
try:
    run(onnxscript.optimizer.optimize(model))
    seen = ""
except Exception as error:
    seen = repr(error.__cause__ or error)
is_confirmed = "input size 2 not in range" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
