"""The operators of the small generator: each adds a node or two to a graph, or gives False where nothing there fits it.

Sources of what is legal: the ONNX operator documentation of opset 18. Bounds are those of the functions, by intervals.
"""

import math
from collections.abc import Callable

from opsieve.gen.small_graph import FLOATS, LARGEST, MAX_ELEMENTS, Graph, Shape, Val

Bounds = tuple[float, float]
Interval = Callable[[float, float], Bounds]
_ANY = (-math.inf, math.inf)


def _rising(function: Callable[[float], float]) -> Interval:
    return lambda low, high: (function(low), function(high))


def _fixed(low: float, high: float) -> Interval:
    return lambda _low, _high: (low, high)


def _abs(low: float, high: float) -> Bounds:
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)))


def _positive(value: float) -> float:
    return max(value, 0.0)


# operator -> (where it is well-conditioned, bounds of the result from those of the operand)
_FLOAT_UNARY: dict[str, tuple[Bounds, Interval]] = {
    "Abs": (_ANY, _abs),
    "Ceil": (_ANY, _rising(math.ceil)),
    "Cos": ((-20, 20), _fixed(-1, 1)),
    "Elu": (_ANY, _rising(lambda x: max(x, -1.0))),
    "Erf": (_ANY, _fixed(-1, 1)),
    "Exp": ((-20, 5), _rising(math.exp)),
    "Floor": (_ANY, _rising(math.floor)),
    "HardSigmoid": (_ANY, _fixed(0, 1)),
    "HardSwish": (_ANY, lambda low, high: (-0.4, _positive(high))),
    "Identity": (_ANY, _rising(lambda x: x)),
    "LeakyRelu": (_ANY, _rising(lambda x: x)),
    "Log": ((0.1, 1e4), _rising(math.log)),
    "Mish": (_ANY, lambda low, high: (-0.4, _positive(high))),
    "Neg": (_ANY, lambda low, high: (-high, -low)),
    "Reciprocal": ((0.1, 1e4), lambda low, high: (1 / high, 1 / low)),
    "Relu": (_ANY, _rising(_positive)),
    "Round": (_ANY, _rising(round)),
    "Selu": (_ANY, lambda low, high: (-1.8, 1.06 * _positive(high))),
    "Sigmoid": (_ANY, _fixed(0, 1)),
    "Sign": (_ANY, _fixed(-1, 1)),
    "Sin": ((-20, 20), _fixed(-1, 1)),
    "Softplus": (_ANY, lambda low, high: (0.0, _positive(high) + 0.7)),
    "Softsign": (_ANY, _fixed(-1, 1)),
    "Sqrt": ((0.01, 1e4), _rising(math.sqrt)),
    "Tanh": (_ANY, _fixed(-1, 1)),
}
_INTEGER_UNARY = ("Abs", "Identity", "Neg", "Sign")
_COMPARISONS = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")


def _unary(g: Graph) -> bool:
    operator = g.draw.choice(tuple(_FLOAT_UNARY))
    (low, high), bounds = _FLOAT_UNARY[operator]
    value = g.pick_float(lambda v: v.within(low, high))
    if value is None and g.room > 1:
        value = g.pick_float()
        # The bounds of a Clip must themselves be numbers of the type.
        value = value and g.clipped(value, max(low, -LARGEST[value.dtype]), min(high, LARGEST[value.dtype]))
    if value is None or not g.fits(value.dtype, value.shape, *bounds(value.low, value.high)):
        return False
    g.emit(operator, [value], value.dtype, value.shape, *bounds(value.low, value.high))
    return True


def _integer_unary(g: Graph) -> bool:
    value = g.pick(lambda v: v.dtype == "int64")
    if value is None:
        return False
    operator = g.draw.choice(_INTEGER_UNARY)
    g.emit(operator, [value], "int64", value.shape, *_FLOAT_UNARY[operator][1](value.low, value.high))
    return True


