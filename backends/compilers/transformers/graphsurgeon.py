"""onnx-graphsurgeon as a compiler: a model imported, folded, cleaned, sorted and exported, run by onnxruntime
with its optimiser off.

https://github.com/NVIDIA/TensorRT/tree/main/tools/onnx-graphsurgeon; `fold` has it fold constants, for which it runs onnxruntime itself.
"""

import functools
from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.worker_common import load_neighbour

TARGETS = functools.partial(load_neighbour, __file__, "transformers")("targets.py")


def import_graphsurgeon() -> None:
    """Import onnx_graphsurgeon."""
    import onnx_graphsurgeon  # noqa: F401


def operate(model: Any, options: Mapping[str, str]) -> Any:
    """The model as a graph of its own kind, and back."""
    import onnx_graphsurgeon

    graph = onnx_graphsurgeon.import_onnx(model)
    if options["fold"] == "on":
        graph.fold_constants()
    if options["clean"] == "on":
        graph.cleanup().toposort()
    return onnx_graphsurgeon.export_onnx(graph)


BACKEND = TARGETS.Transformed(
    "onnx-graphsurgeon",
    {"fold": TARGETS.SWITCH, "clean": TARGETS.SWITCH},
    "fold",
    ("onnx", "ml_dtypes"),
    import_graphsurgeon,
    operate,
)
