"""Confirm that folding Shape ignores its attribute start."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.ones([1, 1], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[1]], rtol=1e-5)
graph = gs.import_onnx(model)
[constant] = gs.export_onnx(graph.fold_constants().cleanup()).graph.initializer
folded = onnx.numpy_helper.to_array(constant).tolist()
is_confirmed = folded == [1, 1]
seen = str(folded)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-graphsurgeon"), seen[:200])
sys.exit(not is_confirmed)
