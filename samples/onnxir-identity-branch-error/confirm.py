"""Confirm that IdentityElimination leaves a branch of an If whose output no node makes."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx_ir.passes import common

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"c": np.array(True), "x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[1, -2]], rtol=1e-5)
changed = onnx_ir.to_proto(common.IdentityEliminationPass()(onnx_ir.from_proto(model)).model)
[choice] = [node for node in changed.graph.node if node.op_type == "If"]
[branch] = [each.g for each in choice.attribute if each.name == "then_branch"]
is_confirmed = not branch.node and branch.output[0].name not in [each.name for each in branch.input]
seen = str(branch.output[0].name)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-ir"), seen[:200])
sys.exit(not is_confirmed)
