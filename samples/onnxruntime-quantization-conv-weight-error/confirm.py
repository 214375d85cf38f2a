"""Confirm that a Conv with a bias whose weight is an input raises ValueError in dynamic quantisation."""

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[[[1, 2], [3, 4]]]], np.float32), "w": np.full([1, 1, 1, 1], 2, np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
[got] = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
np.testing.assert_allclose(got, [[[[4, 6], [8, 10]]]], rtol=1e-3)
path = str(Path(tempfile.mkdtemp()) / "quantized.onnx")
try:
    quantization.quantize_dynamic(model, path, op_types_to_quantize=["Conv"])
    seen = ""
except ValueError as error:
    seen = repr(error)
is_confirmed = "w" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
