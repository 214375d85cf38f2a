"""Confirm that SpaceToDepth ignores mode."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx.reference
import openvino

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32).reshape(1, 2, 2, 2)}
wanted = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32).reshape(1, 8, 1, 1)
[valid] = onnx.reference.ReferenceEvaluator(str(path)).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
core = openvino.Core()
model = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
got = model(feeds)[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("openvino"), seen[:200])
sys.exit(not is_confirmed)
