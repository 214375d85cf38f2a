"""Confirm that a float8 constant is folded and exported as uint8: the bits of 1.0 are taken for the number 56."""

import sys
from importlib.metadata import version
from pathlib import Path

import onnx
import onnx_graphsurgeon
import onnxruntime

model = onnx.load(Path(__file__).with_name("model.onnx"))
feeds = {}
plain = onnxruntime.SessionOptions()
plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, feeds)


assert run(model)[0] == 2  # 1 by a scale of 2
graph = onnx_graphsurgeon.import_onnx(model)
changed = onnx_graphsurgeon.export_onnx(graph.fold_constants().cleanup())
seen = str(run(changed)[0])
is_confirmed = float(seen) != 2
print("confirmed:" if is_confirmed else "not confirmed:", version("onnx-graphsurgeon"), seen[:200])
sys.exit(not is_confirmed)
