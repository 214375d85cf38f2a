"""Confirm that the fusion of MatMul and BatchNormalization removes the Reshape between them, although its result is an output of the model."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[3, 4]], np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


np.testing.assert_allclose(run("DISABLE_ALL")[0], [[3, 4]], rtol=1e-4)
try:
    run("ENABLE_ALL")
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "Failed to find node output" in seen
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
