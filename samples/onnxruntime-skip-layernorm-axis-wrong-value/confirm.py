"""Confirm that the axis of a LayerNormalization is lost in the fusion with Add."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime

path = Path(__file__).with_name("model.onnx")
x = np.array([[[0], [1]]], np.float32)
feeds = {"x0": x}
wanted = 2 * x - 1  # the mean of 0 and 2 is 1, their deviation too
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
[valid] = onnxruntime.InferenceSession(path, plain).run(["v1"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
[got] = onnxruntime.InferenceSession(path).run(["v1"], feeds)
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
