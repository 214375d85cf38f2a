"""Structures of arithmetic that optimisers fuse: products, convolutions, normalisations, activations,
attention, quantisation.

Each lays a few nodes on a builder. Read in the documents and logs of onnxruntime, onnxoptimizer, onnxscript
and TVM, and in the models that exporters write. A twisted one is a near miss: an axis off by one, an inner
tensor read from outside, a constant that is none.
"""

import math
from typing import Final

from opsieve.gen.declarations.tensor import Domain, Tensor
from opsieve.gen.generation.pattern_builder import PatternBuilder

_ACTIVATIONS: Final = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Clip")
# Away from 0, so that a wrong factor shows in the output.
_SCALE: Final = Domain(0.2, 2)


def _activation(w: PatternBuilder, x: Tensor) -> Tensor:
    return w.op(w.one_of(*_ACTIVATIONS), x)


def _conv(w: PatternBuilder, x: Tensor, bias: bool = True) -> Tensor:
    features, sides = w.rng.between(1, 4), x.shape[2:]
    # A kernel larger than its side would need padding, which is drawn apart.
    kernel = [w.rng.between(1, min(3, side)) for side in sides]
    pads = [w.rng.between(0, k - 1) for k in kernel] * 2
    filters = w.weight(x.dtype, (features, x.shape[1], *kernel), Domain(-1, 1))
    ins = [x, filters, *([w.weight(x.dtype, (features,))] if bias else [])]
    return w.op("Conv", *ins, pads=pads if any(pads) else None, strides=[w.rng.between(1, 2) for _ in sides])


def _vector_over_channels(w: PatternBuilder, x: Tensor) -> Tensor:
    return w.weight(x.dtype, (x.shape[1], *(1 for _ in x.shape[2:])))


def _dense(w: PatternBuilder, x: Tensor) -> Tensor:
    return w.op("MatMul", x, w.weight(x.dtype, (x.shape[-1], w.rng.between(1, 6)), Domain(-1, 1)))


def matmul_add(w: PatternBuilder) -> Tensor:
    """MatMul and a bias, perhaps activated."""
    y = w.tap(_dense(w, w.x(2, 3)))
    y = w.op("Add", *w.rng.shuffle_items([y, w.weight(y.dtype, w.rng.choice((y.shape[-1:], (1,), y.shape)))]))
    return _activation(w, y) if w.rng.chance(w.rates.even) else y


def gemm_forms(w: PatternBuilder) -> Tensor:
    """Gemm with transposed operands, a Sum or an activation behind it."""
    x = w.x(2)
    turned = w.op("Transpose", x, perm=w.order(1, 0)) if w.rng.chance(w.rates.unlikely) else x
    b = w.weight(x.dtype, (turned.shape[1], w.rng.between(1, 5)), Domain(-1, 1))
    y = w.tap(w.op("Gemm", turned, b, alpha=w.rng.choice((None, 0.5)), beta=None))
    if w.rng.chance(w.rates.even):
        y = w.op("Sum", y, w.weight(y.dtype, y.shape[1:]))
    return _activation(w, y)


def conv_bn(w: PatternBuilder) -> Tensor:
    """Conv and BatchNormalization."""
    y = w.tap(_conv(w, w.x(4), w.rng.chance(w.rates.even)))
    channels = (y.shape[1],)
    scale, bias, mean = (
        w.weight(y.dtype, channels, domain) for domain in (_SCALE, Domain(-1, 1), Domain(-1, 1))
    )
    return w.op("BatchNormalization", y, scale, bias, mean, w.weight(y.dtype, channels, Domain(0.5, 2)))


def conv_scaled(w: PatternBuilder) -> Tensor:
    """Conv and an Add or Mul over channels, or by a number."""
    y = w.tap(_conv(w, w.x(4), w.rng.chance(w.rates.mostly)))
    if w.rng.chance(w.rates.rare):
        y = w.op(w.one_of("Add", "Sub", "Mul", "Div"), y, w.scalar(2, y.dtype))
    else:
        y = w.op(w.one_of("Add", "Sub", "Mul"), y, _vector_over_channels(w, y))
    return _activation(w, y) if w.rng.chance(w.rates.even) else y


def conv_add_activation(w: PatternBuilder) -> Tensor:
    """Return a residual block."""
    x = w.x(4)
    y = _conv(w, x)
    other = w.builder.match(y.dtype, y.shape)
    return w.op("Relu", w.tap(w.op("Add", w.tap(y), other)))


def conv_activation(w: PatternBuilder) -> Tensor:
    """Conv and an activation."""
    return _activation(w, w.tap(_conv(w, w.x(4))))


