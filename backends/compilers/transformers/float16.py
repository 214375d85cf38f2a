"""Converters of models to float16 as compilers: onnxconverter-common's, and the one in onnxruntime's wheel.

https://github.com/microsoft/onnxconverter-common (float16.py) and onnxruntime.transformers.float16, which
began as its copy. Inputs and outputs keep their types. Constants may differ from the original by half a step
of float16, after the clamp that both tools document; the model that is run for values has float16 widened to
float32 again (narrowing.py). A model that already has float16 is `unsupported` here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import narrowing, targets

_FLOAT, _FLOAT16 = 1, 10
# Of a magnitude, and of what is next to zero: both tools keep that from becoming zero.
_HALF_STEP, _LEAST = (
    2.0**-11,
    1.1e-7,
)
_LARGEST = {"onnxconverter-float16": 1e4, "onnxruntime-float16": 65504.0}


def refuse_float16(model: Any) -> None:
    """Raise NotImplementedError for a model that has float16 of its own: it would look like the float16
    that the tool adds.
    """
    if _FLOAT16 in narrowing.element_types(model):
        raise NotImplementedError("the model has float16 of its own")


def convert(model: Any, options: Mapping[str, str]) -> Any:
    """Convert the model to float16 with onnxconverter-common."""
    from onnxconverter_common import float16

    refuse_float16(model)
    return float16.convert_float_to_float16(model, keep_io_types=True)


def convert_by_onnxruntime(model: Any, options: Mapping[str, str]) -> Any:
    """Convert the model to float16 with onnxruntime's tool."""
    from onnxruntime.transformers import float16

    refuse_float16(model)
    return float16.convert_float_to_float16(
        model, keep_io_types=True, force_fp16_initializers=options["initializers"] == "all"
    )


def widen(largest: float, before: Any, narrowed: Any) -> Any:
    """Widen float16 in `narrowed` to float32 with the constants of `before`; raise BrokenModel for one beyond
    half a step and the clamp.
    """
    import numpy as np
    from onnx import ModelProto, numpy_helper

    model, were = ModelProto(), narrowing.constants_by_name(before)
    model.CopyFrom(narrowed)
    for name, tensor in narrowing.constants_by_name(model).items():
        if tensor.data_type != _FLOAT16:
            continue
        value = numpy_helper.to_array(tensor).astype(np.float32)
        # Constants that the tool made itself have no original.
        if name in were and were[name].data_type == _FLOAT:
            wide = numpy_helper.to_array(were[name])
            # Both tools clamp what float16 cannot hold, as they document; infinities stay.
            finite = np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide)
            narrowing.check_rounding(name, value, finite, np.abs(finite) * _HALF_STEP + _LEAST)
            value = wide
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    for graph in narrowing.iter_graphs(model):
        widen_types(graph)
    return model


def widen_types(graph: Any) -> None:
    """Replace float16 by float32 in the nodes and declarations of one graph or function."""
    import numpy as np
    from onnx import numpy_helper

    for node in graph.node:
        for attribute in node.attribute:
            # Types stand in attributes, too.
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i == _FLOAT16:
                attribute.i = _FLOAT
            # ConstantOfShape
            if attribute.HasField("t") and attribute.t.data_type == _FLOAT16:
                attribute.t.CopyFrom(
                    numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float32))
                )
    for value in narrowing.typed_values(graph):
        held = value.type
        while (kind := held.WhichOneof("value")) in ("sequence_type", "optional_type"):
            held = getattr(held, kind).elem_type
        if held.tensor_type.elem_type == _FLOAT16:
            held.tensor_type.elem_type = _FLOAT


CONVERTER = targets.Transformed(
    "onnxconverter-float16",
    {},
    "optimise",
    ("onnx", "protobuf", "packaging"),
    ("onnxconverter_common.float16",),
    convert,
    package="onnxconverter-common",
    extra="onnxconverter-common",
    may_lack=True,
    restore=functools.partial(widen, _LARGEST["onnxconverter-float16"]),
    # Older ones import onnx.mapping, and the oldest six.
    older=("1.16.0", "onnx==1.18.0", "six"),
)
ONNXRUNTIME = targets.Transformed(
    "onnxruntime-float16",
    {"initializers": ("used", "all")},
    "initializers",
    ("onnx", "protobuf", "flatbuffers", "packaging", "coloredlogs", "sympy", "ml_dtypes"),
    ("onnxruntime.transformers.float16",),
    convert_by_onnxruntime,
    package="onnxruntime",
    may_lack=True,
    # its casts stand behind what reads them: onnxruntime sorts nodes when it loads a model, onnx's checker
    # refuses it
    checked=False,
    restore=functools.partial(widen, _LARGEST["onnxruntime-float16"]),
)
