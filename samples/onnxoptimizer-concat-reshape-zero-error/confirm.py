"""Confirm for onnxoptimizer that -1 stands beside 0 in a Reshape with allowzero."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.zeros((0, 2), np.float32), "n": np.array([5], np.int64)}
expected = [((0, 5), [])]
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    values = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
    return [(np.shape(value), np.ravel(value).tolist()) for value in values]


assert run(model) == expected
try:
    is_confirmed = (seen := run(onnxoptimizer.optimize(model, ["fuse_concat_into_reshape"]))) != expected
except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
    seen, is_confirmed = error, True
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), str(seen)[:200])
sys.exit(not is_confirmed)
