"""Confirm that toposort of a model with a function and an If recurses for ever."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"c": np.array(True), "x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[0, -2]], rtol=1e-5)
try:
    gs.import_onnx(model).cleanup().toposort()
    seen = ""
except RecursionError as error:
    seen = repr(error)
is_confirmed = "maximum recursion depth" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-graphsurgeon"), seen[:200])
sys.exit(not is_confirmed)
