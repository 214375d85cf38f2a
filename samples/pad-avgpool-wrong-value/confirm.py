"""Confirm that a Pad folded into an AveragePool changes what the mean divides by."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.ones([1, 1, 4, 4], np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


assert run("DISABLE_ALL")[0][0, 0, 0, 0] == 0.25  # one 1 and three zeros of the Pad
got = run("ENABLE_ALL")[0][0, 0, 0, 0]  # one 1 and three padded 0 inside the padded image: 1 / 4
is_confirmed = got != 0.25
seen = str(got)
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
