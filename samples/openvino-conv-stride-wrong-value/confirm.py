"""Confirm that a Conv with strides 1 and 2 takes the stride 2 both ways."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import openvino

core = openvino.Core()
model = core.read_model(Path(__file__).with_name("model.onnx"))
run = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
frames = np.arange(60, dtype=np.float32).reshape(4, 1, 5, 3)
feeds = {"frames": frames}
got = next(iter(run(feeds).values()))
padded = np.pad(frames[:, 0], [(0, 0), (0, 1), (0, 0)])
sums = padded[:, :-1, :2].sum(2) + padded[:, 1:, :2].sum(2)  # 2 by 2 windows of ones, at each row
wanted = sums[:, None, :, None] * np.array([1, 2, 3]).reshape(1, 3, 1, 1)
is_confirmed = got.shape == wanted.shape and not np.array_equal(got, wanted)
print(
    "confirmed:" if is_confirmed else "not confirmed:",
    version("openvino"),
    got.ravel()[:5],
    wanted.ravel()[:5],
)
sys.exit(not is_confirmed)
