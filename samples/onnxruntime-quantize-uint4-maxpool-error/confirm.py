"""Confirm that QuantizeLinear to uint4 moves to the front of a MaxPool, which does not take uint4: the model does not load."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[[3, 4]]], np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


np.testing.assert_allclose(run("DISABLE_ALL")[0], [[[4]]], rtol=1e-4)
try:
    run("ENABLE_ALL")
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "tensor(uint4)" in seen
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
