"""Confirm that a constant is put behind the node that reads it."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"block": np.arange(6, dtype=np.float32).reshape(2, 3, 1)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


assert [each.shape for each in run(model)] == [(1, 6), (6, 1)]  # so the model is valid
try:
    onnx.checker.check_model(onnxscript.optimizer.optimize(model), full_check=True)
    seen = ""
except onnx.checker.ValidationError as error:
    seen = repr(error)
is_confirmed = "not output of any previous nodes" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
