"""Confirm that add_prefix renames an initializer and not its uses in the branches of an If."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx.compose import add_prefix

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"c": np.array(True), "x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[0, 4]], rtol=1e-5)
try:
    onnx.checker.check_model(add_prefix(model, "part/", rename_inputs=False, rename_outputs=False))
    seen = ""
except onnx.checker.ValidationError as error:
    seen = repr(error)
is_confirmed = "'w'" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx"), seen[:200])
sys.exit(not is_confirmed)
