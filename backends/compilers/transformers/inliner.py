"""onnx.inliner as a compiler: the model without calls of its functions, run by onnxruntime with its optimiser
off.

https://onnx.ai/onnx/api/inliner.html; `functions=schema` also inlines every operator that ONNX defines by a
function body, for which `==release` wants onnx 1.19 or later. Kernels that onnxruntime lacks for the
operators of such a body are its lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import targets

MEANINGS = (("environment", r"unexpected keyword argument '(?:inline_schema_functions|convert_version)'"),)


def import_inliner() -> None:
    """Import onnx.inliner."""
    import onnx.inliner  # noqa: F401


def inline(model: Any, options: Mapping[str, str]) -> Any:
    """The model with the functions of the model, or with those of the schemas too, inlined."""
    from onnx import inliner, shape_inference

    if options["functions"] == "schema":
        # A body can depend on types, and the inliner asserts that it knows them.
        typed = shape_inference.infer_shapes(model)
        return inliner.inline_selected_functions(typed, [], exclude=True, inline_schema_functions=True)
    return inliner.inline_local_functions(model, convert_version=options["convert"] == "on")


BACKEND = targets.Transformed(
    "onnx-inliner",
    {"functions": ("local", "schema"), "convert": ("off", "on")},
    "functions",
    ("protobuf", "ml_dtypes", "typing_extensions"),
    import_inliner,
    inline,
    package="onnx",
    patterns=MEANINGS,
    may_lack=True,
)
