"""Confirm that the shape of an output without dimensions is lost."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxslim

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"grid": np.array([[1, 2], [3, 4]], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [30], rtol=1e-5)
changed = onnxslim.slim(model)
is_confirmed = not changed.graph.output[0].type.tensor_type.HasField("shape")
seen = str(changed.graph.output[0])
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxslim"), seen[:200])
sys.exit(not is_confirmed)
