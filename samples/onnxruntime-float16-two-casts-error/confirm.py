"""Confirm that a node that stays in float32 and reads one value twice gets two casts of one name."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers import float16

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[-1, 2]], rtol=1e-5)
changed = float16.convert_float_to_float16(model, keep_io_types=True)
names = [name for node in changed.graph.node for name in node.output]
is_confirmed = len(names) > len(set(names))
seen = str(names)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
