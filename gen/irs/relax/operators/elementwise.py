"""Operators that compute each element alone: one, two or three tensors, with broadcasting; casts and
quantisation.
"""

from collections.abc import Sequence

from opsieve.gen.irs.relax.declaration import (
    ALL,
    FLOATS,
    INTEGERS,
    NUMBERS,
    RATES,
    SIGNED,
    UNSIGNED,
    Declared,
    Draw,
    Recogniser,
    Solution,
    Solver,
    Want,
    attributes,
    number,
    numbers,
    pick,
    real,
    static_sizes,
    tensor,
    whole,
)
from opsieve.gen.irs.relax.types import RelaxTensorType, TupleType

# Types that TVM lowers to the mathematical functions of LLVM and libm.
WIDE = ("float32", "float64")
SUMS = ("float32", "float64", "int64", "int32", "float16", "int8", "uint8", "int16")


def anywhere(*dtypes: str) -> Recogniser:
    """Tensors of any shape, symbols in it included."""
    return Recogniser(dtypes, static=False)


def _same(draw: Draw, kind: RelaxTensorType) -> Solution:
    return Solution((Want(kind),))


def _solve_within(low: float, high: float) -> Solver:
    return lambda draw, kind: Solution((Want(kind, (low, high)),))


def _tests(dtypes: Sequence[str]) -> Solver:
    return lambda draw, kind: Solution((Want(RelaxTensorType(pick(draw.rng, dtypes), kind.shape)),))


def _pair(draw: Draw, kind: RelaxTensorType) -> Solution:
    left, right = draw.broadcast(kind.shape or ())
    return Solution((Want(tensor(kind.dtype, left)), Want(tensor(kind.dtype, right))))


def _solve_division(draw: Draw, kind: RelaxTensorType) -> Solution:
    """Use a positive constant as integer divisor, because a division by zero ends the process."""
    if kind.dtype in FLOATS:
        left, right = draw.broadcast(kind.shape or ())
        return Solution(
            (Want(tensor(kind.dtype, left), (-50, 50)), Want(tensor(kind.dtype, right), (0.5, 8)))
        )
    return Solution((Want(kind), draw.constant(kind.dtype, (), 1, 7)))


def _shift(draw: Draw, kind: RelaxTensorType) -> Solution:
    # A shift by the width of the type or more is undefined; the narrowest types have 8 bits.
    return Solution((Want(kind, (0, 63)), draw.constant(kind.dtype, (), 0, 3)))


def _power(draw: Draw, kind: RelaxTensorType) -> Solution:
    # A negative base has a power only for whole exponents.
    if draw.chance(RATES.whole_exponent):
        return Solution((Want(kind, (-4, 4)), number(kind.dtype, draw.rng.choice((2, 3)))))
    left, right = draw.broadcast(kind.shape or ())
    return Solution((Want(tensor(kind.dtype, left), (0.1, 5)), Want(tensor(kind.dtype, right), (-3, 3))))


def _compare(dtypes: Sequence[str]) -> Solver:
    def solve(draw: Draw, kind: RelaxTensorType) -> Solution:
        left, right = draw.broadcast(kind.shape or ())
        dtype = pick(draw.rng, dtypes)
        return Solution((Want(tensor(dtype, left)), Want(tensor(dtype, right))))

    return solve


def _where(draw: Draw, kind: RelaxTensorType) -> Solution:
    first, second = draw.broadcast(kind.shape or ())
    shape = kind.shape or ()
    return Solution(
        (Want(tensor("bool", shape)), Want(tensor(kind.dtype, first)), Want(tensor(kind.dtype, second)))
    )


def _clip(draw: Draw, kind: RelaxTensorType) -> Solution:
    # An unsigned type cannot hold a negative bound.
    low = draw.rng.randint(-4, 1) if kind.dtype not in UNSIGNED else draw.rng.randint(0, 2)
    high = low + draw.rng.randint(1, 6)
    if kind.dtype in FLOATS:
        return Solution((Want(kind), real(low / 2), real(high / 2)))
    return Solution((Want(kind), whole(low), whole(high)))


