"""Confirm that a graph whose output is an optional cannot be exported."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


run(model)  # the model is valid
try:
    gs.export_onnx(gs.import_onnx(model))
    seen = ""
except UnboundLocalError as error:
    seen = repr(error)
is_confirmed = "onnx_tensor" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-graphsurgeon"), seen[:200])
sys.exit(not is_confirmed)
