"""Confirm that Resize ignores exclude_outside."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
import openvino

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([1, 5, 2, 8], np.float32).reshape(1, 1, 1, 4)}
wanted = np.array(
    [0.45454544, 1.9151944, 4.2943397, 4.53125, 2.1875, 3.2113206, 6.6749115, 8.818182], np.float32
).reshape(1, 1, 1, 8)
[valid] = onnxruntime.InferenceSession(path).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
core = openvino.Core()
model = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
got = model(feeds)[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("openvino"), seen[:200])
sys.exit(not is_confirmed)
