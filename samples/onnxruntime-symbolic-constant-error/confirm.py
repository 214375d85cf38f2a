"""Confirm that a Constant with value_floats raises AttributeError."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[0]], rtol=1e-5)
try:
    SymbolicShapeInference.infer_shapes(model)
    seen = ""
except AttributeError as error:
    seen = repr(error)
is_confirmed = "attribute" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