def _clip(g: Graph) -> bool:
    value = g.pick(lambda v: v.dtype != "bool")
    if value is None:
        return False
    low = g.draw.between(-4, 0)
    high = low + g.draw.between(1, 6)
    bounds = [g.numbers([bound], value.dtype, ()) for bound in (low, high)]
    clipped = min(max(value.low, low), high), min(max(value.high, low), high)
    g.emit("Clip", [value, *bounds], value.dtype, value.shape, *clipped)
    return True


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The shape of two values together by numpy's rule; None where they do not go together."""
    rank = max(len(a), len(b))
    sides = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    return tuple(max(p, q) for p, q in sides) if all(p == q or 1 in (p, q) for p, q in sides) else None


def _partner(g: Graph, value: Val, low: float = -math.inf, high: float = math.inf) -> Val:
    """Another value of the same type between the bounds that broadcasts with `value`, or a constant."""
    other = g.pick(
        lambda v: (
            v.dtype == value.dtype
            and v.within(low, high)
            and (shape := broadcast(v.shape, value.shape)) is not None
            and math.prod(shape) <= MAX_ELEMENTS
        )
    )
    if other is not None and g.draw.chance(75):
        return other
    shape = value.shape[g.draw.between(0, value.rank) :]
    shape = tuple(1 if g.draw.chance(25) else side for side in shape)
    ends = {"int64": (-5.0, 5.0), "bool": (0.0, 1.0)}.get(value.dtype, (-2.0, 2.0))
    return g.constant(value.dtype, shape, max(ends[0], low), min(max(ends[1], low + 2), high))


def _corners(a: Val, b: Val, function: Callable[[float, float], float]) -> Bounds:
    ends = [function(p, q) for p in (a.low, a.high) for q in (b.low, b.high)]
    return min(ends), max(ends)


def _arithmetic(g: Graph) -> bool:
    operator = g.draw.choice(("Add", "Sub", "Mul", "Div", "Max", "Min", "Add", "Mul", "Sum", "Mean"))
    a = g.pick(lambda v: v.dtype in FLOATS or (v.dtype == "int64" and operator not in ("Sum", "Mean")))
    if a is None:
        return False
    integer = a.dtype == "int64"
    b = _partner(g, a, 1 if integer else 0.1) if operator == "Div" else _partner(g, a)
    if g.draw.chance(50) and operator != "Div":
        a, b = b, a
    shape = broadcast(a.shape, b.shape)
    low, high = {
        "Add": lambda: (a.low + b.low, a.high + b.high),
        "Sum": lambda: (a.low + b.low, a.high + b.high),
        "Mean": lambda: (min(a.low, b.low), max(a.high, b.high)),
        "Sub": lambda: (a.low - b.high, a.high - b.low),
        "Mul": lambda: _corners(a, b, lambda p, q: p * q),
        "Div": lambda: _corners(a, b, lambda p, q: p / q),
        "Max": lambda: (max(a.low, b.low), max(a.high, b.high)),
        "Min": lambda: (min(a.low, b.low), min(a.high, b.high)),
    }[operator]()
    if operator == "Div" and integer:
        low, high = math.floor(low), math.ceil(high)
    if shape is None or not g.fits(a.dtype, shape, low, high):
        return False
    g.emit(operator, [a, b], a.dtype, shape, low, high)
    return True


def _remainder(g: Graph) -> bool:
    a = g.pick(lambda v: v.dtype == "int64")
    if a is None:
        return False
    b = _partner(g, a, 1, 1000)
    shape = broadcast(a.shape, b.shape)
    assert shape is not None
    g.emit("Mod", [a, b], "int64", shape, 0, b.high)
    return True


