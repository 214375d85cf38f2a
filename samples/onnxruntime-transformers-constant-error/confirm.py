"""Confirm that QuickGelu's fusion raises AttributeError for a Constant with value_float."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers.optimizer import optimize_model

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[-1 / (1 + np.e), 2 / (1 + np.exp(-2))]], rtol=1e-5)
try:
    optimize_model(model, model_type="bert", opt_level=0)
    seen = ""
except AttributeError as error:
    seen = repr(error)
is_confirmed = "attribute" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
