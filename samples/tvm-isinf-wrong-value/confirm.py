"""Confirm that IsInf without detect_negative counts minus infinity."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.load(Path(__file__).with_name("model.onnx"))
given = np.array([-np.inf, 1, np.inf, np.nan], np.float32)
wanted = [False, False, True, False]
[got] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {model.graph.input[0].name: given})
np.testing.assert_array_equal(got, wanted)  # so the model is valid
with tvm.target.Target("llvm"):
    built = relax.build(from_onnx(model, keep_params_in_input=False), "llvm")
got = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(given)).numpy()
is_confirmed, seen = not np.array_equal(got, wanted), str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", tvm.__version__, seen[-200:])
sys.exit(not is_confirmed)
