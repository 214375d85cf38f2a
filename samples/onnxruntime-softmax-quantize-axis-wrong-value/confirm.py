"""Confirm that A Softmax whose result is quantised by one scale for each element becomes a QLinearSoftmax, which takes the first scale for all: 0 instead of 4."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([0, 0], np.int8)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


wanted = [0, 4]
np.testing.assert_allclose(run("DISABLE_ALL")[0], wanted)
got = run("ENABLE_ALL")[0].tolist()
is_confirmed = got != wanted
seen = str(got)
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
