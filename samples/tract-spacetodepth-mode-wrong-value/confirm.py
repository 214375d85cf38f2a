"""Confirm that SpaceToDepth ignores mode."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx.reference
import tract

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32).reshape(1, 2, 2, 2)}
wanted = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32).reshape(1, 8, 1, 1)
[valid] = onnx.reference.ReferenceEvaluator(str(path)).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
model = tract.onnx().load(path)
for place in range(model.input_count()):
    value = feeds[model.input_name(place)]
    sides = ",".join(map(str, value.shape))
    kind = "bool" if value.dtype == bool else f"{value.dtype.kind}{8 * value.itemsize}"
    model.set_input_fact(place, f"{sides},{kind}".lstrip(","))
values = [feeds[model.input_name(place)] for place in range(model.input_count())]
got = model.into_model().into_runnable().run(values)[0].to_numpy()
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-3, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("tract"), seen[:200])
sys.exit(not is_confirmed)
