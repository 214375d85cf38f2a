"""Confirm that the Log of a Softmax without axis makes the optimiser fail."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[0, 0]], np.float32)}


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


np.testing.assert_allclose(
    run(model)[0], np.array([[-0.693147, -0.693147]], np.float32), rtol=1e-5
)  # so the model is valid
try:
    run(onnxoptimizer.optimize(model))
    seen = ""
except Exception as error:
    seen = repr(error.__cause__ or error)
is_confirmed = "axis" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), seen[:200])
sys.exit(not is_confirmed)