def pad_window(w: PatternBuilder) -> Tensor:
    """Pad before a convolution or pooling: with zeros, another number, edges, or over channels."""
    x = w.x(4)
    spatial = [w.rng.between(0, 2) for _ in range(2)]
    before = [0, 1 if w.is_broken_here(w.rates.even) else 0, *spatial]
    mode = w.rng.choice(("reflect", "edge")) if w.is_broken_here(w.rates.even) else "constant"
    # A reflected pad has to be shorter than the side that it mirrors.
    if mode == "reflect" and any(pad >= side for pad, side in zip(spatial, x.shape[2:], strict=True)):
        mode = "edge"
    value = w.scalar(0, x.dtype) if mode == "constant" and w.rng.chance(w.rates.even) else None
    ins = [x, w.ints(*before, *before), *([value] if value else [])]
    y = w.tap(w.op("Pad", *ins, mode=None if mode == "constant" else mode))
    kind = w.one_of("Conv", "MaxPool", "AveragePool", "Filter")
    if kind == "Conv":
        return _conv(w, y)
    # A near miss: a pad of the filter must not be merged into the pads of the convolution.
    if kind == "Filter":
        filters = w.weight(y.dtype, (2, x.shape[1], 1, 1), Domain(-1, 1))
        padded = w.op("Pad", filters, w.ints(0, 0, 0, 0, 0, 0, *(min(1, side - 1) for side in y.shape[2:])))
        return w.op("Conv", y, padded)
    kernel = [w.rng.between(1, min(2, side)) for side in y.shape[2:]]
    return w.op(
        kind, y, kernel_shape=kernel, count_include_pad=w.rng.below(2) if kind == "AveragePool" else None
    )


def layer_norm(w: PatternBuilder) -> Tensor:
    """LayerNormalization from primitives, in the two ways that exporters write it."""
    x = w.x(2, 4)
    last = w.axis(x.rank - 1, x.rank) - (x.rank if w.rng.chance(w.rates.even) else 0)
    mean = mean_over(w, x, last)
    centred = w.tap(w.op("Sub", x, mean))
    squared = (
        w.op("Mul", centred, centred)
        if w.rng.chance(w.rates.even)
        else w.op("Pow", centred, w.scalar(2, x.dtype))
    )
    deviation = w.op(
        "Sqrt", w.op("Add", mean_over(w, squared, last), w.builder.constant([0.01], x.dtype, ()))
    )
    y = (
        w.op("Div", centred, deviation)
        if w.rng.chance(w.rates.likely)
        else w.op("Mul", centred, w.op("Reciprocal", deviation))
    )
    y = w.op("Mul", y, w.weight(x.dtype, x.shape[-1:], _SCALE))
    return w.op("Add", y, w.weight(x.dtype, x.shape[-1:])) if w.rng.chance(w.rates.mostly) else y


def mean_over(w: PatternBuilder, x: Tensor, axis: int, name: str = "ReduceMean") -> Tensor:
    """Return a reduction over one axis, as the opset has it."""
    # Opset 18 turned the attribute `axes` of ReduceMean and its like into an input.
    if w.builder.opset >= 18:
        return w.op(name, x, w.ints(axis))
    return w.op(name, x, axes=[axis])


def rms_norm(w: PatternBuilder) -> Tensor:
    """RMSNormalization from primitives."""
    x = w.x(2, 4)
    squared = w.op("Pow", x, w.scalar(2, x.dtype))
    root = w.op(
        "Sqrt", w.op("Add", mean_over(w, squared, w.axis(-1, 1)), w.builder.constant([0.01], x.dtype, ()))
    )
    return w.op("Mul", w.tap(w.op("Div", x, root)), w.weight(x.dtype, x.shape[-1:]))


def skip_norm(w: PatternBuilder) -> Tensor:
    """Return a residual sum and LayerNormalization."""
    x = w.x(3)
    both = w.tap(w.op("Add", x, w.builder.match(x.dtype, x.shape)))
    if w.rng.chance(w.rates.unlikely):
        both = w.op("Add", both, w.weight(x.dtype, x.shape[-1:]))
    return w.op(
        "LayerNormalization",
        both,
        w.weight(x.dtype, x.shape[-1:], _SCALE),
        w.weight(x.dtype, x.shape[-1:]),
        axis=w.axis(-1, 1),
    )


def gelu_erf(w: PatternBuilder) -> Tensor:
    """GELU by Erf, its factors in any order, perhaps with a bias in front."""
    x = w.x(1, 4)
    if w.rng.chance(w.rates.unlikely):
        x = w.op("Add", x, w.weight(x.dtype, x.shape[-1:]))
    inner = w.op("Div", x, w.scalar(math.sqrt(2), x.dtype))
    gate = w.op("Add", w.tap(w.op("Erf", inner)), w.scalar(1, x.dtype))
    if w.rng.chance(w.rates.even):
        return w.op("Mul", w.op("Mul", x, gate), w.scalar(0.5, x.dtype))
    return w.op("Mul", w.op("Mul", x, w.scalar(0.5, x.dtype)), gate)


