"""Confirm that a Reshape of one element to no dimensions is removed: a scalar becomes a vector."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers import optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([3], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


assert run(model)[0].shape == ()
file = str(Path(__file__).with_name("model.onnx"))
changed = optimizer.optimize_model(file, model_type="bert", opt_level=0).model
seen = str(run(changed)[0].shape)
is_confirmed = seen != "()"
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
