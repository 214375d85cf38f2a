"""Confirm that Pad_Fusion alone changes the logits of the network."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"image": np.random.default_rng(0).standard_normal([1, 3, 32, 32]).astype(np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


options = onnxruntime.SessionOptions()
with_fusion = run("ENABLE_BASIC")[0]
error = np.abs(with_fusion - run("DISABLE_ALL")[0]).max()
is_confirmed = error > 1e-3
seen = str(error)
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
