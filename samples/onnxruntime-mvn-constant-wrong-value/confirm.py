"""Confirm that MeanVarianceNormalization of equal elements is NaN."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([[[[3, 3]]]], np.float32)}
wanted = np.array([[[[0, 0]]]], np.float32)  # (3 - 3) / (0 + 1e-9)
got = onnxruntime.InferenceSession(path).run(None, feeds)[0]
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", onnxruntime.__version__, seen[:200])
sys.exit(not is_confirmed)
