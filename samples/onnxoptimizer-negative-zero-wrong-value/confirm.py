"""Confirm that the constants 0 and -0 become one."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


wanted = np.array([-np.inf], np.float32)
np.testing.assert_allclose(run(model)[1], wanted, rtol=1e-5)  # so the model is valid
got = run(onnxoptimizer.optimize(model))[1]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), seen[:200])
sys.exit(not is_confirmed)
