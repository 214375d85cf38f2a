"""Confirm that the fusion of Add and LayerNormalization takes a scale of one element, which SkipLayerNormalization refuses: the model does not run."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[[1, 3]]], np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


np.testing.assert_allclose(run("DISABLE_ALL")[0], [[[-2, 2]]], rtol=1e-4)
try:
    run("ENABLE_ALL")
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "Last dimension of gamma" in seen
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
