"""Structures that optimisers simplify away: elements moved there and back, casts, slices, neutral elements,
constants.
"""

import math
from typing import Final

from opsieve.gen.declarations.tensor import NUMBER, Domain, Tensor
from opsieve.gen.generation.pattern_builder import Misfit, PatternBuilder
from opsieve.gen.strategies.patterns.fused import mean_over


def transposes(w: PatternBuilder) -> Tensor:
    """Transposes that cancel, merge, or travel through element-wise operators."""
    x = w.x(2, 4)
    order = w.rng.shuffle_items(range(x.rank))
    y = w.tap(w.op("Transpose", x, perm=order))
    # Element-wise operators between the two: a transposition has to travel through them.
    y = w.chain(y, [w.one_of("Relu", "Sigmoid", "Neg", "Abs", "Identity") for _ in range(w.rng.below(3))])
    if w.rng.chance(w.rates.even):
        y = w.op(w.one_of("Add", "Mul"), y, w.builder.partner(y))
    back = [order.index(axis) for axis in range(x.rank)]
    # The partner may have broadcast to more dimensions than the permutation covers.
    if y.rank != x.rank:
        raise Misfit
    return w.op(
        "Transpose",
        y,
        perm=w.order(*back) if w.rng.chance(w.rates.mostly) else w.rng.shuffle_items(range(x.rank)),
    )


def transpose_reduced(w: PatternBuilder) -> Tensor:
    """Transpose before a reduction, Softmax, Concat, Split or Slice: the axis moves."""
    x = w.x(2, 4)
    y = w.op("Transpose", x, perm=w.rng.shuffle_items(range(x.rank)))
    axis = w.rng.between(-y.rank, y.rank - 1)
    kind = w.one_of("ReduceSum", "Softmax", "ArgMax", "Concat", "Squeeze", "Gather")
    if kind == "ReduceSum":
        return w.op("ReduceSum", y, w.ints(axis), keepdims=w.rng.below(2))
    if kind == "Concat":
        return w.op("Concat", y, w.op("Neg", y), axis=axis)
    if kind == "Squeeze":
        return w.op("Squeeze", w.op("Unsqueeze", y, w.ints(axis)), w.ints(axis))
    if kind == "Gather":
        return w.op("Gather", y, w.ints(0), axis=axis)
    return w.op(kind, y, axis=axis)


def reshapes(w: PatternBuilder) -> Tensor:
    """Reshapes, Flattens and Transposes in a row."""
    x = w.x(2, 4)
    y = (
        w.tap(w.op("Reshape", x, w.ints(-1)))
        if w.rng.chance(w.rates.even)
        else w.op("Flatten", x, axis=w.rng.between(0, x.rank))
    )
    if y.rank == 2 and w.rng.chance(w.rates.unlikely):
        y = w.op("Transpose", y, perm=[1, 0])
    return w.op("Reshape", y, w.ints(*x.shape[::-1] if w.rng.chance(w.rates.even) else x.shape))


def squeezes(w: PatternBuilder) -> Tensor:
    """Unsqueeze and Squeeze, on the same axes or not."""
    x = w.x(1, 4)
    axes = [w.rng.between(0, x.rank)]
    y = w.tap(w.op("Unsqueeze", x, w.ints(*axes)))
    # Squeeze removes only axes of one element.
    ones = [axis for axis, side in enumerate(y.shape) if side == 1]
    return w.op("Squeeze", y, w.ints(w.rng.choice(ones) if w.is_broken_here(w.rates.mostly) else axes[0]))


def casts(w: PatternBuilder) -> Tensor:
    """Casts in a row: widening, narrowing, there and back."""
    x = w.x(0, 4)
    for dtype in (
        w.one_of("float16", "float64", "int32", "bool", "float32"),
        w.one_of("float32", "int64", x.dtype),
    ):
        # A Cast to its own type is a case of `nothing_done`.
        if dtype != x.dtype:
            x = w.tap(w.op("Cast", x, to=NUMBER[dtype]))
    return x


def slices(w: PatternBuilder) -> Tensor:
    """Slices in a row, on one axis or two, forwards and backwards."""
    x = w.x(2, 4)
    for _ in range(2):
        axis = w.rng.below(x.rank)
        side = x.shape[axis]
        start = w.rng.below(side)
        end = w.rng.between(start + 1, side)
        back = w.rng.chance(w.rates.rare)
        # To go backwards past the first element, the end is -1 - side: -1 names the last element.
        ends = (end - 1, start - 1 - (side if start == 0 else 0)) if back else (start, end)
        x = w.tap(w.op("Slice", x, w.ints(ends[0]), w.ints(ends[1]), w.ints(axis), w.ints(-1 if back else 1)))
    return x


