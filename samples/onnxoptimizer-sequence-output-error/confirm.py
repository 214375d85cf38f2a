"""Confirm that onnxoptimizer loses the type of a graph output that is a sequence."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


run(model)  # the model is valid
changed = onnxoptimizer.optimize(model, [])
kept = changed.graph.output[0].type.HasField("sequence_type")
is_confirmed = model.graph.output[0].type.HasField("sequence_type") and not kept
seen = str(changed.graph.output[0])
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), seen[:200])
sys.exit(not is_confirmed)
