"""Structures that optimisers look for, by what they look like from afar: each lays a few nodes on a sketch.

Read in the documents and logs of onnxruntime, onnxoptimizer, onnxscript and TVM, and in the models that exporters write. A twisted one is
a near miss: an axis off by one, an inner tensor read from outside, a constant that is none.
"""

import math
from collections.abc import Callable

from opsieve.gen.declaration import Tensor
from opsieve.gen.domains import Domain
from opsieve.gen.tensor_facts import NUMBER
from opsieve.gen.weaving import Misfit, Weaver

Pattern = Callable[[Weaver], Tensor]
_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Clip")
_SCALE = Domain(0.2, 2)


def _activation(w: Weaver, x: Tensor) -> Tensor:
    return w.op(w.one_of(*_ACTIVATIONS), x)


def _image(w: Weaver, rank: int = 4) -> Tensor:
    return w.x(rank)


def _conv(w: Weaver, x: Tensor, bias: bool = True) -> Tensor:
    features, sides = w.draw.between(1, 4), x.shape[2:]
    kernel = [w.draw.between(1, min(3, side)) for side in sides]
    pads = [w.draw.between(0, k - 1) for k in kernel] * 2
    filters = w.weight(x.dtype, (features, x.shape[1], *kernel), Domain(-1, 1))
    ins = [x, filters, *([w.weight(x.dtype, (features,))] if bias else [])]
    return w.op("Conv", *ins, pads=pads if any(pads) else None, strides=[w.draw.between(1, 2) for _ in sides])


def _vector_over_channels(w: Weaver, x: Tensor) -> Tensor:
    return w.weight(x.dtype, (x.shape[1], *(1 for _ in x.shape[2:])))


def _dense(w: Weaver, x: Tensor, width: int | None = None) -> Tensor:
    return w.op("MatMul", x, w.weight(x.dtype, (x.shape[-1], width or w.draw.between(1, 6)), Domain(-1, 1)))


def matmul_add(w: Weaver) -> Tensor:
    """MatMul and a bias, perhaps activated."""
    y = w.tap(_dense(w, w.x(2, 3)))
    y = w.op("Add", *w.draw.shuffled([y, w.weight(y.dtype, w.draw.choice((y.shape[-1:], (1,), y.shape)))]))
    return _activation(w, y) if w.draw.chance(0.5) else y


def gemm_forms(w: Weaver) -> Tensor:
    """Gemm with transposed operands, a Sum or an activation behind it."""
    x = w.x(2)
    turned = w.op("Transpose", x, perm=w.order(1, 0)) if w.draw.chance(0.4) else x
    b = w.weight(x.dtype, (turned.shape[1], w.draw.between(1, 5)), Domain(-1, 1))
    y = w.tap(w.op("Gemm", turned, b, alpha=w.draw.choice((None, 0.5)), beta=None))
    if w.draw.chance(0.5):
        y = w.op("Sum", y, w.weight(y.dtype, y.shape[1:]))
    return _activation(w, y)


def conv_bn(w: Weaver) -> Tensor:
    """Conv and BatchNormalization."""
    y = w.tap(_conv(w, _image(w), w.draw.chance(0.5)))
    channels = (y.shape[1],)
    scale, bias, mean = (w.weight(y.dtype, channels, domain) for domain in (_SCALE, Domain(-1, 1), Domain(-1, 1)))
    return w.op("BatchNormalization", y, scale, bias, mean, w.weight(y.dtype, channels, Domain(0.5, 2)))


def conv_scaled(w: Weaver) -> Tensor:
    """Conv and an Add or Mul over channels, or by a number."""
    y = w.tap(_conv(w, _image(w), w.draw.chance(0.7)))
    if w.draw.chance(0.3):
        y = w.op(w.one_of("Add", "Sub", "Mul", "Div"), y, w.scalar(2, y.dtype))
    else:
        y = w.op(w.one_of("Add", "Sub", "Mul"), y, _vector_over_channels(w, y))
    return _activation(w, y) if w.draw.chance(0.5) else y


