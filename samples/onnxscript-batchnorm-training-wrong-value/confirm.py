"""Confirm that a BatchNormalization in training mode is folded with its stored statistics."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[[1, 3]], [[1, 3]]], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


wanted = np.array([[[-1, 1]], [[-1, 1]]], np.float32)  # mean 2, variance 1
np.testing.assert_allclose(run(model)[0], wanted, rtol=1e-5)  # so the model is valid
got = run(onnxscript.optimizer.optimize(model))[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
