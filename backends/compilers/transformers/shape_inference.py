"""Shape inference as a compiler: the declared type of every value must match the value.

https://onnx.ai/onnx/api/shape_inference.html and onnxruntime.tools.symbolic_shape_infer. Every tensor of the
graph for which the tool declares a type becomes an output; onnxruntime runs the model with its optimiser off,
and a value that differs from its declaration in element type, rank or size is an error of the tool. A
symbolic size must be equal wherever its name occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import targets
from opsieve.backends.compilers.worker_common import BrokenModel

# Values that are made outputs
_MOST = 400


def _expose_values(inferred: Any) -> Any:
    """Return the model with its values of a declared tensor type as outputs."""
    there = {value.name for value in [*inferred.graph.output, *inferred.graph.input]}
    # Inference may also declare values that no node gives any more.
    made = {name for node in inferred.graph.node for name in node.output}
    for value in inferred.graph.value_info[:_MOST]:
        known = value.type.WhichOneof("value") == "tensor_type" and value.type.tensor_type.elem_type
        if known and value.name in made and value.name not in there:
            inferred.graph.output.add().CopyFrom(value)
    return inferred


def infer(model: Any, options: Mapping[str, str]) -> Any:
    """Infer with onnx, with or without propagation of the values of shapes."""
    from onnx import shape_inference

    return _expose_values(shape_inference.infer_shapes(model, data_prop=options["data"] == "on"))


def infer_symbolic(model: Any, options: Mapping[str, str]) -> Any:
    """Infer with onnxruntime's tool, with sizes as expressions."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    made = SymbolicShapeInference.infer_shapes(model, auto_merge=options["merge"] == "on")
    # It warns "Only support models of onnx opset 7 and above."
    if made is None:
        raise NotImplementedError("the tool takes models of opset 7 and above of ONNX's own operators")
    return _expose_values(made)


def examine(result: Any, values: Mapping[str, Any]) -> None:
    """Raise BrokenModel for a value that contradicts the model's declaration."""
    from onnx import helper

    sizes: dict[str, int] = {}
    for declared in result.graph.output:
        tensor, value = declared.type.tensor_type, values.get(declared.name)
        if value is None or declared.type.WhichOneof("value") != "tensor_type" or not hasattr(value, "shape"):
            continue
        wanted = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        # Strings come as objects or as bytes.
        if wanted != value.dtype and wanted.kind != "O":
            raise BrokenModel(f"{declared.name[:60]!r} is declared {wanted} and is {value.dtype}")
        if not tensor.HasField("shape"):
            continue
        # A size that is called "?" is one without a name.
        sides = [
            dim.dim_param.strip("?") or (dim.dim_value if dim.HasField("dim_value") else None)
            for dim in tensor.shape.dim
        ]
        found = list(value.shape)
        known = [
            # The first occurrence of a symbolic size fixes it.
            sizes.setdefault(side, size) if isinstance(side, str) else side
            for side, size in zip(sides, found, strict=False)
        ]
        if len(sides) != len(found) or any(
            side not in (None, size) for side, size in zip(known, found, strict=True)
        ):
            raise BrokenModel(f"{declared.name[:60]!r} is declared with the shape {sides} and has {found}")


ONNX = targets.Transformed(
    "onnx-shape-inference",
    {"data": ("off", "on")},
    "data",
    ("protobuf", "ml_dtypes", "typing_extensions"),
    ("onnx.shape_inference",),
    infer,
    package="onnx",
    may_lack=True,
    # An output without a shape, as some values have, is no valid one
    checked=False,
    examine=examine,
)
SYMBOLIC = targets.Transformed(
    "onnxruntime-symbolic-shapes",
    {"merge": ("off", "on")},
    "merge",
    ("onnx", "protobuf", "flatbuffers", "packaging", "coloredlogs", "sympy", "ml_dtypes"),
    ("sympy", "onnxruntime.tools.symbolic_shape_infer"),
    infer_symbolic,
    package="onnxruntime",
    extra="symbolic-shapes",
    patterns=(("unsupported", r"Incomplete symbolic shape inference"),),
    may_lack=True,
    checked=False,
    examine=examine,
)
