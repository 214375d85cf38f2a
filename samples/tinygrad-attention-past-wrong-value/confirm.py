"""Confirm that the causal mask ignores past keys."""

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
feeds = {"q": np.full([1, 1, 1, 1], 1, np.float32)}
wanted = np.full([1, 1, 1, 1], 1.5, np.float32)
[valid] = onnxruntime.InferenceSession(path).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
runner = OnnxRunner(Tensor(path.read_bytes(), device="PYTHON"))
got = runner({name: Tensor(value) for name, value in feeds.items()})["y"].numpy()
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("tinygrad"), seen[:200])
sys.exit(not is_confirmed)
