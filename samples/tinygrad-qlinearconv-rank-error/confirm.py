"""Confirm that QLinearConv over one axis fails."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime

os.environ["DEV"] = "PYTHON"  # which needs no compiler; read when tinygrad is imported
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([1, 2, 3], np.uint8).reshape(1, 1, 3)}
wanted = np.array([0, 4, 4], np.uint8).reshape(1, 1, 3)
[valid] = onnxruntime.InferenceSession(path).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
try:
    runner = OnnxRunner(Tensor(path.read_bytes(), device="PYTHON"))
    got = runner({name: Tensor(value) for name, value in feeds.items()})["y"].numpy()
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "does not match" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("tinygrad"), seen[:200])
sys.exit(not is_confirmed)
