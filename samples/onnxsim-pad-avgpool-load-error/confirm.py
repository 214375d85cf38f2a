"""Confirm that a Pad before an AveragePool becomes pads that are as large as the kernel."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxsim

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"image": np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


run(model)  # the model is valid
try:
    run(onnxsim.simplify(model)[0])
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "pads" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxsim"), seen[:200])
sys.exit(not is_confirmed)