def conv_add_activation(w: Weaver) -> Tensor:
    """A residual block."""
    x = _image(w)
    y = _conv(w, x)
    other = w.sketch.match(y.dtype, y.shape)
    return w.op("Relu", w.tap(w.op("Add", w.tap(y), other)))


def conv_activation(w: Weaver) -> Tensor:
    """Conv and an activation."""
    return _activation(w, w.tap(_conv(w, _image(w))))


def pad_window(w: Weaver) -> Tensor:
    """Pad before a convolution or pooling: with zeros, another number, edges, or over channels."""
    x = _image(w)
    spatial = [w.draw.between(0, 2) for _ in range(2)]
    before = [0, w.draw.below(2) if w.twisted else 0, *spatial]
    mode = w.draw.choice(("constant", "constant", "reflect", "edge")) if w.twisted else "constant"
    if mode == "reflect" and any(pad >= side for pad, side in zip(spatial, x.shape[2:], strict=True)):
        mode = "edge"
    value = w.scalar(0, x.dtype) if mode == "constant" and w.draw.chance(0.5) else None
    ins = [x, w.ints(*before, *before), *([value] if value else [])]
    y = w.tap(w.op("Pad", *ins, mode=None if mode == "constant" else mode))
    kind = w.one_of("Conv", "MaxPool", "AveragePool", "Filter")
    if kind == "Conv":
        return _conv(w, y)
    if kind == "Filter":  # the pad of a filter is not that of the image
        filters = w.weight(y.dtype, (2, x.shape[1], 1, 1), Domain(-1, 1))
        padded = w.op("Pad", filters, w.ints(0, 0, 0, 0, 0, 0, *(min(1, side - 1) for side in y.shape[2:])))
        return w.op("Conv", y, padded)
    kernel = [w.draw.between(1, min(2, side)) for side in y.shape[2:]]
    return w.op(kind, y, kernel_shape=kernel, count_include_pad=w.draw.below(2) if kind == "AveragePool" else None)


def layer_norm(w: Weaver) -> Tensor:
    """LayerNormalization from primitives, in the two ways that exporters write it."""
    x = w.x(2, 4)
    last = w.axis(x.rank - 1, x.rank) - (x.rank if w.draw.chance(0.5) else 0)
    mean = _mean(w, x, last)
    centred = w.tap(w.op("Sub", x, mean))
    squared = w.op("Mul", centred, centred) if w.draw.chance(0.5) else w.op("Pow", centred, w.scalar(2, x.dtype))
    deviation = w.op("Sqrt", w.op("Add", _mean(w, squared, last), w.sketch.ints([0.01], x.dtype, ())))
    y = w.op("Div", centred, deviation) if w.draw.chance(0.6) else w.op("Mul", centred, w.op("Reciprocal", deviation))
    y = w.op("Mul", y, w.weight(x.dtype, x.shape[-1:], _SCALE))
    return w.op("Add", y, w.weight(x.dtype, x.shape[-1:])) if w.draw.chance(0.7) else y


def _mean(w: Weaver, x: Tensor, axis: int, name: str = "ReduceMean") -> Tensor:
    if w.sketch.opset >= 18:
        return w.op(name, x, w.ints(axis))
    return w.op(name, x, axes=[axis])


def rms_norm(w: Weaver) -> Tensor:
    """RMSNormalization from primitives."""
    x = w.x(2, 4)
    squared = w.op("Pow", x, w.scalar(2, x.dtype))
    root = w.op("Sqrt", w.op("Add", _mean(w, squared, w.axis(-1, 1)), w.sketch.ints([0.01], x.dtype, ())))
    return w.op("Mul", w.tap(w.op("Div", x, root)), w.weight(x.dtype, x.shape[-1:]))


