"""Confirm that LRN of an even size is not imported."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([[[1], [1]]], np.float32)}
wanted = np.array([[[0.333333], [0.5]]], np.float32)  # 1 / (1 + 2 / 2 * n), n = 2 and 1
try:
    with tvm.target.Target("llvm"):
        built = relax.build(from_onnx(onnx.load(path), keep_params_in_input=False), "llvm")
    run = relax.VirtualMachine(built, tvm.cpu())["main"]
    got = run(*map(tvm.runtime.tensor, feeds.values()))
    got = got.numpy()
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "broadcast" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("apache-tvm"), seen[:200])
sys.exit(not is_confirmed)
