"""Utilities in onnx's wheel that rewrite a model and must keep its meaning, as compilers:
onnx.utils.Extractor, onnx.compose and onnx.inliner.

https://onnx.ai/onnx/api/utils.html: extracting everything between all inputs and all outputs of a model must
give the model. https://onnx.ai/onnx/api/compose.html: `add_prefix` renames everything inside a model, except
its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import targets

_LIBRARIES = ("protobuf", "ml_dtypes", "typing_extensions")
_KINDS = ("nodes", "edges", "initializers", "value_infos", "functions")


def extract(model: Any, options: Mapping[str, str]) -> Any:
    """Extract the model between all its inputs and all its outputs."""
    from onnx.utils import Extractor

    given = {tensor.name for tensor in model.graph.initializer}
    # An initializer that is an input as well would lose its value.
    inputs = [value.name for value in model.graph.input if value.name not in given]
    return Extractor(model).extract_model(inputs, [value.name for value in model.graph.output])


def prefix(model: Any, options: Mapping[str, str]) -> Any:
    """Put a prefix before every name of a kind, or of all kinds, except those of inputs and outputs."""
    from onnx import compose

    chosen = {"rename_" + kind: options["names"] in ("all", kind) for kind in _KINDS}
    return compose.add_prefix(model, "part/", rename_inputs=False, rename_outputs=False, **chosen)


EXTRACTOR = targets.Transformed(
    "onnx-extractor",
    {},
    "optimise",
    _LIBRARIES,
    ("onnx.compose", "onnx.utils"),
    extract,
    package="onnx",
    may_lack=True,
)
COMPOSE = targets.Transformed(
    "onnx-compose",
    {"names": ("all", *_KINDS)},
    "names",
    _LIBRARIES,
    ("onnx.compose", "onnx.utils"),
    prefix,
    package="onnx",
    may_lack=True,
)


# onnx.inliner as a compiler: the model without calls of its functions, run by onnxruntime with its
# optimiser off.


MEANINGS = (("environment", r"unexpected keyword argument '(?:inline_schema_functions|convert_version)'"),)


def inline(model: Any, options: Mapping[str, str]) -> Any:
    """Inline the functions of the model, or those of the schemas too."""
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
    ("onnx.inliner",),
    inline,
    package="onnx",
    patterns=MEANINGS,
    may_lack=True,
)
