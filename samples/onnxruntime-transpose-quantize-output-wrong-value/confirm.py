"""Confirm that An output that is also transposed and quantised is quantised itself: 1 instead of 1.4142."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.float32([[1, 2]])}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


wanted = np.sqrt(feeds["x"])
np.testing.assert_allclose(run("DISABLE_ALL")[0], wanted)
got = run("ENABLE_ALL")[0]
is_confirmed = not np.allclose(got, wanted)
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, got.tolist())
sys.exit(not is_confirmed)
