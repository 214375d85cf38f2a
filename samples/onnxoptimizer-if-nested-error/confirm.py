"""Confirm that the body of an If in an inlined branch reads a value that is gone."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1], np.float32), "d": np.array(1, bool)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model)[0], np.array([1], np.float32), rtol=1e-5)  # so the model is valid
try:
    run(onnxoptimizer.optimize(model))
    seen = ""
except Exception as error:
    seen = repr(error.__cause__ or error)
is_confirmed = "topologically sorted" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), seen[:200])
sys.exit(not is_confirmed)
