"""onnx.version_converter and onnxscript.version_converter as compilers: they convert the model to another
opset, and onnxruntime runs it with its optimiser off.

https://onnx.ai/onnx/api/version_converter.html and https://microsoft.github.io/onnxscript/ (which only goes
up, from opset 18 on); `opset` is the goal, below or above the model's own. The converter refuses operators
without an adapter, and operators whose older version cannot express the model, by assertions with a distinct
text: `unsupported`. Versions without an onnxruntime kernel count as a gap of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import targets

# Opset 7 is the oldest that onnxruntime promises to run.
OPSETS = ("21", *(str(opset) for opset in range(7, 27) if opset != 21))
# What the converter says of itself (`onnx/version_converter/`: BaseConverter.h, convert.h, adapters/*.h),
# first match wins.
MEANINGS: tuple[tuple[str, str], ...] = (
    ("unsupported", r"Target opset: \d+ less than"),
    ("environment", r"invalid version \(must be between"),
    ("unsupported", r"No Adapter (?:From|To|For)|No Previous Version of|No schema for"),
    (
        "unsupported",
        r"isUnallowed: Assertion|is unrestricted for Opset Version|cannot be downgraded to opset",
    ),
    ("unsupported", r"(?:is|are) (?:not support(?:ed)?|unallowed)\b|is unsupported|does not support"),
    (
        "unsupported",
        r"No initializer or constant input|must be a constant or initializer|must be -1 \(disabled\)",
    ),
    ("unsupported", r"only supports converting|Unsupported conversion"),
)


def convert(model: Any, options: Mapping[str, str]) -> Any:
    """Convert the model to the opset that the options name."""
    from onnx import version_converter

    return version_converter.convert_version(model, int(options["opset"]))


BACKEND = targets.Transformed(
    "onnx-version-converter",
    {"opset": OPSETS},
    "opset",
    ("protobuf", "ml_dtypes", "typing_extensions"),
    ("onnx.version_converter",),
    convert,
    package="onnx",
    patterns=MEANINGS,
    may_lack=True,
)


def convert_by_onnxscript(model: Any, options: Mapping[str, str]) -> Any:
    """Convert the model to the opset in the options. Raises NotImplementedError if the tool leaves it
    unchanged.
    """
    import onnx_ir
    from onnxscript import version_converter

    held, goal = onnx_ir.from_proto(model), int(options["opset"])
    version_converter.convert_version(held, goal)
    # It gives up without an exception.
    if held.opset_imports.get("") != goal:
        raise NotImplementedError("the tool leaves the model at opset {}".format(held.opset_imports.get("")))
    return onnx_ir.to_proto(held)


ONNXSCRIPT = targets.Transformed(
    "onnxscript-version-converter",
    {"opset": ("25", *(str(opset) for opset in range(18, 27) if opset != 25))},
    "opset",
    ("onnx", "onnx-ir", "ml_dtypes", "packaging", "typing_extensions"),
    ("onnxscript.version_converter",),
    convert_by_onnxscript,
    package="onnxscript",
    extra="onnxscript",
    patterns=MEANINGS,
    may_lack=True,
)
