"""Confirm that ReduceSum of int64 loses the high bits."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
import tract

path = Path(__file__).with_name("model.onnx")
feeds = {"x": np.array([9007199254740993, 2], np.int64)}
wanted = np.array([9007199254740994], np.int64)
[valid] = onnxruntime.InferenceSession(path).run(["y"], feeds)
np.testing.assert_allclose(valid, wanted, rtol=1e-4)  # so the model is valid
model = tract.onnx().load(path)
for place in range(model.input_count()):
    value = feeds[model.input_name(place)]
    sides = ",".join(map(str, value.shape))
    model.set_input_fact(place, f"{sides},{value.dtype.kind}{8 * value.itemsize}".lstrip(","))
values = [feeds[model.input_name(place)] for place in range(model.input_count())]
got = model.into_model().into_runnable().run(values)[0].to_numpy()
is_confirmed = got.shape != wanted.shape or not np.allclose(got, wanted, rtol=0, equal_nan=True)
seen = str(got.tolist())
print("confirmed:" if is_confirmed else "not confirmed:", version("tract"), seen[:200])
sys.exit(not is_confirmed)
