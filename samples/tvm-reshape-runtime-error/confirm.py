"""Confirm that a Reshape to an input is not imported."""

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
feeds = {"x": np.array([1, 2, 3, 4], np.float32), "s": np.array([2, 2], np.int64)}
wanted = np.array([[1, 2], [3, 4]], np.float32)
[valid] = onnxruntime.InferenceSession(path).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
try:
    with tvm.target.Target("llvm"):
        built = relax.build(from_onnx(onnx.load(path), keep_params_in_input=False), "llvm")
    run = relax.VirtualMachine(built, tvm.cpu())["main"]
    got = run(*map(tvm.runtime.tensor, feeds.values()))
    got = got.numpy()
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "to be Shape" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("apache-tvm"), seen[:200])
sys.exit(not is_confirmed)
