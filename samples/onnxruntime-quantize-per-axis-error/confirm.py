"""Confirm that a QuantizeLinear by one scale and a DequantizeLinear by one for each column do not run."""

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


np.testing.assert_allclose(run("DISABLE_ALL")[0], [[6, 12]], rtol=1e-4)
try:
    run("ENABLE_ALL")
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "PrepareForQDQ" in seen
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
