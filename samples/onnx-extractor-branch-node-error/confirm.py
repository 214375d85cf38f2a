"""Confirm that Extractor leaves out a node whose value only the branches of an If read."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx.utils
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"c": np.array(True), "x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[0, -2]], rtol=1e-5)
changed = onnx.utils.Extractor(model).extract_model(["x", "c"], ["y"])
kept = [node.op_type for node in changed.graph.node]
is_confirmed = "Relu" in [node.op_type for node in model.graph.node] and kept == ["If"]
seen = str(kept)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx"), seen[:200])
sys.exit(not is_confirmed)
