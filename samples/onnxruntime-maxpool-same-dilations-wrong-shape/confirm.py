"""Confirm that the padding of SAME ignores dilations: a MaxPool gives fewer elements than ceil(size / stride), at every level."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[[1, 2, 3]]], np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


wanted = [[[2, 3, 2]]]
np.testing.assert_allclose(ReferenceEvaluator(model).run(None, feeds)[0], wanted)
seen = str(run("DISABLE_ALL")[0].tolist())
is_confirmed = run("DISABLE_ALL")[0].tolist() != wanted
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