def gelu_tanh(w: PatternBuilder) -> Tensor:
    """GELU by Tanh."""
    x = w.x(1, 4, domain=Domain(-8, 8))
    cube = (
        w.op("Mul", w.op("Mul", x, x), x)
        if w.rng.chance(w.rates.even)
        else w.op("Pow", x, w.scalar(3, x.dtype))
    )
    # The constants of the approximation: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    inner = w.op("Add", x, w.op("Mul", cube, w.scalar(0.044715, x.dtype)))
    gate = w.op("Add", w.op("Tanh", w.op("Mul", inner, w.scalar(0.7978846, x.dtype))), w.scalar(1, x.dtype))
    return w.op("Mul", w.op("Mul", x, w.scalar(0.5, x.dtype)), w.tap(gate))


def quick_gelu(w: PatternBuilder) -> Tensor:
    """x * Sigmoid(1.702 x)."""
    x = w.x(1, 4)
    return w.op("Mul", x, w.tap(w.op("Sigmoid", w.op("Mul", x, w.scalar(1.702, x.dtype)))))


def silu(w: PatternBuilder) -> Tensor:
    """x * Sigmoid(x), and x * HardSigmoid(x)."""
    x = w.x(1, 4)
    # HardSwish's page: x * HardSigmoid(x) with alpha = 1/6 and beta = 0.5, the default.
    gate = w.op("Sigmoid", x) if w.rng.chance(w.rates.even) else w.op("HardSigmoid", x, alpha=1 / 6)
    return w.op("Mul", *w.rng.shuffle_items([x, w.tap(gate)]))


def attention(w: PatternBuilder) -> Tensor:
    """Scaled dot-product attention from MatMul, Transpose, Softmax."""
    batch, heads, length, size = (w.rng.between(1, 3) for _ in range(4))
    dtype = w.real()
    q, k, v = (w.builder.match(dtype, (batch, length, heads * size), Domain(-4, 4)) for _ in range(3))
    split = w.ints(batch, length, heads, size)
    q, v = (w.op("Transpose", w.op("Reshape", part, split), perm=w.order(0, 2, 1, 3)) for part in (q, v))
    k = w.op("Transpose", w.op("Reshape", k, split), perm=w.order(0, 2, 3, 1))
    scores = w.op("MatMul", q, k)
    scores = w.op(w.one_of("Mul", "Div"), scores, w.scalar(2, scores.dtype))
    if w.rng.chance(w.rates.even):
        scores = w.op("Add", scores, w.weight(scores.dtype, scores.shape[-2:]))
    y = w.op("MatMul", w.tap(w.op("Softmax", scores, axis=w.axis(-1, 1))), v)
    # In a Reshape 0 copies the size and -1 takes what is left.
    return w.op("Reshape", w.op("Transpose", y, perm=w.order(0, 2, 1, 3)), w.ints(0, 0, -1))


def _quantised(w: PatternBuilder, x: Tensor) -> Tensor:
    dtype = w.one_of("uint8", "int8")
    scale, zero = (
        w.builder.constant([w.rng.choice((0.05, 0.1))], x.dtype, ()),
        w.builder.constant([0], dtype, ()),
    )
    q = w.op("QuantizeLinear", x, scale, zero)
    # With two scales the pair rescales, so it must not be dropped.
    other = w.builder.constant([0.25], x.dtype, ()) if w.is_broken_here(w.rates.unlikely) else scale
    return w.op("DequantizeLinear", w.tap(q), other, zero)


def qdq(w: PatternBuilder) -> Tensor:
    """Pairs of QuantizeLinear and DequantizeLinear around an operator."""
    x = _quantised(w, w.x(2, 4, dtype="float32"))
    kind = w.one_of(
        "Add", "MatMul", "Relu", "Reshape", "Transpose", "Softmax", "Conv", "MaxPool", "Concat", "Sigmoid"
    )
    if kind == "Add":
        y = w.op("Add", x, _quantised(w, w.builder.match("float32", x.shape)))
    elif kind == "MatMul":
        y = w.op("MatMul", x, _quantised(w, w.weight("float32", (x.shape[-1], 3), Domain(-1, 1))))
    elif kind == "Reshape":
        y = w.op("Reshape", x, w.ints(-1, x.shape[-1]))
    elif kind == "Transpose":
        y = w.op("Transpose", x, perm=w.rng.shuffle_items(range(x.rank)))
    elif kind == "Conv":
        x = _quantised(w, w.x(4))
        y = w.op("Conv", x, _quantised(w, w.weight("float32", (2, x.shape[1], 1, 1), Domain(-1, 1))))
    elif kind == "MaxPool":
        # A window of one element changes nothing, so that only the quantisation around it can go wrong.
        y = w.op("MaxPool", _quantised(w, w.x(4, dtype="float32")), kernel_shape=[1, 1])
    elif kind == "Concat":
        y = w.op("Concat", x, _quantised(w, w.builder.match("float32", x.shape)), axis=w.rng.below(x.rank))
    else:
        y = w.op(kind, x)
    return _quantised(w, y)


