"""Confirm that Extractor leaves out a node whose value only the branches of an If read."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx.utils
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [0], rtol=1e-5)
changed = onnx.utils.Extractor(model).extract_model([], ["y"])
kept = [node.op_type for node in changed.graph.node]
tensors = [tensor.name for tensor in changed.graph.initializer]
is_confirmed = kept == ["If"] and "h" not in tensors
seen = str([kept, tensors])
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx"), seen[:200])
sys.exit(not is_confirmed)
