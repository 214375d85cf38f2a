"""Confirm that a float16 model of opset 17 is given a DequantizeLinear of float16, which opset 17 lacks."""

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[1, 2]], np.float16)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
[got] = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
np.testing.assert_allclose(got, np.array([[7, 10]], np.uint16).view(np.float16), rtol=1e-3)
path, left = str(Path(tempfile.mkdtemp()) / "quantized.onnx"), [feeds]
get_next = {"get_next": lambda self: left.pop() if left else None}
reader = type("Reader", (quantization.CalibrationDataReader,), get_next)
try:
    quantization.quantize_static(model, path, reader())
    onnxruntime.InferenceSession(path, plain)
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "float16" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
