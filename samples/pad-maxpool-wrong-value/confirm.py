"""Confirm that the zeros of a Pad before a MaxPool are lost: a padded window of negative numbers has the
maximum 0.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.full([1, 1, 4, 4], -1, np.float32)}


def run(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


np.testing.assert_allclose(
    run("DISABLE_ALL")[0], [[[[0, 0, 0, 0], [0, -1, -1, 0], [0, -1, -1, 0], [0, 0, 0, 0]]]], rtol=1e-5
)
got = run("ENABLE_ALL")[0][0, 0, 0, 0]
is_confirmed = got != 0
seen = str(got)
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
