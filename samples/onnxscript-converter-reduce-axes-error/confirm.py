"""Confirm that the axes of ReduceL1 stay an attribute in opset 21, where they are an input."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnxscript import version_converter

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.ones([2, 3], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[[3], [3]]], rtol=1e-5)
held = onnx_ir.from_proto(model)
version_converter.convert_version(held, 21)
names = [each.name for each in onnx_ir.to_proto(held).graph.node[-1].attribute]
is_confirmed = held.opset_imports[""] == 21 and "axes" in names
seen = str(names)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
