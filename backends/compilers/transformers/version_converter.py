"""onnx.version_converter as a compiler: the model at another opset, run by onnxruntime with its optimiser off.

https://onnx.ai/onnx/api/version_converter.html; `opset` is the goal, below or above the model's own. Operators for whose change of
meaning there is no adapter, or whose older version cannot say what the model says, are refused by assertions with a text of their
own: `unsupported`. Versions for which onnxruntime has no kernel yet are its lack.
"""

import functools
from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.worker_common import load_neighbour

TARGETS = functools.partial(load_neighbour, __file__, "transformers")("targets.py")
# Opset 7 is the oldest that onnxruntime promises to run.
OPSETS = ("21", *(str(opset) for opset in range(7, 27) if opset != 21))
# What the converter says of itself (`onnx/version_converter/`: BaseConverter.h, convert.h, adapters/*.h), first match wins.
MEANINGS: tuple[tuple[str, str], ...] = (
    ("environment", r"invalid version \(must be between"),
    ("unsupported", r"No Adapter (?:From|To|For)|No Previous Version of|No schema for"),
    ("unsupported", r"isUnallowed: Assertion|is unrestricted for Opset Version"),
    ("unsupported", r"(?:is|are) (?:not support(?:ed)?|unallowed)\b|is unsupported|does not support"),
    ("unsupported", r"No initializer or constant input|must be a constant or initializer|must be -1 \(disabled\)"),
    ("unsupported", r"only supports converting|Unsupported conversion"),
)


def import_converter() -> None:
    """Import onnx.version_converter."""
    import onnx.version_converter  # noqa: F401


def convert(model: Any, options: Mapping[str, str]) -> Any:
    """The model at the opset that the options name."""
    from onnx import version_converter

    return version_converter.convert_version(model, int(options["opset"]))


BACKEND = TARGETS.Transformed(
    "onnx-version-converter",
    {"opset": OPSETS},
    "opset",
    ("protobuf", "ml_dtypes", "typing_extensions"),
    import_converter,
    convert,
    package="onnx",
    patterns=MEANINGS,
    may_lack=True,
)