def skip_norm(w: Weaver) -> Tensor:
    """A residual sum and LayerNormalization."""
    x = w.x(3)
    both = w.tap(w.op("Add", x, w.sketch.match(x.dtype, x.shape)))
    if w.draw.chance(0.4):
        both = w.op("Add", both, w.weight(x.dtype, x.shape[-1:]))
    return w.op(
        "LayerNormalization",
        both,
        w.weight(x.dtype, x.shape[-1:], _SCALE),
        w.weight(x.dtype, x.shape[-1:]),
        axis=w.axis(-1, 1),
    )


def gelu_erf(w: Weaver) -> Tensor:
    """GELU by Erf, its factors in any order, perhaps with a bias in front."""
    x = w.x(1, 4)
    if w.draw.chance(0.4):
        x = w.op("Add", x, w.weight(x.dtype, x.shape[-1:]))
    inner = w.op("Div", x, w.scalar(math.sqrt(2), x.dtype))
    gate = w.op("Add", w.tap(w.op("Erf", inner)), w.scalar(1, x.dtype))
    if w.draw.chance(0.5):
        return w.op("Mul", w.op("Mul", x, gate), w.scalar(0.5, x.dtype))
    return w.op("Mul", w.op("Mul", x, w.scalar(0.5, x.dtype)), gate)


def gelu_tanh(w: Weaver) -> Tensor:
    """GELU by Tanh."""
    x = w.x(1, 4, domain=Domain(-8, 8))
    cube = w.op("Mul", w.op("Mul", x, x), x) if w.draw.chance(0.5) else w.op("Pow", x, w.scalar(3, x.dtype))
    inner = w.op("Add", x, w.op("Mul", cube, w.scalar(0.044715, x.dtype)))
    gate = w.op("Add", w.op("Tanh", w.op("Mul", inner, w.scalar(0.7978846, x.dtype))), w.scalar(1, x.dtype))
    return w.op("Mul", w.op("Mul", x, w.scalar(0.5, x.dtype)), w.tap(gate))


def quick_gelu(w: Weaver) -> Tensor:
    """x * Sigmoid(1.702 x)."""
    x = w.x(1, 4)
    return w.op("Mul", x, w.tap(w.op("Sigmoid", w.op("Mul", x, w.scalar(1.702, x.dtype)))))


def silu(w: Weaver) -> Tensor:
    """x * Sigmoid(x), and x * HardSigmoid(x)."""
    x = w.x(1, 4)
    gate = w.op("Sigmoid", x) if w.draw.chance(0.5) else w.op("HardSigmoid", x, alpha=1 / 6)
    return w.op("Mul", *w.draw.shuffled([x, w.tap(gate)]))


def attention(w: Weaver) -> Tensor:
    """Scaled dot-product attention from MatMul, Transpose, Softmax."""
    batch, heads, length, size = (w.draw.between(1, 3) for _ in range(4))
    dtype = w.real()
    q, k, v = (w.sketch.match(dtype, (batch, length, heads * size), Domain(-4, 4)) for _ in range(3))
    split = w.ints(batch, length, heads, size)
    q, v = (w.op("Transpose", w.op("Reshape", part, split), perm=w.order(0, 2, 1, 3)) for part in (q, v))
    k = w.op("Transpose", w.op("Reshape", k, split), perm=w.order(0, 2, 3, 1))
    scores = w.op("MatMul", q, k)
    scores = w.op(w.one_of("Mul", "Div"), scores, w.scalar(2, scores.dtype))
    if w.draw.chance(0.5):
        scores = w.op("Add", scores, w.weight(scores.dtype, scores.shape[-2:]))
    y = w.op("MatMul", w.tap(w.op("Softmax", scores, axis=w.axis(-1, 1))), v)
    return w.op("Reshape", w.op("Transpose", y, perm=w.order(0, 2, 1, 3)), w.ints(0, 0, -1))


