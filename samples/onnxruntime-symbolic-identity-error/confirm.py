"""Confirm that the result of an Identity of a sequence is declared a tensor."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": [np.ones(2, np.float32)]}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


run(model)  # the model is valid
changed = SymbolicShapeInference.infer_shapes(model)
kind = changed.graph.output[0].type
is_confirmed = model.graph.output[0].type.HasField("sequence_type") and kind.HasField("tensor_type")
seen = str(kind)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
