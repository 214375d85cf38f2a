"""Operators as they were before opset 13, for older models: attributes that became inputs or disappeared,
other defaults, other rules. DequantizeLinear is that of opsets before 19, which onnx 1.23 lacks.

https://github.com/onnx/onnx/blob/main/docs/Changelog.md has every version. onnx's evaluator uses the newest
version's defaults and rules for most: it does not flatten Softmax, and `axis` and `broadcast` of Add, and
every `consumed_inputs`, are an error. The operators that it gets right by version (Slice, Squeeze, the
reductions...) are left to it.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper
from onnx.reference.op_run import OpRun

from opsieve.backends.reference import reference_ops_control, reference_ops_indices
from opsieve.backends.reference.contrib.evaluation import Array, Function, classes, not_computed, standard
from opsieve.gen.irs.onnx.edits import keep
from opsieve.gen.model.structure import all_nodes, copied

# The first opset without an old form that is evaluated here
NEW = 19
# The first opset without attributes that have no effect
BARE = 13
# They hint at memory, or say what the number of outputs says too.
_WITHOUT_EFFECT = frozenset(["consumed_inputs", "is_test", "output_sequence"])
_BINARY: Mapping[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
}


def opset_of(model: ModelProto) -> int:
    """Return the version of ONNX's own operators that a model asks for; 1 if it does not say, as models of IR
    1 and 2 do not.
    """
    return max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=1)


def without_history(model: ModelProto) -> ModelProto:
    """Return a copy of an old model without the attributes that have no effect on results, and with element
    types as numbers.
    """
    copy = copied(model)
    for node in all_nodes(copy.graph.node):
        keep(node.attribute, lambda attribute: attribute.name not in _WITHOUT_EFFECT)
        for attribute in node.attribute:
            # Before opset 6 the type was a name.
            if node.op_type == "Cast" and attribute.name == "to" and attribute.type == AttributeProto.STRING:
                number = TensorProto.DataType.Value(attribute.s.decode("utf-8").upper())
                attribute.CopyFrom(helper.make_attribute("to", int(number)))
    return copy


def operators(opset: int) -> tuple[type[OpRun], ...]:
    """Return the classes that evaluate the operators of an opset below 19 that onnx's evaluator takes
    otherwise.
    """
    found: dict[str, Function] = {}
    for before, functions in _FORMS:
        if opset < before:
            found |= functions
    return (*((reference_ops_control.ScanOfBatches,) if opset < 9 else ()), *classes("", found))


def _place_operand(a: Array, b: Array, axis: int | None) -> Array:
    """Reshape the second operand to begin at the dimension `axis` of the first; by default it is aligned at
    the end.
    """
    if axis is None or b.ndim == 0:
        return b
    return b.reshape(b.shape + (1,) * (a.ndim - axis % a.ndim - b.ndim))


def _binary(function: Callable[[Array, Array], Any]) -> Function:
    def run(a: Array, b: Array, axis: int | None = None, broadcast: int = 0) -> Array:
        # Broadcasting had to be asked for before opset 7.
        if not broadcast and a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape} could not be broadcast: `broadcast` is 0")
        return np.asarray(function(a, _place_operand(a, b, axis) if broadcast else b))

    return run


def _divide_like_c(a: Array, b: Array) -> Array:
    """Divide integers as C does, towards 0."""
    return np.asarray(np.trunc(a / b).astype(a.dtype) if a.dtype.kind in "iu" else a / b)


def _run_flattened(function: Callable[[Array], Array]) -> Function:
    """Apply a function along all dimensions from `axis` on, flattened into one."""

    def run(x: Array, axis: int = 1) -> Array:
        at = axis % x.ndim if x.ndim else 0
        return function(x.reshape(int(np.prod(x.shape[:at])), -1)).reshape(x.shape)

    return run


def _softmax(x: Array) -> Array:
    # The largest is subtracted so that exp does not overflow; `initial` is for empty rows.
    weights = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _log_softmax(x: Array) -> Array:
    away = x - x.max(axis=1, keepdims=True, initial=-np.inf)
    return np.asarray(away - np.log(np.exp(away).sum(axis=1, keepdims=True)))


def _hardmax(x: Array) -> Array:
    made = np.zeros_like(x)
    if x.size:
        made[np.arange(len(x)), x.argmax(axis=1)] = 1
    return made


def _prelu(x: Array, slope: Array) -> Array:
    """Compute PRelu with one slope, or with one for each channel."""
    wide = (
        slope.reshape(-1, *[1] * (x.ndim - 2)) if slope.size > 1 and slope.ndim == 1 and x.ndim > 1 else slope
    )
    return np.where(x < 0, x * wide, x)


def _dropout(x: Array, ratio: float = 0.5) -> Any:
    """Pass the input through, as outside of training, with a mask of ones."""
    return x, np.ones(x.shape, x.dtype)


def _dropout_with_bool(x: Array, ratio: float = 0.5) -> Any:
    return x, np.ones(x.shape, bool)


def _run_batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float = 1e-5,
    momentum: float = 0.9, spatial: int = 1
) -> Any:  # fmt: skip
    """Compute BatchNormalization in test mode, with statistics per channel, or per element of an item if
    `spatial` is 0.
    """
    wide = (-1, *[1] * (x.ndim - 2)) if spatial else x.shape[1:]
    scale, bias, mean, var = (each.reshape(wide) for each in (scale, bias, mean, var))
    return scale * (x - mean) / np.sqrt(var + epsilon) + bias


def _run_resize(x: Array, scales: Any, mode: str = "nearest") -> Array:
    """Compute Upsample and the first Resize: a position is the index over the scale, rounded down for the
    nearest element.
    """
    kind = "linear" if mode in ("linear", "bilinear") else "nearest"
    # The type that today's Resize takes.
    wide = np.asarray(scales, np.float32)
    asked = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": kind}
    return np.asarray(standard("Resize", x, np.zeros(0, np.float32), wide, **asked))


def _run_upsample(
    x: Array, height_scale: float = 1.0, width_scale: float = 1.0, mode: str = "nearest"
) -> Array:
    return _run_resize(x, [1.0, 1.0, height_scale, width_scale], mode)


def _run_reshape(x: Array, shape: Any = ()) -> Array:
    """Reshape: 0 keeps a dimension, -1 is computed from the others."""
    return x.reshape([x.shape[at] if side == 0 else side for at, side in enumerate(shape)])


def _of_one_shape(function: Callable[[Array, Array], Any], mean: bool = False) -> Function:
    """Combine operands of one shape: they were not broadcast before opset 8."""

    def run(*values: Array) -> Array:
        if len({value.shape for value in values}) > 1:
            raise ValueError(f"shapes {' and '.join(str(value.shape) for value in values)} are not one")
        made = functools.reduce(function, values)
        return np.asarray(made / len(values) if mean else made).astype(values[0].dtype)

    return run


def _run_clip(
    x: Array,
    # The attribute's name
    min: float | None = None,  # noqa: A002
    # The attribute's name
    max: float | None = None,  # noqa: A002
    consumed_inputs: Any = None,
) -> Array:
    return np.clip(
        x, -np.inf if min is None else x.dtype.type(min), np.inf if max is None else x.dtype.type(max)
    )


def _run_dequantise(x: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    """Compute (x - zero) * scale, along an axis if the scale has one."""
    wide = [-1 if at == axis % max(x.ndim, 1) else 1 for at in range(x.ndim)] if scale.ndim and x.ndim else ()
    # In int64, since a difference of two uint8 would wrap around.
    off = x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64).reshape(wide))
    return np.asarray(off.astype(scale.dtype) * scale.reshape(wide))


def _product(
    a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
    broadcast: int = 0
) -> Array:  # fmt: skip
    """Compute Gemm, whose third operand is broadcast only if it says so."""
    made = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    if c.shape != made.shape and not broadcast:
        raise ValueError(f"shapes {made.shape} and {c.shape} could not be broadcast: `broadcast` is 0")
    return np.asarray(made + beta * np.broadcast_to(c, made.shape)).astype(a.dtype)


def _pad_by(
    x: Array, pads: Any = (), mode: str = "constant", value: float = 0.0, paddings: Any = ()
) -> Array:
    return reference_ops_indices.pad_array(x, np.asarray(pads or paddings), value, None, mode)


def _run_split(x: Array, sizes: Array | None = None, axis: int = 0, split: Any = None) -> Any:
    """Split into parts of the sizes that an input or an attribute lists."""
    listed = split if sizes is None else sizes
    if listed is None:
        raise not_computed(
            "a Split of opset 1 that lists no sizes has as many parts as outputs, whose number is not known"
            " here"
        )
    return tuple(np.split(x, np.cumsum(listed)[:-1], axis))


def _run_tile(x: Array, times: Array, axis: Array) -> Array:
    """Repeat the elements along one axis."""
    return np.concatenate([x] * int(times.item()), int(axis.item()))


# The forms of opsets below each number, downwards: of several for an operator the last that is above the
# model's opset holds.
_FORMS: tuple[tuple[int, Mapping[str, Function]], ...] = (
    (19, {"DequantizeLinear": _run_dequantise}),
    (13, {"Softmax": _run_flattened(_softmax), "LogSoftmax": _run_flattened(_log_softmax)}),
    (13, {"Hardmax": _run_flattened(_hardmax)}), (12, {"Dropout": _dropout_with_bool}),
    (11, {"Resize": _run_resize, "Pad": _pad_by}),
    (11, {"Scatter": lambda x, at, new, axis=0: standard("ScatterElements", x, at, new, axis=axis)}),
    (10, {"Dropout": _dropout, "Upsample": _run_resize}), (9, {"BatchNormalization": _run_batch_norm}),
    (8, {"Max": _of_one_shape(np.maximum), "Min": _of_one_shape(np.minimum)}),
    (8, {"Sum": _of_one_shape(np.add), "Mean": _of_one_shape(np.add, mean=True)}),
    (7, {name: _binary(each) for name, each in _BINARY.items()}),
    (7, {"Div": _binary(_divide_like_c)}),
    (7, {"Pow": _binary(lambda a, b: np.asarray(np.power(a, b).astype(a.dtype)))}),
    (7, {"PRelu": _prelu, "Upsample": _run_upsample}),
    # Without the padding
    (7, {"AveragePool": lambda x, **attributes: standard("AveragePool", x, **attributes)}),
    (7, {"Gemm": _product}), (6, {"Clip": _run_clip, "Tile": _run_tile}),
    (5, {"Reshape": _run_reshape}), (2, {"Split": _run_split}),
    (4, {"Concat": lambda *parts, axis=1: np.concatenate(parts, axis)}),
)  # fmt: skip
