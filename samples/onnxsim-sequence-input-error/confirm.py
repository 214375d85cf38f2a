"""Confirm that the input of the graph loses its name."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxsim

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[1, 2]], rtol=1e-5)
changed = onnxsim.simplify(model)[0]
names = [each.name for each in changed.graph.input]
is_confirmed = names != ["x"]
seen = str(names)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxsim"), seen[:200])
sys.exit(not is_confirmed)