def scaled_matmul(w: PatternBuilder) -> Tensor:
    """Mul by a number before or behind a MatMul."""
    x = w.x(2, 4)
    if w.rng.chance(w.rates.even):
        x = w.tap(w.op(w.one_of("Mul", "Div"), x, w.scalar(2, x.dtype)))
    y = _dense(w, x)
    return w.op(w.one_of("Mul", "Div"), y, w.scalar(2, x.dtype)) if w.rng.chance(w.rates.likely) else y


def turned_matmul(w: PatternBuilder) -> Tensor:
    """MatMul of transposed operands; twisted, transposed in other axes too."""
    x = w.x(2, 4)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    y = w.tap(w.op("Transpose", x, perm=w.order(*order)))
    other = w.weight(x.dtype, (w.rng.between(1, 4), y.shape[-1]), Domain(-1, 1))
    return w.op("MatMul", y, w.op("Transpose", other, perm=[1, 0]))


def softmax_by_hand(w: PatternBuilder) -> Tensor:
    """Exp over its own sum."""
    x = w.x(1, 3, domain=Domain(-5, 5))
    e = w.op("Exp", w.op("Sub", x, mean_over(w, x, -1, "ReduceMax")) if w.rng.chance(w.rates.even) else x)
    total = w.op("ReduceSum", w.tap(e), w.ints(w.axis(-1, 1)))
    # A sum that underflows to 0 would make the result undefined.
    return w.op("Div", e, w.op("Add", total, w.builder.constant([0.01], x.dtype, ())))


def group_norm(w: PatternBuilder) -> Tensor:
    """GroupNormalization from Reshape and InstanceNormalization."""
    x = w.x(4)
    # A group must divide the channels.
    groups = 2 if x.shape[1] % 2 == 0 else 1
    y = w.op("Reshape", x, w.ints(x.shape[0], groups, -1))
    y = w.op("InstanceNormalization", y, w.weight(x.dtype, (groups,), _SCALE), w.weight(x.dtype, (groups,)))
    y = w.op("Reshape", w.tap(y), w.ints(*x.shape))
    y = w.op("Mul", y, _vector_over_channels(w, y))
    return w.op("Add", y, _vector_over_channels(w, y))


def scaled_norm(w: PatternBuilder) -> Tensor:
    """BatchNormalization or InstanceNormalization with Mul and Add behind it."""
    x = w.x(3, 4)
    channels = (x.shape[1],)
    y = w.op("InstanceNormalization", x, w.weight(x.dtype, channels, _SCALE), w.weight(x.dtype, channels))
    y = w.tap(w.op("Mul", y, _vector_over_channels(w, y)))
    return w.op("Add", y, _vector_over_channels(w, y))


def dropout_between(w: PatternBuilder) -> Tensor:
    """Dropout or Identity inside what would fuse."""
    y = _dense(w, w.x(2, 3))
    y = w.op(w.one_of("Dropout", "Identity"), y)
    return w.op("Add", w.tap(y), w.weight(y.dtype, y.shape[-1:]))


def global_pool(w: PatternBuilder) -> Tensor:
    """Return a mean over the spatial axes, as a pooling or a reduction, and what follows it in
    classifiers.
    """
    x = w.x(4)
    if w.rng.chance(w.rates.even):
        y = w.op("GlobalAveragePool", x)
    else:
        y = (
            w.op("ReduceMean", x, w.ints(2, 3))
            if w.builder.opset >= 18
            else w.op("ReduceMean", x, axes=[2, 3])
        )
    return _dense(w, w.op("Flatten", w.tap(y)))


FUSED: Final = (
    matmul_add,
    gemm_forms,
    conv_bn,
    conv_scaled,
    conv_add_activation,
    conv_activation,
    pad_window,
    layer_norm,
    rms_norm,
    skip_norm,
    gelu_erf,
    gelu_tanh,
    quick_gelu,
    silu,
    attention,
    qdq,
    scaled_matmul,
    turned_matmul,
    softmax_by_hand,
    group_norm,
    scaled_norm,
    dropout_between,
    global_pool,
)
