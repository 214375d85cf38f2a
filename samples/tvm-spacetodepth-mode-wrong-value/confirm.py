"""Confirm that SpaceToDepth ignores mode."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx.reference
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32).reshape(1, 2, 2, 2)}
wanted = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32).reshape(1, 8, 1, 1)
[valid] = onnx.reference.ReferenceEvaluator(str(path)).run(["y"], feeds)
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
