"""Confirm that casts in both branches of an If get one name: the saved model does not load again."""

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options, file = onnxruntime.SessionOptions(), tempfile.mkdtemp() + "/saved.onnx"
options.optimized_model_filepath = file
onnxruntime.InferenceSession(model.SerializeToString(), options)
try:
    onnxruntime.InferenceSession(file, plain)
    seen = ""
except Exception as error:
    seen = str(error)
is_confirmed = "single static assignment" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
