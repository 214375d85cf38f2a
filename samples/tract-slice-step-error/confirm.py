"""Confirm that a Slice with a step does not compile behind the Reshape that added its axis."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tract

reading = np.arange(6, dtype=np.float32).reshape(2, 3)
path = Path(__file__).with_name("model.onnx")
try:
    tract.onnx().load(path).into_model().into_runnable()
    seen = ""
except tract.TractError as error:
    seen = str(error)
is_confirmed = "Pulling" in seen
print("confirmed:" if is_confirmed else "not confirmed:", version("tract"), seen)
sys.exit(not is_confirmed)
