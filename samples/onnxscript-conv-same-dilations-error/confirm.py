"""Confirm that the pads computed for SAME_UPPER ignore the dilations of a Conv."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer
from onnx.reference import ReferenceEvaluator

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([[[1, 2, 3, 4, 5]]], np.float32)}


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


wanted = np.array([[[4, 6, 9, 6, 8]]], np.float32)  # neighbours at distance 2
np.testing.assert_allclose(
    ReferenceEvaluator(model).run(None, feeds)[0], wanted, rtol=1e-5
)  # so the model is valid
got = run(onnxscript.optimizer.optimize(model))[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxscript"), seen[:200])
sys.exit(not is_confirmed)
