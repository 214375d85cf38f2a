"""Confirm that a reverse RNN runs forwards."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tract

steps = np.array([[[1, 0]], [[0, 1]]], np.float32)
gain, state_gain = np.array([[0.5, -1], [2, 0.25]]), np.array([[1, 0.5], [-0.5, 1]])
last = np.tanh(gain @ steps[1, 0])  # a reverse RNN begins at the last step
wanted = [np.tanh(gain @ steps[0, 0] + state_gain @ last), last]
path = Path(__file__).with_name("model.onnx")
got = tract.onnx().load(path).into_model().into_runnable().run([steps])[0].to_numpy()[:, 0, 0]
is_confirmed = not np.allclose(got, wanted, rtol=1e-4)
seen = got.tolist()
print("confirmed:" if is_confirmed else "not confirmed:", version("tract"), seen)
sys.exit(not is_confirmed)
