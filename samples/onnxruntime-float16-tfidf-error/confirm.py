"""Confirm that the result of TfIdfVectorizer, which is float by definition, is read as float16."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers import float16

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[1]], rtol=1e-5)
try:
    run(float16.convert_float_to_float16(model, keep_io_types=True))
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "float" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
