"""Confirm that A DequantizeLinear and a Transpose that a branch of an If reads die of SIGABRT while the model is optimised."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

code = """
import sys, numpy as np, onnx, onnxruntime
options = onnxruntime.SessionOptions()
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, "ORT_" + sys.argv[2])
model = onnx.load(sys.argv[1] + "/model.onnx").SerializeToString()
feeds = {"b": np.array(True), "x": np.array([[3]], np.int8)}
print(onnxruntime.InferenceSession(model, options).run(None, feeds)[0].tolist())
"""


def run(level):
    command = [sys.executable, "-c", code, str(Path(__file__).parent), level]
    return subprocess.run(command, capture_output=True, text=True, check=False)


assert run("DISABLE_ALL").stdout.strip() == "[[9]]"
done = run("ENABLE_ALL")
is_confirmed = done.returncode == -6
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), "exit", done.returncode)
sys.exit(not is_confirmed)
