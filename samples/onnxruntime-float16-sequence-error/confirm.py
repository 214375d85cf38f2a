"""Confirm that an output that is a sequence becomes float16, although keep_io_types keeps outputs as they
are.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers import float16

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {"x": np.array([-1, 2], np.float32)}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


run(model)  # the model is valid
changed = float16.convert_float_to_float16(model, keep_io_types=True)
kind = changed.graph.output[0].type.sequence_type
is_confirmed = kind.elem_type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
seen = str(kind)
print("confirmed:" if is_confirmed else "not confirmed:", version("onnxruntime"), seen[:200])
sys.exit(not is_confirmed)
