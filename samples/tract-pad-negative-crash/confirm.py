"""Confirm that a Pad with a negative pad aborts."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

code = """
import sys
import numpy as np, onnxruntime, tract
feeds = {"x": np.array([1, 2, 3, 4], np.float32)}
path = sys.argv[1] + "/model.onnx"
print(onnxruntime.InferenceSession(path).run(None, feeds), flush=True)  # so the model is valid
model = tract.onnx().load(path)
for place in range(model.input_count()):
    value = feeds[model.input_name(place)]
    sides = ",".join(map(str, value.shape))
    model.set_input_fact(place, f"{sides},{value.dtype.kind}{8 * value.itemsize}".lstrip(","))
values = [feeds[model.input_name(place)] for place in range(model.input_count())]
model.into_model().into_runnable().run(values)
"""
done = subprocess.run(
    [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
)
is_confirmed = done.returncode == -6 and "array" in done.stdout
print("confirmed:" if is_confirmed else "not confirmed:", version("tract"), "exit", done.returncode)
sys.exit(not is_confirmed)