def _quantised(w: Weaver, x: Tensor) -> Tensor:
    dtype = w.one_of("uint8", "int8")
    scale, zero = w.sketch.ints([w.draw.choice((0.05, 0.1))], x.dtype, ()), w.sketch.ints([0], dtype, ())
    q = w.op("QuantizeLinear", x, scale, zero)
    other = w.sketch.ints([0.25], x.dtype, ()) if w.twisted and w.draw.chance(0.4) else scale
    return w.op("DequantizeLinear", w.tap(q), other, zero)


def qdq(w: Weaver) -> Tensor:
    """Pairs of QuantizeLinear and DequantizeLinear around an operator."""
    x = _quantised(w, w.x(2, 4, dtype="float32"))
    kind = w.one_of("Add", "MatMul", "Relu", "Reshape", "Transpose", "Softmax", "Conv", "MaxPool", "Concat", "Sigmoid")
    if kind == "Add":
        y = w.op("Add", x, _quantised(w, w.sketch.match("float32", x.shape)))
    elif kind == "MatMul":
        y = w.op("MatMul", x, _quantised(w, w.weight("float32", (x.shape[-1], 3), Domain(-1, 1))))
    elif kind == "Reshape":
        y = w.op("Reshape", x, w.ints(-1, x.shape[-1]))
    elif kind == "Transpose":
        y = w.op("Transpose", x, perm=w.draw.shuffled(range(x.rank)))
    elif kind == "Conv":
        x = _quantised(w, _image(w))
        y = w.op("Conv", x, _quantised(w, w.weight("float32", (2, x.shape[1], 1, 1), Domain(-1, 1))))
    elif kind == "MaxPool":
        y = w.op("MaxPool", _quantised(w, w.x(4, dtype="float32")), kernel_shape=[1, 1])
    elif kind == "Concat":
        y = w.op("Concat", x, _quantised(w, w.sketch.match("float32", x.shape)), axis=w.draw.below(x.rank))
    else:
        y = w.op(kind, x)
    return _quantised(w, y)


def transposes(w: Weaver) -> Tensor:
    """Transposes that cancel, merge, or travel through element-wise operators."""
    x = w.x(2, 4)
    order = w.draw.shuffled(range(x.rank))
    y = w.tap(w.op("Transpose", x, perm=order))
    y = w.chain(y, [w.one_of("Relu", "Sigmoid", "Neg", "Abs", "Identity") for _ in range(w.draw.below(3))])
    if w.draw.chance(0.5):
        y = w.op(w.one_of("Add", "Mul"), y, w.sketch.partner(y))
    back = [order.index(axis) for axis in range(x.rank)]
    if y.rank != x.rank:
        raise Misfit
    return w.op("Transpose", y, perm=w.order(*back) if w.draw.chance(0.7) else w.draw.shuffled(range(x.rank)))


def transpose_reduced(w: Weaver) -> Tensor:
    """Transpose before a reduction, Softmax, Concat, Split or Slice: the axis moves."""
    x = w.x(2, 4)
    y = w.op("Transpose", x, perm=w.draw.shuffled(range(x.rank)))
    axis = w.draw.between(-y.rank, y.rank - 1)
    kind = w.one_of("ReduceSum", "Softmax", "ArgMax", "Concat", "Squeeze", "Gather")
    if kind == "ReduceSum":
        return w.op("ReduceSum", y, w.ints(axis), keepdims=w.draw.below(2))
    if kind == "Concat":
        return w.op("Concat", y, w.op("Neg", y), axis=axis)
    if kind == "Squeeze":
        return w.op("Squeeze", w.op("Unsqueeze", y, w.ints(axis)), w.ints(axis))
    if kind == "Gather":
        return w.op("Gather", y, w.ints(0), axis=axis)
    return w.op(kind, y, axis=axis)


