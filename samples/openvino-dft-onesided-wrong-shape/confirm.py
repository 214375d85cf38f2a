"""Confirm that a one-sided DFT has a dimension too many."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import openvino
from onnx.reference import ReferenceEvaluator

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([1, 2, 3, 4], np.float32).reshape(1, 4, 1)}
wanted = np.array([10, 0, -2, 2, -2, 0], np.float32).reshape(1, 3, 2)
[valid] = ReferenceEvaluator(onnx.load(path)).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
core = openvino.Core()
model = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
got = model(feeds)[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("openvino"), seen[:200])
sys.exit(not is_confirmed)
