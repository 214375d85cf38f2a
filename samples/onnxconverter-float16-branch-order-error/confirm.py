"""Confirm that the converted model is not sorted: the If comes before a node that its branches read."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxconverter_common import float16

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"c": np.array(True), "x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [np.exp([1, -2])], rtol=1e-5)
changed = float16.convert_float_to_float16(model, keep_io_types=True)
kinds = [node.op_type for node in changed.graph.node]
is_confirmed = "If" in kinds and kinds.index("If") < kinds.index("Exp")
seen = str(kinds)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxconverter-common"), seen[:200])
sys.exit(not is_confirmed)
