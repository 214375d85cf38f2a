"""Confirm that a model of IR version 3 gets initializers that are no inputs, and cannot be calibrated."""

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
[got] = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
np.testing.assert_allclose(got, np.sin([-1, 2]), rtol=1e-3)
path, left = str(Path(tempfile.mkdtemp()) / "quantized.onnx"), [feeds]
reader = type(
    "Reader", (quantization.CalibrationDataReader,), {"get_next": lambda self: left.pop() if left else None}
)
try:
    quantization.quantize_static(model, path, reader())
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "initializer" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
