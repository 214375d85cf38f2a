"""Confirm that folding an If with two outputs leaves one output without a node that makes it."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[1, -2], [1, 2]], rtol=1e-5)
graph = gs.import_onnx(model)
graph.fold_constants()
changed = gs.export_onnx(graph.cleanup().toposort())
made = [name for node in changed.graph.node for name in node.output]
is_confirmed = "z" not in made or "y" not in made
seen = str(made)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-graphsurgeon"), seen[:200])
sys.exit(not is_confirmed)
