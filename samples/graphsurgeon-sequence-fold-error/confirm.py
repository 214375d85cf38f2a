"""Confirm that folding a sequence raises AttributeError."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [1], rtol=1e-5)
try:
    gs.import_onnx(model).fold_constants()
    seen = ""
except AttributeError as error:
    seen = repr(error)
is_confirmed = "nbytes" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-graphsurgeon"), seen[:200])
sys.exit(not is_confirmed)
