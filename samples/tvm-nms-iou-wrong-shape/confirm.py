"""Confirm that the default of iou_threshold is 0.5."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

path = Path(__file__).with_name("model.onnx")
feeds = {
    "b": np.array([0, 0, 1, 1, 0, 0, 1, 0.4], np.float32).reshape(1, 2, 4),
    "s": np.array([0.9, 0.8], np.float32).reshape(1, 1, 2),
}
wanted = np.array([[0, 0, 0]], np.int64)
[valid] = onnxruntime.InferenceSession(path).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
with tvm.target.Target("llvm"):
    built = relax.build(from_onnx(onnx.load(path), keep_params_in_input=False), "llvm")
run = relax.VirtualMachine(built, tvm.cpu())["main"]
got = run(*map(tvm.runtime.tensor, feeds.values()))
got = got.numpy()
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("apache-tvm"), seen[:200])
sys.exit(not is_confirmed)
