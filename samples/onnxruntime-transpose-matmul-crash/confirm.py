"""Confirm that A Transpose behind which a Cast and a MatMul with a vector stand dies of SIGSEGV while the model is optimised."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

code = """
import sys, numpy as np, onnx, onnxruntime
options = onnxruntime.SessionOptions()
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, "ORT_" + sys.argv[2])
model = onnx.load(sys.argv[1] + "/model.onnx").SerializeToString()
feeds = {"x": np.array([[[1,2,3],[4,5,6]]], np.int32)}
print(onnxruntime.InferenceSession(model, options).run(None, feeds)[0].tolist())
"""


def run(level):
    command = [sys.executable, "-c", code, str(Path(__file__).parent), level]
    return subprocess.run(command, capture_output=True, text=True, check=False)


assert run("DISABLE_ALL").stdout.strip() == "[[14.0], [32.0]]"
done = run("ENABLE_ALL")
is_confirmed = done.returncode == -11
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), "exit", done.returncode)
sys.exit(not is_confirmed)
