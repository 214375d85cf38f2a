"""Confirm that a ScatterND that adds becomes one that replaces."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[11, 22]], rtol=1e-5)
seen = run(onnxscript.optimizer.optimize(model))[0].tolist()
is_confirmed = seen == [1, 2]
seen = str(seen)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
