"""Confirm that the quantised model is not sorted: the If comes before a node that its branches read."""

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
[got] = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)
np.testing.assert_allclose(got, 1, rtol=1e-3)
path = str(Path(tempfile.mkdtemp()) / "quantized.onnx")
quantization.quantize_dynamic(model, path)
kinds = [node.op_type for node in onnx.load(path).graph.node]
is_confirmed = kinds.index("If") < kinds.index("Exp")
seen = str(kinds)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
