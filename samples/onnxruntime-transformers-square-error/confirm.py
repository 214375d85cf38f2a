"""Confirm that the fusion of an RMS normalisation whose square is a Mul raises TypeError."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers.optimizer import optimize_model

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.ones([4, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[[1 / 1.01**0.5, 3 / 1.01**0.5]] * 4], rtol=1e-5)
try:
    optimize_model(model, model_type="bert", opt_level=0)
    seen = ""
except TypeError as error:
    seen = repr(error)
is_confirmed = bool(seen)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
