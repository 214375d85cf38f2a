"""Confirm that a folded constant of strings cannot be exported."""

import sys
from importlib.metadata import version
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


assert run(model) == [""]  # so the model is valid
try:
    gs.export_onnx(gs.import_onnx(model).fold_constants())
    seen = ""
except TypeError as error:
    seen = repr(error)
is_confirmed = "raw_data" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-graphsurgeon"), seen[:200])
sys.exit(not is_confirmed)
