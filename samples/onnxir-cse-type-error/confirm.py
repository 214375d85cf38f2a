"""Confirm that CommonSubexpressionElimination leaves a graph output without a type."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx_ir.passes import common

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [0], rtol=1e-5)
changed = onnx_ir.to_proto(common.CommonSubexpressionEliminationPass()(onnx_ir.from_proto(model)).model)
untyped = [output.HasField("type") for output in changed.graph.output]
is_confirmed = not all(untyped)
seen = str(untyped)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-ir"), seen[:200])
sys.exit(not is_confirmed)
