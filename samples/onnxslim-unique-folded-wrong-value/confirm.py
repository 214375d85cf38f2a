"""Confirm that the counts of Unique become its indices when one output is folded."""

import sys
from importlib.metadata import version
from pathlib import Path

import onnx
import onnxruntime
import onnxslim

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


assert run(model)[0].tolist() == [1, 1, 1]  # each of three different numbers is there once
seen = run(onnxslim.slim(model))[0].tolist()
is_confirmed = seen != [1, 1, 1]
seen = str(seen)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxslim"), seen[:200])
sys.exit(not is_confirmed)
