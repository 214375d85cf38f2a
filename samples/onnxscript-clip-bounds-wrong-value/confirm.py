"""Confirm that a Clip with crossed bounds and the Relu behind it become another Clip with other values."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"level": np.array([-5, 0, 5], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[0, 0, 0]], rtol=1e-5)
seen = run(onnxscript.optimizer.optimize(model))[0].tolist()
is_confirmed = seen != [0, 0, 0]
seen = str(seen)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
