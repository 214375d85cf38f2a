"""Confirm that SAME_UPPER with a stride above the kernel fails."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([[[1, 2, 3, 4]]], np.float32)}
try:
    onnxruntime.InferenceSession(path).run(None, feeds)
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "MaxPool" in seen
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
