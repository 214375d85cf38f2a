"""Confirm that SAME_UPPER shifts the windows of a MaxPool with a stride above its kernel."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([[[1, 2, 3, 4]]], np.float32)}
wanted = np.array([[[1, 3]]], np.float32)  # each second element
with tvm.target.Target("llvm"):
    built = relax.build(from_onnx(onnx.load(path), keep_params_in_input=False), "llvm")
run = relax.VirtualMachine(built, tvm.cpu())["main"]
got = run(*map(tvm.runtime.tensor, feeds.values()))
got = got.numpy()
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("apache-tvm"), seen[:200])
sys.exit(not is_confirmed)
