"""Confirm that folding a Pad makes an AveragePool count its own padding."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[[1, 2]]], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


wanted = np.array([[[0.5, 1, 1, 1]]], np.float32)  # (0 + 1) / 2 at the start
np.testing.assert_allclose(run(model)[0], wanted, rtol=1e-5)  # so the model is valid
got = run(onnxoptimizer.optimize(model))[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), seen[:200])
sys.exit(not is_confirmed)
