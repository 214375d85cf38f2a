"""Confirm for onnxslim that the scalar of a ReduceSum with empty axes is declared with a dimension."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxslim

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1.0, 2.0], np.float32)}
expected = [((), [3.0])]
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    values = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
    return [(np.shape(value), np.ravel(value).tolist()) for value in values]


assert run(model) == expected
declared = onnxslim.slim(model).graph.output[0].type.tensor_type.shape
is_confirmed = len(declared.dim) != 0
seen = declared
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxslim"), str(seen)[:200])
sys.exit(not is_confirmed)
