"""Confirm for onnxslim that 0 and -0 are tied."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxslim

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1.0], np.float32)}
expected = [((1,), [np.inf]), ((1,), [-np.inf])]
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    values = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
    return [(np.shape(value), np.ravel(value).tolist()) for value in values]


assert run(model) == expected
seen = run(onnxslim.slim(model))
is_confirmed = seen != expected
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxslim"), str(seen)[:200])
sys.exit(not is_confirmed)
