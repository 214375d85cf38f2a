"""Confirm that the window of LRN of size 2 reaches to the wrong side."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import openvino

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([[[1], [2]]], np.float32)}
wanted = np.array([[[0.166667], [0.4]]], np.float32)  # 1 / (1 + 1 + 4), 2 / (1 + 4)
core = openvino.Core()
model = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
got = model(feeds)[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("openvino"), seen[:200])
sys.exit(not is_confirmed)
