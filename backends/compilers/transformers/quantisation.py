"""onnxruntime.quantization as a compiler: it quantises the model statically (QDQ, calibrated with the inputs
of the test) or dynamically.

https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html. Quantised constants may differ
from the original by half a step of their scale; the model that is run for values has the quantisation undone
(narrowing.py): original constants, no pairs of QuantizeLinear and DequantizeLinear, plain products for
integer ones. A model that already has quantised parts is `unsupported` here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import narrowing, targets
from opsieve.backends.compilers.worker_common import BrokenModel

_OWN = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"}
_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
# The tool runs the model to calibrate it, so what onnxruntime lacks ends in a message of its own; a range
# that is not finite has no scale.
MEANINGS = (
    (
        "environment",
        (
            r"Unsupported model IR version|Failed to construct locale with name|only \*?guarantees\*? support"
            r" for models stamped"
        ),
    ),
    (
        "unsupported",
        r"NOT_IMPLEMENTED|is not a registered function/op|Failed to find proper ai\.onnx domain|^scale issue",
    ),
)
_SUFFIX, _PRODUCT = "_quantized", "_scale"


class Fed:
    """The inputs of the test as a calibration data reader gives them: once."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.left = [dict(values)]

    def get_next(self) -> Any:
        """Return the next set of inputs; `None` at the end."""
        return self.left.pop() if self.left else None


def quantise(model: Any, options: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    """Quantise the model; activations that a quantised range could represent are kept, so that removing the
    pairs leaves the original.
    """
    import onnx
    from onnxruntime import quantization

    # Whose pairs are the tool's could not be decided in the result.
    if any(node.op_type in _OWN or node.op_type.startswith("QLinear") for node in nodes(model)):
        raise NotImplementedError("the model has quantised parts of its own")
    per_channel = options["channels"] == "each"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "quantised.onnx")
        if options["mode"] == "dynamic":
            quantization.quantize_dynamic(
                model, path, per_channel=per_channel, op_types_to_quantize=["MatMul", "Conv", "Gather"]
            )
        else:
            quantization.quantize_static(
                model,
                path,
                Fed(values),
                per_channel=per_channel,
                # Else the tool drops a Relu whose range says the same, and the restored model is another one.
                extra_options={"QDQKeepRemovableActivations": True},
            )
        return onnx.load(path)


def nodes(model: Any) -> list[Any]:
    """Yield every node of a model, of its functions and of the graphs within."""
    return [node for graph in narrowing.iter_graphs(model) for node in graph.node]


def restore(before: Any, quantised: Any) -> Any:
    """Return `quantised` in float32 with the constants of `before`; raise BrokenModel for one beyond half a
    step of its scale.
    """
    from onnx import ModelProto

    model, were = ModelProto(), narrowing.constants_by_name(before)
    model.CopyFrom(quantised)
    undone = Undone(were, narrowing.constants_by_name(model))
    for graph in narrowing.iter_graphs(model):
        made = {name: node for node in graph.node for name in node.output}
        kept = [new for node in graph.node for new in undone.node(node, made)]
        del graph.node[:]
        graph.node.extend(kept)
    undone.constants(model.graph)
    return model


class Undone:
    """The undoing of one model's quantisation: `were` are the original's constants by name, `given` the
    result's.
    """

    def __init__(self, were: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        self.were, self.given = were, given
        # New constants by name
        self.wide: dict[str, Any] = {}

    def node(self, node: Any, made: Mapping[str, Any]) -> list[Any]:
        """Return the replacement of a node of the quantised model: the node itself if it has no part in the
        quantisation.
        """
        from onnx import helper

        if node.op_type == "DequantizeLinear":
            source = made.get(node.input[0])
            # A pair around an activation
            if source is not None and source.op_type == "QuantizeLinear":
                return [helper.make_node("Identity", [source.input[0]], [node.output[0]])]
            self.wide[node.output[0]] = self.original(node.input[0], node)
            return []
        if node.op_type == "QuantizeLinear":
            return []
        if node.op_type == "DynamicQuantizeLinear":
            # Its scale is multiplied in after the integer product.
            self.wide[node.output[1]] = one()
            return [helper.make_node("Identity", [node.input[0]], [node.output[0]])]
        if node.op_type in _PRODUCTS:
            product = helper.make_node(_PRODUCTS[node.op_type], node.input[:2], node.output)
            product.attribute.extend(node.attribute)
            return [product]
        return [node]

    def original(self, name: str, dequantised: Any = None) -> Any:
        """Return the original of a quantised constant, after the test of its bound; raise BrokenModel if
        there is none.
        """
        import numpy as np
        from onnx import numpy_helper

        base = name[: -len(_SUFFIX)] if name.endswith(_SUFFIX) else name
        if base not in self.were or name not in self.given:
            raise NotImplementedError(f"which constant {name[:60]!a} stands for cannot be read from its name")
        wide, narrow = (numpy_helper.to_array(each) for each in (self.were[base], self.given[name]))
        names = (
            [base + _PRODUCT, base + "_zero_point"] if dequantised is None else list(dequantised.input[1:])
        )
        if any(each not in self.given for each in names):
            raise NotImplementedError(f"the scale of {name[:60]!a} cannot be read from its name")
        scale, zero = [
            numpy_helper.to_array(self.given[each]).astype(np.float64) for each in [*names, *names[:1]]
        ][:2]
        if len(names) < 2:
            zero = np.zeros_like(scale)
        if scale.size > 1:
            axes = (
                [each.i for each in dequantised.attribute if each.name == "axis"]
                if dequantised is not None
                else []
            )
            # The tool does not say the axis of integer products: the last one that fits.
            axis = axes[0] if axes else max(i for i, side in enumerate(wide.shape) if side == scale.size)
            sides = [scale.size if i == axis % wide.ndim else 1 for i in range(wide.ndim)]
            scale, zero = scale.reshape(sides), zero.reshape(sides)
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise BrokenModel(f"the scale of {name[:60]!a} is {scale.ravel()[:4].tolist()}")
        got = (narrow.astype(np.float64) - zero.reshape(scale.shape)) * scale
        # Half a step of rounding, and a little for the tool's own arithmetic in float32.
        narrowing.check_rounding(
            base, got, wide, np.broadcast_to(scale * 0.501, np.shape(wide)) + 1e-6 * np.abs(wide)
        )
        return wide

    def constants(self, graph: Any) -> None:
        """Give the graph its new constants, and what integer products read as it was, with scales of one."""
        from onnx import numpy_helper

        read = {name for node in graph.node for name in node.input}
        for tensor in list(graph.initializer):
            base = tensor.name[: -len(_SUFFIX)]
            if tensor.name in read and tensor.name.endswith(_SUFFIX) and base in self.were:
                self.wide[tensor.name] = self.original(tensor.name)
                self.wide[base + _PRODUCT] = one()
        kept = [tensor for tensor in graph.initializer if tensor.name not in self.wide]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.wide.items())
        # They declare the quantised types.
        del graph.value_info[:]


def one() -> Any:
    """Return the scale that alters nothing."""
    import numpy as np

    return np.array(1, np.float32)


BACKEND = targets.Transformed(
    "onnxruntime-quantization",
    {"mode": ("static", "dynamic"), "channels": ("all", "each")},
    "mode",
    ("onnx", "protobuf", "flatbuffers", "packaging", "coloredlogs", "sympy", "ml_dtypes"),
    ("onnxruntime.quantization",),
    quantise,
    package="onnxruntime",
    patterns=MEANINGS,
    may_lack=True,
    restore=restore,
    fed=True,
)