def reshapes(w: Weaver) -> Tensor:
    """Reshapes, Flattens and Transposes in a row."""
    x = w.x(2, 4)
    y = (
        w.tap(w.op("Reshape", x, w.ints(-1)))
        if w.draw.chance(0.5)
        else w.op("Flatten", x, axis=w.draw.between(0, x.rank))
    )
    if y.rank == 2 and w.draw.chance(0.4):
        y = w.op("Transpose", y, perm=[1, 0])
    return w.op("Reshape", y, w.ints(*x.shape[::-1] if w.draw.chance(0.5) else x.shape))


def squeezes(w: Weaver) -> Tensor:
    """Unsqueeze and Squeeze, on the same axes or not."""
    x = w.x(1, 4)
    axes = [w.draw.between(0, x.rank)]
    y = w.tap(w.op("Unsqueeze", x, w.ints(*axes)))
    ones = [axis for axis, side in enumerate(y.shape) if side == 1]
    return w.op("Squeeze", y, w.ints(w.draw.choice(ones) if w.twisted else axes[0]))


def casts(w: Weaver) -> Tensor:
    """Casts in a row: widening, narrowing, there and back."""
    x = w.x(0, 4)
    for dtype in (w.one_of("float16", "float64", "int32", "bool", "float32"), w.one_of("float32", "int64", x.dtype)):
        if dtype != x.dtype:
            x = w.tap(w.op("Cast", x, to=NUMBER[dtype]))
    return x


def slices(w: Weaver) -> Tensor:
    """Slices in a row, on one axis or two, forwards and backwards."""
    x = w.x(2, 4)
    for _ in range(2):
        axis = w.draw.below(x.rank)
        side = x.shape[axis]
        start = w.draw.below(side)
        end = w.draw.between(start + 1, side)
        back = w.draw.chance(0.3)
        ends = (end - 1, start - 1 - (side if start == 0 else 0)) if back else (start, end)
        x = w.tap(w.op("Slice", x, w.ints(ends[0]), w.ints(ends[1]), w.ints(axis), w.ints(-1 if back else 1)))
    return x


def concat_split(w: Weaver) -> Tensor:
    """Concat and Split, or Slices, that take apart what was put together."""
    x = w.x(1, 4)
    axis = w.draw.below(x.rank)
    other = w.sketch.match(x.dtype, x.shape)
    y = w.tap(w.op("Concat", x, other, axis=axis))
    side = x.shape[axis]
    if w.draw.chance(0.5):
        sizes = (side, side) if not w.twisted or side == 1 else (side - 1, side + 1)
        parts = w.ops("Split", y, w.ints(*sizes), axis=axis)
    else:
        parts = [w.op("Slice", y, w.ints(a), w.ints(b), w.ints(axis)) for a, b in ((0, side), (side, 2 * side))]
    return w.op("Concat", *w.draw.shuffled(parts), axis=axis)


def clips(w: Weaver) -> Tensor:
    """Relu and Clip, Clip and Clip, Min and Max."""
    x = w.x(0, 4)
    for _ in range(2):
        kind = w.one_of("Relu", "Clip", "Min", "Max", "Clip")
        if kind == "Clip":
            low = w.draw.between(-2, 1)
            bounds = [w.scalar(low, x.dtype), w.scalar(low + w.draw.between(-1, 3), x.dtype)]
            bounds = [w.sketch.ints(bound.values or (0,), x.dtype, ()) for bound in bounds]
            x = w.op("Clip", x, *bounds) if bounds[0].high <= bounds[1].low else w.op("Clip", x, bounds[0])
        else:
            x = w.op(kind, x) if kind == "Relu" else w.op(kind, x, w.scalar(1, x.dtype))
        x = w.tap(x)
    return x