def concat_split(w: PatternBuilder) -> Tensor:
    """Split, or slice, the result of a Concat into its parts again."""
    x = w.x(1, 4)
    axis = w.rng.below(x.rank)
    other = w.builder.match(x.dtype, x.shape)
    y = w.tap(w.op("Concat", x, other, axis=axis))
    side = x.shape[axis]
    if w.rng.chance(w.rates.even):
        sizes = (side - 1, side + 1) if side > 1 and w.is_broken_here(w.rates.mostly) else (side, side)
        parts = w.ops("Split", y, w.ints(*sizes), axis=axis)
    else:
        parts = [
            w.op("Slice", y, w.ints(a), w.ints(b), w.ints(axis)) for a, b in ((0, side), (side, 2 * side))
        ]
    return w.op("Concat", *w.rng.shuffle_items(parts), axis=axis)


def clips(w: PatternBuilder) -> Tensor:
    """Relu and Clip, Clip and Clip, Min and Max."""
    x = w.x(0, 4)
    for _ in range(2):
        kind = w.one_of("Relu", "Clip", "Min", "Max", "Clip")
        if kind == "Clip":
            low = w.rng.between(-2, 1)
            bounds = [w.scalar(low, x.dtype), w.scalar(low + w.rng.between(-1, 3), x.dtype)]
            # The page: Clip's bounds are scalars, while `scalar` may draw a vector of one.
            bounds = [w.builder.constant(bound.values or (0,), x.dtype, ()) for bound in bounds]
            # Bounds in the wrong order give one number everywhere, which hides what comes before.
            x = w.op("Clip", x, *bounds) if bounds[0].high <= bounds[1].low else w.op("Clip", x, bounds[0])
        else:
            x = w.op(kind, x) if kind == "Relu" else w.op(kind, x, w.scalar(1, x.dtype))
        x = w.tap(x)
    return x


def nothing_done(w: PatternBuilder) -> Tensor:
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
    # These need an axis, which a scalar lacks.
    if kind == "Concat" and x.rank:
        return w.op("Concat", x, axis=0)
    if kind == "Pad" and x.rank:
        return w.op("Pad", x, w.ints(*[0] * (2 * x.rank)))
    if kind == "Slice" and x.rank:
        # Slice's page recommends INT_MAX for a slice to the end of a dimension of unknown size.
        return w.op("Slice", x, w.ints(0), w.ints(2**31 - 1), w.ints(0))
    return w.op("Identity" if kind in ("Concat", "Pad", "Slice") else kind, x)


def itself(w: PatternBuilder) -> Tensor:
    """Return an operator of a tensor and itself."""
    # Away from 0, because one of the operators divides.
    x = w.x(0, 4, domain=Domain(0.2, 100))
    return w.op(w.one_of("Sub", "Div", "Mul", "Add", "Max", "Min"), x, x)


def logic(w: PatternBuilder) -> Tensor:
    """Double Not, Not of a comparison, Where on a negated condition."""
    x = w.x(1, 3)
    truth = w.op(w.one_of("Less", "Greater", "Equal", "GreaterOrEqual"), x, w.builder.partner(x))
    no = w.tap(w.op("Not", truth))
    if w.rng.chance(w.rates.even):
        return w.op("Where", no, x, w.op("Neg", x)) if no.shape == x.shape else w.op("Not", no)
    return w.op("Not", no)


def reductions(w: PatternBuilder) -> Tensor:
    """Reductions in a row, of one element, or with the divisor of a mean."""
    x = w.x(2, 4)
    first, second = w.rng.below(x.rank), w.rng.below(x.rank)
    y = w.tap(mean_over(w, x, first, w.one_of("ReduceMean", "ReduceMax", "ReduceMin")))
    y = mean_over(w, y, second, w.one_of("ReduceMean", "ReduceMax", "ReduceMin"))
    total = w.op("ReduceSum", x, w.ints(first), keepdims=1)
    return w.op("Add", y, w.op("Div", total, w.scalar(x.shape[first], x.dtype)))


def shape_arithmetic(w: PatternBuilder) -> Tensor:
    """Return a Reshape whose target is computed from Shape, Gather, Unsqueeze, Concat, as exporters
    write it.
    """
    x = w.x(2, 4)
    shape = w.op("Shape", x)
    first = w.op("Gather", shape, w.builder.constant([0], "int64", ()), axis=0)
    target = w.op("Concat", w.op("Unsqueeze", first, w.ints(0)), w.ints(-1), axis=0)
    rest = math.prod(x.shape[1:])
    # Emitted without the declaration, whose rule reads the values of the target.
    made = w.builder.emit("Reshape", "", [x, target], {}, [(x.dtype, (x.shape[0], rest))], (x.low, x.high))
    return made[0]


