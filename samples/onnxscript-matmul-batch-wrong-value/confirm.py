"""Confirm that a Reshape of a matrix to another one is dropped in front of a MatMul."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {
    "a": np.array([[[1, 10]]], np.float32),
    "b": np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32),
}


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


wanted = np.array([[[51, 62]], [[73, 84]]], np.float32)  # 1 * [1, 2, 3, 4] + 10 * [5, 6, 7, 8]
np.testing.assert_allclose(run(model)[0], wanted, rtol=1e-5)  # so the model is valid
got = run(onnxscript.optimizer.optimize(model))[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