def nothing_done(w: Weaver) -> Tensor:
    """Operators that change nothing: of a neutral element, an identity, a dropout; twisted, nearly so."""
    x = w.x(0, 4)
    kind = w.one_of(
        "Add",
        "Mul",
        "Sub",
        "Div",
        "Identity",
        "Dropout",
        "Neg",
        "Pow",
        "Expand",
        "Transpose",
        "Cast",
        "Concat",
        "Sum",
        "Pad",
        "Slice",
    )
    if kind in ("Add", "Sub"):
        return w.op(kind, x, w.scalar(0, x.dtype))
    if kind in ("Mul", "Div", "Pow"):
        return w.op(kind, x, w.scalar(1, x.dtype))
    if kind == "Neg":
        return w.op("Neg", w.tap(w.op("Neg", x)))
    if kind == "Expand":
        return w.op("Expand", x, w.ints(*x.shape))
    if kind == "Cast":
        return w.op("Cast", x, to=NUMBER[x.dtype])
    if kind == "Concat" and x.rank:
        return w.op("Concat", x, axis=0)
    if kind == "Pad" and x.rank:
        return w.op("Pad", x, w.ints(*[0] * (2 * x.rank)))
    if kind == "Slice" and x.rank:
        return w.op("Slice", x, w.ints(0), w.ints(2**31 - 1), w.ints(0))
    return w.op("Identity" if kind in ("Concat", "Pad", "Slice") else kind, x)


def itself(w: Weaver) -> Tensor:
    """An operator of a tensor and itself."""
    x = w.x(0, 4, domain=Domain(0.2, 100))
    return w.op(w.one_of("Sub", "Div", "Mul", "Add", "Max", "Min"), x, x)


def logic(w: Weaver) -> Tensor:
    """Double Not, Not of a comparison, Where on a negated condition."""
    x = w.x(1, 3)
    truth = w.op(w.one_of("Less", "Greater", "Equal", "GreaterOrEqual"), x, w.sketch.partner(x))
    no = w.tap(w.op("Not", truth))
    if w.draw.chance(0.5):
        return w.op("Where", no, x, w.op("Neg", x)) if no.shape == x.shape else w.op("Not", no)
    return w.op("Not", no)


def reductions(w: Weaver) -> Tensor:
    """Reductions in a row, of one element, or with the divisor of a mean."""
    x = w.x(2, 4)
    first, second = w.draw.below(x.rank), w.draw.below(x.rank)
    y = w.tap(_mean(w, x, first, w.one_of("ReduceMean", "ReduceMax", "ReduceMin")))
    y = _mean(w, y, second, w.one_of("ReduceMean", "ReduceMax", "ReduceMin"))
    total = w.op("ReduceSum", x, w.ints(first), keepdims=1)
    return w.op("Add", y, w.op("Div", total, w.scalar(x.shape[first], x.dtype)))


def shape_arithmetic(w: Weaver) -> Tensor:
    """A Reshape whose target is computed from Shape, Gather, Unsqueeze, Concat, as exporters write it."""
    x = w.x(2, 4)
    shape = w.op("Shape", x)
    first = w.op("Gather", shape, w.sketch.ints([0], "int64", ()), axis=0)
    target = w.op("Concat", w.op("Unsqueeze", first, w.ints(0)), w.ints(-1), axis=0)
    rest = math.prod(x.shape[1:])
    made = w.sketch.emit("Reshape", "", [x, target], {}, [(x.dtype, (x.shape[0], rest))], (x.low, x.high))
    return made[0]


def folded(w: Weaver) -> Tensor:
    """A subgraph of constants only."""
    x = w.x(1, 3)
    c = w.weight(x.dtype, x.shape)
    c = w.chain(
        c,
        [
            w.one_of("Neg", "Abs", "Relu", "Tanh", "Floor", "Transpose", "Transpose")
            for _ in range(w.draw.between(1, 3))
        ],
    )
    if c.shape != x.shape:
        c = w.op("Reshape", c, w.ints(*x.shape))
    return w.op(w.one_of("Add", "Mul", "Max"), x, c)


