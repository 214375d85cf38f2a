"""Confirm that the output of a Range becomes float16, although keep_io_types keeps outputs as they are."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxconverter_common import float16

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array(3, np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


np.testing.assert_allclose(run(model), [[0, 1, 2]], rtol=1e-5)
changed = float16.convert_float_to_float16(model, keep_io_types=True)
made = run(changed)[0].dtype
is_confirmed = made == np.float16 or made is None
seen = str(made)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxconverter-common"), seen[:200])
sys.exit(not is_confirmed)
