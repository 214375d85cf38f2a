"""Confirm that a Loop without a condition raises KeyError."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"count": np.array(2)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


assert run(model)[0].tolist() == [0, 1]
try:
    SymbolicShapeInference.infer_shapes(model)
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "KeyError" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