def scaled_matmul(w: Weaver) -> Tensor:
    """Mul by a number before or behind a MatMul."""
    x = w.x(2, 4)
    if w.draw.chance(0.5):
        x = w.tap(w.op(w.one_of("Mul", "Div"), x, w.scalar(2, x.dtype)))
    y = _dense(w, x)
    return w.op(w.one_of("Mul", "Div"), y, w.scalar(2, x.dtype)) if w.draw.chance(0.6) else y


def turned_matmul(w: Weaver) -> Tensor:
    """MatMul of transposed operands; twisted, transposed in other axes too."""
    x = w.x(2, 4)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    y = w.tap(w.op("Transpose", x, perm=w.order(*order)))
    other = w.weight(x.dtype, (w.draw.between(1, 4), y.shape[-1]), Domain(-1, 1))
    return w.op("MatMul", y, w.op("Transpose", other, perm=[1, 0]))


def softmax_by_hand(w: Weaver) -> Tensor:
    """Exp over its own sum."""
    x = w.x(1, 3, domain=Domain(-5, 5))
    e = w.op("Exp", w.op("Sub", x, _mean(w, x, -1, "ReduceMax")) if w.draw.chance(0.5) else x)
    total = w.op("ReduceSum", w.tap(e), w.ints(w.axis(-1, 1)))
    return w.op("Div", e, w.op("Add", total, w.sketch.ints([0.01], x.dtype, ())))


def expanded(w: Weaver) -> Tensor:
    """Expand or Tile before an operator that broadcasts anyway."""
    x = w.x(1, 3)
    one = w.weight(x.dtype, (1, *x.shape[1:]))
    wide = (
        w.op("Expand", one, w.ints(*x.shape))
        if w.draw.chance(0.6)
        else w.op("Tile", one, w.ints(x.shape[0], *(1 for _ in x.shape[1:])))
    )
    return w.op(w.one_of("Add", "Mul", "Max"), x, w.tap(wide))


def masked(w: Weaver) -> Tensor:
    """Where with a filled tensor."""
    x = w.x(1, 3)
    fill = w.op("ConstantOfShape", w.ints(*x.shape))
    if x.dtype != "float32":
        fill = w.op("Cast", fill, to=NUMBER[x.dtype])
    return w.op("Where", w.op("Greater", x, w.scalar(0, x.dtype)), x, fill)


def group_norm(w: Weaver) -> Tensor:
    """GroupNormalization from Reshape and InstanceNormalization."""
    x = w.x(4)
    groups = 2 if x.shape[1] % 2 == 0 else 1
    y = w.op("Reshape", x, w.ints(x.shape[0], groups, -1))
    y = w.op("InstanceNormalization", y, w.weight(x.dtype, (groups,), _SCALE), w.weight(x.dtype, (groups,)))
    y = w.op("Reshape", w.tap(y), w.ints(*x.shape))
    y = w.op("Mul", y, _vector_over_channels(w, y))
    return w.op("Add", y, _vector_over_channels(w, y))


def depth_to_space(w: Weaver) -> Tensor:
    """DepthToSpace from Reshape, Transpose, Reshape."""
    n, c, h, s = w.draw.between(1, 2), w.draw.between(1, 2), w.draw.between(1, 3), 2
    x = w.sketch.match(w.real(), (n, c * s * s, h, h))
    y = w.op("Reshape", x, w.ints(n, c, s, s, h, h) if w.draw.chance(0.5) else w.ints(n, s, s, c, h, h))
    crd = y.shape[1] == c
    y = w.tap(w.op("Transpose", y, perm=w.order(0, 1, 4, 2, 5, 3) if crd else w.order(0, 3, 4, 1, 5, 2)))
    return w.op("Reshape", y, w.ints(n, c, h * s, h * s))