def folded(w: PatternBuilder) -> Tensor:
    """Return a subgraph of constants only."""
    x = w.x(1, 3)
    c = w.weight(x.dtype, x.shape)
    c = w.chain(
        c,
        [
            w.one_of("Neg", "Abs", "Relu", "Tanh", "Floor", "Transpose", "Transpose")
            for _ in range(w.rng.between(1, 3))
        ],
    )
    if c.shape != x.shape:
        c = w.op("Reshape", c, w.ints(*x.shape))
    return w.op(w.one_of("Add", "Mul", "Max"), x, c)


def expanded(w: PatternBuilder) -> Tensor:
    """Expand or Tile before an operator that broadcasts anyway."""
    x = w.x(1, 3)
    one = w.weight(x.dtype, (1, *x.shape[1:]))
    wide = (
        w.op("Expand", one, w.ints(*x.shape))
        if w.rng.chance(w.rates.likely)
        else w.op("Tile", one, w.ints(x.shape[0], *(1 for _ in x.shape[1:])))
    )
    return w.op(w.one_of("Add", "Mul", "Max"), x, w.tap(wide))


def masked(w: PatternBuilder) -> Tensor:
    """Where with a filled tensor."""
    x = w.x(1, 3)
    fill = w.op("ConstantOfShape", w.ints(*x.shape))
    # ConstantOfShape fills with 0 of float32 by default.
    if x.dtype != "float32":
        fill = w.op("Cast", fill, to=NUMBER[x.dtype])
    return w.op("Where", w.op("Greater", x, w.scalar(0, x.dtype)), x, fill)


def depth_to_space(w: PatternBuilder) -> Tensor:
    """DepthToSpace from Reshape, Transpose, Reshape."""
    n, c, h, s = w.rng.between(1, 2), w.rng.between(1, 2), w.rng.between(1, 3), 2
    x = w.builder.match(w.real(), (n, c * s * s, h, h))
    y = w.op(
        "Reshape", x, w.ints(n, c, s, s, h, h) if w.rng.chance(w.rates.even) else w.ints(n, s, s, c, h, h)
    )
    # DepthToSpace's page: DCR reshapes to [b, s, s, c, h, w] and transposes by [0, 3, 4, 1, 5, 2], CRD
    # reshapes to [b, c, s, s, h, w] and transposes by [0, 1, 4, 2, 5, 3].
    crd = y.shape[1] == c
    y = w.tap(w.op("Transpose", y, perm=w.order(0, 1, 4, 2, 5, 3) if crd else w.order(0, 3, 4, 1, 5, 2)))
    return w.op("Reshape", y, w.ints(n, c, h * s, h * s))


def einsums(w: PatternBuilder) -> Tensor:
    """Einsum where MatMul, Transpose or a reduction would do."""
    x = w.x(3)
    kind = w.one_of("bij,bjk->bik", "bij->bji", "bij->bi", "bij,bkj->bik")
    if "," not in kind:
        return w.op("Einsum", x, equation=kind)
    shape = (x.shape[0], x.shape[2], 3) if kind.startswith("bij,bjk") else (x.shape[0], 3, x.shape[2])
    return w.op("Einsum", x, w.builder.match(x.dtype, shape), equation=kind)


def twins(w: PatternBuilder) -> Tensor:
    """One expression twice, from one tensor; twisted, in different attributes."""
    x = w.x(2, 3)
    axis = w.rng.below(x.rank)
    a, b = (w.op("Softmax", w.op("Neg", x), axis=place) for place in (axis, w.axis(axis, x.rank)))
    return w.op("Add", a, b)


def gather_slices(w: PatternBuilder) -> Tensor:
    """Gather of a constant range, where Slice would do, and of single places, where Split would."""
    x = w.x(2, 4)
    axis = w.rng.below(x.rank)
    side = x.shape[axis]
    a = w.op(
        "Gather",
        x,
        w.ints(*(w.rng.below(side) for _ in range(side)))
        if w.is_broken_here(w.rates.mostly)
        else w.ints(*range(side)),
        axis=axis,
    )
    b = w.op("Gather", x, w.builder.constant([w.rng.below(side)], "int64", ()), axis=axis)
    return w.op("Sub", a, w.op("Unsqueeze", b, w.ints(axis)))


def top_k_sliced(w: PatternBuilder) -> Tensor:
    """Use only a part of a TopK's results."""
    x = w.x(1, 3)
    values, places = w.ops("TopK", x, w.ints(x.shape[-1]))
    first = w.op("Slice", values, w.ints(0), w.ints(1), w.ints(-1))
    return w.op(
        "Add",
        first,
        w.op("Cast", w.op("ReduceMax", places) if w.rng.chance(w.rates.even) else places, to=NUMBER[x.dtype]),
    )


MOVED: Final = (
    transposes,
    transpose_reduced,
    reshapes,
    squeezes,
    casts,
    slices,
    concat_split,
    clips,
    nothing_done,
    itself,
    logic,
    reductions,
    shape_arithmetic,
    folded,
    expanded,
    masked,
    depth_to_space,
    einsums,
    twins,
    gather_slices,
    top_k_sliced,
)
