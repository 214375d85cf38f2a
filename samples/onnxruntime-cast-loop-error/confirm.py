"""Confirm that two Casts to double and back that the body of a Loop reads are removed, and the body still reads their result: the model does not run, at every level."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.full([1, 1, 1], 3, np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


np.testing.assert_allclose(ReferenceEvaluator(model).run(None, feeds)[0], [[[[9]]]])
try:
    run("ENABLE_ALL")
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "op_kernel" in seen
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
