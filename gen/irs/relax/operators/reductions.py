"""Operators that fold axes: sums and their like, positions of extremes, running sums, sorting."""

from collections.abc import Sequence

from opsieve.gen.irs.relax import types as T
from opsieve.gen.irs.relax.declaration import (
    FLOATS,
    LIMIT,
    RATES,
    Declared,
    Draw,
    Recogniser,
    Solution,
    Solver,
    Want,
    attributes,
    static_sizes,
    tensor,
)
from opsieve.gen.irs.tvm.nodes import Dtype

_WIDE = ("float32", "float64")
_SUMMED = ("float32", "float64", "int64", "int32", "float16")
_SORTED = ("float32", "float64", "int64", "int32")


def unfold_shape(draw: Draw, kind: T.RelaxTensorType, most: int) -> tuple[list[T.Size], list[int], bool]:
    """Draw a shape that reduces to this one over at most `most` axes; returns it with the axes and whether
    they are kept as 1.
    """
    shape: list[T.Size] = list(kind.shape or ())
    # A dimension of 1 may be a folded axis that `keepdims` kept.
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    room = max(1, LIMIT // max(1, draw.count(shape)))
    if ones and draw.chance(RATES.kept_ones):
        axes = sorted(draw.rng.sample(ones, draw.rng.randint(1, min(most, len(ones)))))
        for axis in axes:
            shape[axis] = draw.size(room)
            room = max(1, room // draw.value(shape[axis]))
        return shape, axes, True
    axes = []
    for _ in range(draw.rng.randint(1, most) if len(shape) < 4 else 1):
        axis = draw.rng.randint(0, len(shape))
        size = draw.size(room)
        room = max(1, room // size)
        shape.insert(axis, size)
        axes = sorted([axis, *(other + (other >= axis) for other in axes)])
    return shape, axes, False


def _fold(within: tuple[float, float] | None = None) -> Solver:
    def solve(draw: Draw, kind: T.RelaxTensorType) -> Solution:
        shape, axes, kept = unfold_shape(draw, kind, 2)
        named: tuple[int, ...] | None = tuple(
            axis - len(shape) if draw.chance(RATES.negative_of_many) else axis for axis in axes
        )
        # No axes means all of them, so it is the same reduction only if all are folded.
        if len(axes) == len(shape) and draw.chance(RATES.left_out):
            named = None
        attrs = attributes("StatisticalAttrs", axis=named, keepdims=kept)
        return Solution((Want(tensor(kind.dtype, shape), within),), attrs)

    return solve


def _extreme(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape, axes, kept = unfold_shape(draw, kind, 1)
    attrs = attributes("ArgmaxArgminAttrs", axis=axes[0], keepdims=kept)
    return Solution((Want(tensor(draw.rng.choice(_SORTED), shape)),), attrs)


def _running(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    attrs = attributes(
        "ScanopAttrs", axis=axis, dtype=Dtype(kind.dtype), exclusive=draw.chance(RATES.exclusive)
    )
    return Solution((Want(kind, (-2, 2)),), attrs)


def _median(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape, axes, kept = unfold_shape(draw, kind, 1)
    attrs = attributes("StatisticalAttrs", axis=(axes[0],), keepdims=kept)
    # Over one axis TVM's median yields the values and where they stood.
    whole = T.TupleType((kind, T.RelaxTensorType("int64", kind.shape)))
    return Solution((Want(tensor(kind.dtype, shape)),), attrs, whole, 0)


def _softmax(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    return Solution((Want(kind, (-20, 20)),), attributes("SoftmaxAttrs", axis=draw.axis(kind.rank)))


def _argsort(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    attrs = attributes(
        "ArgsortAttrs", axis=draw.axis(kind.rank), descending=draw.chance(RATES.flag), dtype=Dtype(kind.dtype)
    )
    return Solution((Want(T.RelaxTensorType(draw.rng.choice(_SORTED), kind.shape)),), attrs)


def _topk(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    shape = list(static_sizes(kind))
    k = shape[axis]
    shape[axis] += draw.rng.randint(0, 4)
    other = draw.rng.choice(("int32", "int64"))
    attrs = attributes(
        "TopKAttrs", k=k, axis=axis, ret_type="both", largest=draw.chance(RATES.flag), dtype=Dtype(other)
    )
    whole = T.TupleType((kind, T.RelaxTensorType(other, kind.shape)))
    return Solution((Want(tensor(kind.dtype, shape)),), attrs, whole, 0)


def _of(dtypes: Sequence[str], low: int = 0) -> Recogniser:
    return Recogniser(tuple(dtypes), (low, 4))


_SYMBOLIC = Recogniser(_SUMMED, (0, 4), static=False)
_SYMBOLIC_FLOATS = Recogniser(FLOATS, (0, 4), static=False)
# TVM's argmax and argmin yield int64.
_SYMBOLIC_INDEX = Recogniser(("int64",), (0, 4), static=False)

OPERATORS: tuple[Declared, ...] = (
    Declared("relax.sum", _SYMBOLIC, _fold(), "ReduceSum"),
    Declared("relax.max", _SYMBOLIC, _fold(), "ReduceMax"),
    Declared("relax.min", _SYMBOLIC, _fold(), "ReduceMin"),
    # Small factors keep the product in range.
    Declared("relax.prod", _SYMBOLIC, _fold((-2, 2)), "ReduceProd"),
    Declared("relax.mean", _SYMBOLIC_FLOATS, _fold(), "ReduceMean"),
    Declared("relax.std", _SYMBOLIC_FLOATS, _fold((-20, 20))),
    Declared("relax.variance", _SYMBOLIC_FLOATS, _fold((-20, 20))),
    Declared("relax.median", _of(_WIDE), _median),
    Declared("relax.argmax", _SYMBOLIC_INDEX, _extreme, "ArgMax"),
    Declared("relax.argmin", _SYMBOLIC_INDEX, _extreme, "ArgMin"),
    Declared("relax.cumsum", _of(_SORTED, 1), _running, "CumSum"),
    Declared("relax.cumprod", _of(_SORTED, 1), _running),
    Declared("relax.nn.softmax", _of(FLOATS, 1), _softmax, "Softmax"),
    Declared("relax.nn.log_softmax", _of(FLOATS, 1), _softmax, "LogSoftmax"),
    Declared(
        "relax.sort",
        _of(_SORTED, 1),
        lambda draw, kind: Solution(
            (Want(kind),),
            attributes("SortAttrs", axis=draw.axis(kind.rank), descending=draw.chance(RATES.flag)),
        ),
    ),
    Declared("relax.argsort", _of(("int32", "int64"), 1), _argsort),
    Declared("relax.topk", _of(_SORTED, 1), _topk, "TopK"),
)
