"""Confirm that the fusion of Shape and Slice ignores the start of the Shape: 3 instead of 4."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.zeros([2, 3, 4], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


assert run(model)[0].tolist() == [4]
changed = onnxoptimizer.optimize(model, ["eliminate_slice_after_shape"])
seen = str(run(changed)[0].tolist())
is_confirmed = seen != "[4]"
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), seen[:200])
sys.exit(not is_confirmed)
