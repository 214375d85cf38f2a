"""Confirm that eliminate_shape_op dies of SIGSEGV on a Shape whose start is behind its end."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

code = """
import sys, onnx, onnxoptimizer
model = onnx.load(sys.argv[1] + "/model.onnx")
onnx.checker.check_model(model, full_check=True)
onnxoptimizer.optimize(model, ["eliminate_shape_op"])
"""
done = subprocess.run(
    [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
)
is_confirmed = done.returncode == -11
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxoptimizer"), "exit", done.returncode)
sys.exit(not is_confirmed)