def einsums(w: Weaver) -> Tensor:
    """Einsum where MatMul, Transpose or a reduction would do."""
    x = w.x(3)
    kind = w.one_of("bij,bjk->bik", "bij->bji", "bij->bi", "bij,bkj->bik")
    if "," not in kind:
        return w.op("Einsum", x, equation=kind)
    shape = (x.shape[0], x.shape[2], 3) if kind.startswith("bij,bjk") else (x.shape[0], 3, x.shape[2])
    return w.op("Einsum", x, w.sketch.match(x.dtype, shape), equation=kind)


def twins(w: Weaver) -> Tensor:
    """One expression twice, from one tensor; twisted, in different attributes."""
    x = w.x(2, 3)
    axis = w.draw.below(x.rank)
    a, b = (w.op("Softmax", w.op("Neg", x), axis=place) for place in (axis, w.axis(axis, x.rank)))
    return w.op("Add", a, b)


def scaled_norm(w: Weaver) -> Tensor:
    """BatchNormalization or InstanceNormalization with Mul and Add behind it."""
    x = w.x(3, 4)
    channels = (x.shape[1],)
    y = w.op("InstanceNormalization", x, w.weight(x.dtype, channels, _SCALE), w.weight(x.dtype, channels))
    y = w.tap(w.op("Mul", y, _vector_over_channels(w, y)))
    return w.op("Add", y, _vector_over_channels(w, y))


def dropout_between(w: Weaver) -> Tensor:
    """Dropout or Identity inside what would fuse."""
    y = _dense(w, w.x(2, 3))
    y = w.op(w.one_of("Dropout", "Identity"), y)
    return w.op("Add", w.tap(y), w.weight(y.dtype, y.shape[-1:]))


def gather_slices(w: Weaver) -> Tensor:
    """Gather of a constant range, where Slice would do, and of single places, where Split would."""
    x = w.x(2, 4)
    axis = w.draw.below(x.rank)
    side = x.shape[axis]
    a = w.op(
        "Gather",
        x,
        w.ints(*range(side)) if not w.twisted else w.ints(*(w.draw.below(side) for _ in range(side))),
        axis=axis,
    )
    b = w.op("Gather", x, w.sketch.ints([w.draw.below(side)], "int64", ()), axis=axis)
    return w.op("Sub", a, w.op("Unsqueeze", b, w.ints(axis)))


def top_k_sliced(w: Weaver) -> Tensor:
    """TopK of which only a part goes on."""
    x = w.x(1, 3)
    values, places = w.ops("TopK", x, w.ints(x.shape[-1]))
    first = w.op("Slice", values, w.ints(0), w.ints(1), w.ints(-1))
    return w.op(
        "Add", first, w.op("Cast", w.op("ReduceMax", places) if w.draw.chance(0.5) else places, to=NUMBER[x.dtype])
    )


def global_pool(w: Weaver) -> Tensor:
    """A mean over the spatial axes, as a pooling or a reduction, and what follows it in classifiers."""
    x = w.x(4)
    if w.draw.chance(0.5):
        y = w.op("GlobalAveragePool", x)
    else:
        y = w.op("ReduceMean", x, w.ints(2, 3)) if w.sketch.opset >= 18 else w.op("ReduceMean", x, axes=[2, 3])
    return _dense(w, w.op("Flatten", w.tap(y)))


PATTERNS: dict[str, Pattern] = {
    pattern.__name__: pattern
    for pattern in (
        *(matmul_add, gemm_forms, conv_bn, conv_scaled, conv_add_activation, conv_activation, pad_window, layer_norm),
        *(rms_norm, skip_norm, gelu_erf, gelu_tanh, quick_gelu, silu, attention, qdq, transposes, transpose_reduced),
        *(reshapes, squeezes, casts, slices, concat_split, clips, nothing_done, itself, logic, reductions),
        *(shape_arithmetic, folded, scaled_matmul, turned_matmul, softmax_by_hand, expanded, masked, group_norm),
        *(depth_to_space, einsums, twins, scaled_norm, dropout_between, gather_slices, top_k_sliced, global_pool),
    )
}