def _power(g: Graph) -> bool:
    value = g.pick_float(lambda v: v.size <= 12)
    if value is None:
        return False
    exponent = g.draw.choice((1, 2, 2, 3)) if value.low < 0.1 else g.draw.choice((0.5, 1, 2, -1))
    ends = [value.low**exponent, value.high**exponent, *([0.0] if value.low <= 0 <= value.high else [])]
    if not g.fits(value.dtype, value.shape, min(ends), max(ends)):
        return False
    g.emit("Pow", [value, g.numbers([exponent], value.dtype, ())], value.dtype, value.shape, min(ends), max(ends))
    return True


def _comparison(g: Graph) -> bool:
    a = g.pick(lambda v: v.dtype != "bool")
    if a is None:
        return False
    b = _partner(g, a)
    shape = broadcast(a.shape, b.shape)
    assert shape is not None
    g.emit(g.draw.choice(_COMPARISONS), [a, b], "bool", shape, 0, 1)
    return True


def _logic(g: Graph) -> bool:
    a = g.pick(lambda v: v.dtype == "bool")
    if a is None:
        return False
    if g.draw.chance(35):
        g.emit("Not", [a], "bool", a.shape, 0, 1)
        return True
    b = _partner(g, a)
    shape = broadcast(a.shape, b.shape)
    assert shape is not None
    g.emit(g.draw.choice(("And", "Or", "Xor")), [a, b], "bool", shape, 0, 1)
    return True


def _where(g: Graph) -> bool:
    a = g.pick(lambda v: v.dtype != "bool")
    if a is None:
        return False
    b = _partner(g, a)
    shape = broadcast(a.shape, b.shape)
    assert shape is not None
    condition = g.pick(lambda v: v.dtype == "bool" and broadcast(v.shape, shape) == shape)
    if condition is None:
        condition = g.constant("bool", shape, 0, 1)
    g.emit("Where", [condition, a, b], a.dtype, shape, min(a.low, b.low), max(a.high, b.high))
    return True


def _cast(g: Graph) -> bool:
    to = g.draw.choice(("float32", "float16", "int64", "bool", g.float_dtype, g.float_dtype))
    value = g.pick(lambda v: v.dtype != to and v.size <= LARGEST[to]) if to != "bool" else g.pick(_not_bool)
    if value is None:
        return False
    number = {"float32": 1, "float16": 10, "int64": 7, "bool": 9}[to]
    low, high = (0.0, 1.0) if to == "bool" else (value.low, value.high)
    if to == "int64":
        low, high = math.floor(low), math.ceil(high)
    g.emit("Cast", [value], to, value.shape, low, high, to=number)
    return True


def _not_bool(value: Val) -> bool:
    return value.dtype != "bool"


def _softmax(g: Graph) -> bool:
    value = g.pick_float(lambda v: v.rank > 0)
    if value is None:
        return False
    axis = g.draw.between(-value.rank, value.rank - 1)
    if g.draw.chance(70):
        g.emit("Softmax", [value], value.dtype, value.shape, 0, 1, axis=axis)
        return True
    low = value.low - value.high - math.log(value.shape[axis])
    if not g.fits(value.dtype, value.shape, low, 0):
        return False
    g.emit("LogSoftmax", [value], value.dtype, value.shape, low, 0, axis=axis)
    return True


def _reduction(g: Graph) -> bool:
    operator = g.draw.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"))
    floats_only = operator in ("ReduceMean", "ReduceL1", "ReduceSumSquare")
    value = g.pick(lambda v: v.rank > 0 and (v.dtype in FLOATS or (v.dtype == "int64" and not floats_only)))
    if value is None:
        return False
    axes = g.draw.some(range(value.rank), g.draw.between(1, value.rank))
    keep = g.draw.below(2)
    terms = math.prod(value.shape[axis] for axis in axes)
    low, high = value.low, value.high
    if operator == "ReduceSum":
        low, high = terms * low, terms * high
    elif operator == "ReduceL1":
        low, high = 0.0, terms * value.size
    elif operator == "ReduceSumSquare":
        low, high = 0.0, terms * value.size**2
    shape = tuple(1 if axis in axes else side for axis, side in enumerate(value.shape) if keep or axis not in axes)
    if not g.fits(value.dtype, shape, low, high):
        return False
    g.emit(operator, [value, g.numbers(axes)], value.dtype, shape, low, high, keepdims=keep)
    return True


