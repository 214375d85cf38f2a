"""Confirm that the result loses a dimension of size one when a Mul is folded into a MatMul."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1, 2, 3, 4], np.float32)}
weight = onnx.numpy_helper.to_array(model.graph.initializer[1])


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


np.testing.assert_allclose(run("DISABLE_ALL")[0], 2 * feeds["x"].reshape(1, 1, 4) @ weight, rtol=1e-5)
[got] = run("ENABLE_ALL")
is_confirmed = got.shape != (1, 1, 2)
seen = str(got.shape)
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