def _cast(draw: Draw, kind: RelaxTensorType) -> Solution:
    """Cast from any other element type; floats are kept in range, since a float that an integer cannot hold
    has no defined value.
    """
    source = draw.rng.choice(
        [dtype for dtype in draw.dtypes if dtype in ALL and dtype != kind.dtype] or ["float32"]
    )
    within = None
    if source in FLOATS and kind.dtype in INTEGERS:
        within = (0.0, 100.0) if kind.dtype in UNSIGNED else (-100.0, 100.0)
    attrs = attributes("AstypeAttrs", dtype=kind.dtype)
    return Solution((Want(RelaxTensorType(source, kind.shape), within),), attrs)


def _prelu(draw: Draw, kind: RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    return Solution(
        (Want(kind), Want(tensor(kind.dtype, (static_sizes(kind)[axis],)))),
        attributes("PReluAttrs", axis=axis),
    )


def _softplus(draw: Draw, kind: RelaxTensorType) -> Solution:
    beta = draw.rng.choice((1.0, 0.5, 2.0))
    return Solution((Want(kind, (-30, 30)),), attributes("SoftplusAttrs", beta=beta, threshold=20.0))


def _quantize(draw: Draw, kind: RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    size = static_sizes(kind)[axis]
    scale = draw.constant("float32", (size,), 0.1, 2.0)
    zero = draw.constant(kind.dtype, (size,), 0, 5)
    attrs = attributes("QuantizeAttrs", out_dtype=kind.dtype, axis=axis)
    return Solution((Want(RelaxTensorType("float32", kind.shape), (-50, 50)), scale, zero), attrs)


def _dequantize(draw: Draw, kind: RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    size = static_sizes(kind)[axis]
    source = draw.rng.choice(("int8", "uint8", "int32", "int16"))
    zero = draw.constant("int8" if source != "int32" else "int32", (size,), 0, 5)
    attrs = attributes("QuantizeAttrs", out_dtype=kind.dtype, axis=axis)
    scale = draw.constant(kind.dtype, (size,), 0.1, 2.0)
    return Solution((Want(RelaxTensorType(source, kind.shape)), scale, zero), attrs)


def _bucketize(draw: Draw, kind: RelaxTensorType) -> Solution:
    # The edges have to ascend.
    bounds = sorted(draw.rng.uniform(-3, 3) for _ in range(draw.rng.randint(1, 6)))
    dtype = draw.rng.choice(WIDE)
    edges = numbers(dtype, (len(bounds),), bounds)
    attrs = attributes("BucketizeAttrs", out_int32=kind.dtype == "int32", right=draw.chance(RATES.flag))
    return Solution((Want(RelaxTensorType(dtype, kind.shape)), edges), attrs)


def _dropout(draw: Draw, kind: RelaxTensorType) -> Solution:
    # The result is a pair: the tensor and its mask.
    return Solution(
        (Want(kind),), attributes("DropoutAttrs", rate=0.5), TupleType((kind, kind)), draw.rng.randrange(2)
    )


def _unary(name: str, dtypes: Sequence[str], onnx: str = "", solve: Solver = _same) -> Declared:
    return Declared(f"relax.{name}", anywhere(*dtypes), solve, onnx)


ROUNDED = (*FLOATS, "int32", "int64")

OPERATORS: tuple[Declared, ...] = (
    _unary("abs", (*FLOATS, *SIGNED), "Abs"),
    _unary("acos", WIDE, "Acos"),
    _unary("acosh", WIDE, "Acosh"),
    _unary("asin", WIDE, "Asin"),
    _unary("asinh", WIDE, "Asinh"),
    _unary("atan", WIDE, "Atan"),
    _unary("atanh", WIDE, "Atanh"),
    _unary("ceil", ROUNDED, "Ceil"),
    _unary("cos", FLOATS, "Cos"),
    _unary("cosh", WIDE, "Cosh"),
    _unary("erf", FLOATS, "Erf"),
    _unary("exp", FLOATS, "Exp"),
    _unary("floor", ROUNDED, "Floor"),
    _unary("log", FLOATS, "Log"),
    _unary("negative", (*FLOATS, *SIGNED), "Neg"),
    _unary("round", ROUNDED, "Round"),
    _unary("trunc", ROUNDED),
    # Near 0 the slope has no bound, and a rounding before it would count as a difference.
    _unary("rsqrt", FLOATS, "", _solve_within(0.05, 100)),
    _unary("sigmoid", FLOATS, "Sigmoid"),
    _unary("sign", (*FLOATS, *SIGNED), "Sign"),
    _unary("sin", FLOATS, "Sin"),
    _unary("sinh", WIDE, "Sinh"),
    _unary("sqrt", FLOATS, "Sqrt"),
    _unary("square", (*FLOATS, "int32", "int64"), "", _solve_within(-30, 30)),
    _unary("tan", WIDE, "Tan"),
    _unary("tanh", FLOATS, "Tanh"),
    _unary("bitwise_not", INTEGERS, "BitwiseNot"),
    _unary("logical_not", ("bool",), "Not"),
    _unary("nn.relu", (*FLOATS, *SIGNED), "Relu"),
    _unary("nn.gelu", FLOATS, "Gelu"),
    _unary("nn.gelu_tanh", FLOATS),
    _unary("nn.silu", FLOATS),
    _unary("nn.selu", FLOATS, "Selu", _solve_within(-10, 10)),
    _unary("isfinite", ("bool",), "", _tests(FLOATS)),
    _unary("isinf", ("bool",), "IsInf", _tests(FLOATS)),
    _unary("isnan", ("bool",), "IsNaN", _tests(FLOATS)),
    _unary("add", SUMS, "Add", _pair),
    _unary("subtract", SUMS, "Sub", _pair),
    _unary("multiply", SUMS, "Mul", _pair),
    _unary("divide", FLOATS, "Div", _solve_division),
    _unary("floor_divide", (*FLOATS, *SIGNED, "uint8"), "", _solve_division),
    _unary("floor_mod", (*WIDE, *SIGNED, "uint8"), "Mod", _solve_division),
    _unary("mod", ("int32", "int64", "int8", "uint8"), "", _solve_division),
    _unary("power", WIDE, "Pow", _power),
    # The divisor's range keeps it away from the origin and from the jump at -pi.
    _unary("atan2", WIDE, "", _solve_division),
    _unary("log_add_exp", WIDE, "", _pair),
    _unary("maximum", NUMBERS, "Max", _pair),
    _unary("minimum", NUMBERS, "Min", _pair),
    _unary("bitwise_and", INTEGERS, "BitwiseAnd", _pair),
    _unary("bitwise_or", INTEGERS, "BitwiseOr", _pair),
    _unary("bitwise_xor", INTEGERS, "BitwiseXor", _pair),
    _unary("left_shift", INTEGERS, "", _shift),
    _unary("right_shift", INTEGERS, "", _shift),
    _unary("logical_and", ("bool",), "And", _pair),
    _unary("logical_or", ("bool",), "Or", _pair),
    _unary("logical_xor", ("bool",), "Xor", _pair),
    _unary("equal", ("bool",), "Equal", _compare(ALL)),
    _unary("not_equal", ("bool",), "", _compare(ALL)),
    _unary("greater", ("bool",), "Greater", _compare(NUMBERS)),
    _unary("greater_equal", ("bool",), "GreaterOrEqual", _compare(NUMBERS)),
    _unary("less", ("bool",), "Less", _compare(NUMBERS)),
    _unary("less_equal", ("bool",), "LessOrEqual", _compare(NUMBERS)),
    _unary("where", ALL, "Where", _where),
    Declared(
        "relax.ewise_fma",
        Recogniser(FLOATS),
        lambda draw, kind: Solution((Want(kind), Want(kind), Want(kind))),
    ),
    _unary("clip", (*FLOATS, "int64", "int32", "int8", "uint8"), "Clip", _clip),
    _unary("astype", ALL, "Cast", _cast),
    _unary(
        "nn.leakyrelu",
        FLOATS,
        "LeakyRelu",
        lambda draw, kind: Solution(
            (Want(kind),), attributes("LeakyReluAttrs", alpha=draw.rng.choice((0.01, 0.2, 0.5)))
        ),
    ),
    _unary("nn.softplus", FLOATS, "Softplus", _softplus),
    _unary("nn.dropout", FLOATS, "", _dropout),
    Declared("relax.nn.prelu", Recogniser(FLOATS, (1, 4)), _prelu, "PRelu"),
    Declared("relax.quantize", Recogniser(("int8", "uint8"), (1, 4)), _quantize, "QuantizeLinear"),
    Declared("relax.dequantize", Recogniser(("float32", "float16"), (1, 4)), _dequantize, "DequantizeLinear"),
    Declared("relax.bucketize", Recogniser(("int64", "int32"), (1, 4)), _bucketize),
)
