"""Confirm for onnxslim that the readers of the mask get the data."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxslim

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1.0, 2.0], np.float32)}
expected = [((2,), [-1.0, -2.0]), ((2,), [False, False])]
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    values = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
    return [(np.shape(value), np.ravel(value).tolist()) for value in values]


assert run(model) == expected
try:
    is_confirmed = (seen := run(onnxslim.slim(model))) != expected
except onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph as error:
    seen, is_confirmed = error, True
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxslim"), str(seen)[:200])
sys.exit(not is_confirmed)
