"""Confirm that the axis of a LayerNormalization is lost in the fusion with Add."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime

path = Path(__file__).with_name("model.onnx")
feeds = {
    "x": np.array([1, 2, 3, 4, 5, 6], np.float32).reshape(1, 2, 3),
    "z": np.array([1, 2, 3, 4, 5, 6], np.float32).reshape(1, 2, 3),
}
wanted = np.array([-0.46384948, 0.24338062, 2.1216903, 1.2927699, 3.7566195, 7.3915486], np.float32).reshape(
    1, 2, 3
)
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
[valid] = onnxruntime.InferenceSession(path, plain).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
[got] = onnxruntime.InferenceSession(path).run(["y"], feeds)
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
