"""onnx-graphsurgeon as a compiler: a model imported, folded, cleaned, sorted and exported, run by onnxruntime
with its optimiser off.

https://github.com/NVIDIA/TensorRT/tree/main/tools/onnx-graphsurgeon; `fold` has it fold constants, for which
it runs onnxruntime itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import targets


def operate(model: Any, options: Mapping[str, str]) -> Any:
    """Convert the model to graphsurgeon's own graph and back."""
    import onnx_graphsurgeon

    graph = onnx_graphsurgeon.import_onnx(model)
    if options["fold"] == "on":
        graph.fold_constants()
    if options["clean"] == "on":
        graph.cleanup().toposort()
    return onnx_graphsurgeon.export_onnx(graph)


BACKEND = targets.Transformed(
    "onnx-graphsurgeon",
    {"fold": targets.SWITCH, "clean": targets.SWITCH},
    "fold",
    ("onnx", "ml_dtypes"),
    ("onnx_graphsurgeon",),
    operate,
    # Older ones use onnx.helper.float32_to_bfloat16.
    older=("0.6.0", "onnx==1.18.0"),
)