def _arg(g: Graph) -> bool:
    value = g.pick_float(lambda v: v.rank > 0)
    if value is None:
        return False
    axis, keep = g.draw.below(value.rank), g.draw.below(2)
    shape = tuple(1 if a == axis else side for a, side in enumerate(value.shape) if keep or a != axis)
    operator = g.draw.choice(("ArgMax", "ArgMin"))
    g.emit(operator, [value], "int64", shape, 0, value.shape[axis] - 1, axis=axis, keepdims=keep)
    return True


def _top(g: Graph) -> bool:
    value = g.pick(lambda v: v.rank > 0 and (v.dtype in FLOATS or v.dtype == "int64"))
    if value is None:
        return False
    axis = g.draw.below(value.rank)
    count = g.draw.between(1, value.shape[axis])
    shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    outputs = [(value.dtype, shape, value.low, value.high), ("int64", shape, 0.0, float(value.shape[axis] - 1))]
    g.emit_all("TopK", [value, g.numbers([count])], outputs, axis=axis, largest=g.draw.below(2))
    return True


def _running_sum(g: Graph) -> bool:
    value = g.pick(lambda v: v.rank > 0 and v.dtype in ("float32", "int64"))
    if value is None:
        return False
    axis = g.draw.below(value.rank)
    size = value.shape[axis] * value.size
    if not g.fits(value.dtype, value.shape, -size, size):
        return False
    ways = {"exclusive": g.draw.below(2), "reverse": g.draw.below(2)}
    g.emit("CumSum", [value, g.numbers([axis], shape=())], value.dtype, value.shape, -size, size, **ways)
    return True


def _matmul(g: Graph) -> bool:
    a = g.pick_float(lambda v: v.rank >= 2)
    if a is None:
        return False
    inner = a.shape[-1]
    b = g.pick(lambda v: v.dtype == a.dtype and v.rank >= 2 and v.shape[-2] == inner)
    if b is None or g.draw.chance(40):
        b = g.constant(a.dtype, (inner, g.draw.between(1, 5)), -1, 1)
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        return False
    shape, size = (*batch, a.shape[-2], b.shape[-1]), inner * a.size * b.size
    if not g.fits(a.dtype, shape, -size, size):
        return False
    g.emit("MatMul", [a, b], a.dtype, shape, -size, size)
    return True


def _gemm(g: Graph) -> bool:
    a = g.pick_float(lambda v: v.rank == 2)
    if a is None:
        return False
    turned_a, turned_b = g.draw.below(2), g.draw.below(2)
    rows, inner = (a.shape[1], a.shape[0]) if turned_a else a.shape
    columns = g.draw.between(1, 5)
    b = g.constant(a.dtype, (columns, inner) if turned_b else (inner, columns), -1, 1)
    c = g.constant(a.dtype, g.draw.choice(((), (columns,), (rows, columns), (rows, 1))), -1, 1)
    size = inner * a.size + 1
    if not g.fits(a.dtype, (rows, columns), -size, size):
        return False
    g.emit("Gemm", [a, b, c], a.dtype, (rows, columns), -size, size, transA=turned_a, transB=turned_b)
    return True


# (function, weight): how often each is tried
OPERATORS: tuple[tuple[Callable[[Graph], bool], int], ...] = (
    (_unary, 24),
    (_integer_unary, 2),
    (_clip, 2),
    (_arithmetic, 16),
    (_remainder, 1),
    (_power, 2),
    (_comparison, 3),
    (_logic, 2),
    (_where, 3),
    (_cast, 3),
    (_softmax, 2),
    (_reduction, 5),
    (_arg, 1),
    (_top, 1),
    (_running_sum, 1),
    (_matmul, 5),
    (_gemm, 2),
)
