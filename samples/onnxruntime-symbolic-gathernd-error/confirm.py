"""Confirm that the batch dimensions of GatherND are ignored."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 2, 2), "i": np.array([[1], [0]])}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[[2, 3], [4, 5]]], rtol=1e-5)
changed = SymbolicShapeInference.infer_shapes(model)
made = next(each for each in changed.graph.output if each.name == "y")
sizes = [each.dim_value for each in made.type.tensor_type.shape.dim]
is_confirmed = sizes == [2, 2, 2]
seen = str(sizes)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
