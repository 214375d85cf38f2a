"""Confirm that an integer division by -2 rounds down, where ONNX truncates."""

import sys
from importlib.metadata import version
from pathlib import Path

import openvino

core = openvino.Core()
model = core.read_model(Path(__file__).with_name("model.onnx"))
run = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
feeds = {}
got = next(iter(run(feeds).values()))
wanted = [0, -1, -1, -2]  # 1 to 4 by -2, truncated
is_confirmed = got.tolist() != wanted
print("confirmed:" if is_confirmed else "not confirmed:", version("openvino"), got.tolist())
sys.exit(not is_confirmed)
