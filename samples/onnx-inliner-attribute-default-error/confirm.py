"""Confirm that the inliner loses an attribute's default inside the branches of an If."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"c": np.array(True), "x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[-1, 2]], rtol=1e-5)
changed = onnx.inliner.inline_local_functions(model)
[choice] = [node for node in changed.graph.node if node.op_type == "If"]
casts = [node for branch in choice.attribute for node in branch.g.node if node.op_type == "Cast"]
is_confirmed = not casts[0].attribute
seen = str(changed.graph.node)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx"), seen[:200])
sys.exit(not is_confirmed)
