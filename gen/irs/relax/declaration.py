"""The declaration of one Relax operator for the generator: the types it can yield, and operands that yield a
given type; and the random choices that solvers share: types, sizes, shapes, constants, rates.

After the RFC on type-directed fuzzing (TVM, "Handling Operators"), an operator has

    accepts(type)        recogniser: whether the type can be its result
    solve(draw, type)    solver: arguments and attributes that yield exactly this type; always there when
    `accepts` says so sample(draw)         sampler: a result type and its solution

A solution names the type wanted of each argument, or the leaf itself where its value matters (an axis, an
index). What values an argument may have comes from the declaration of the ONNX operator that corresponds
(`onnx`): its `safe` domains. Sizes stay small: a tensor has at most `LIMIT` elements, so that no program
costs much to run.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

import ml_dtypes
import numpy as np

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.tvm.nodes import Array, Value, schema

# The most elements of a tensor.
LIMIT = 1024
# Small sizes keep a test cheap. 2 and 3 occur twice, so that axes of equal size are frequent.
SIZES = (1, 2, 2, 3, 3, 4, 5, 6, 7, 8)
DTYPES = ("float32",) * 8 + (
    "float64",
    "float16",
    "int64",
    "int32",
    "int64",
    "int8",
    "uint8",
    "bool",
    "int16",
    "uint16",
)


@dataclass(slots=True)
class Draw:
    """A source of choices. `symbols` are those that a shape may use here, with the values they have when the
    program runs.
    """

    rng: random.Random
    symbols: Mapping[str, int] = field(default_factory=dict)
    dtypes: Sequence[str] = DTYPES
    # The share of sizes that are symbols, if there are any.
    symbolic: float = 0.15

    def size(self, limit: int = 8) -> int:
        """Return a small size."""
        return min(self.rng.choice(SIZES), max(1, limit))

    def value(self, size: T.Size) -> int:
        """Return the value of a size at run time."""
        return T.size_value(size, self.symbols)

    def count(self, shape: Sequence[T.Size]) -> int:
        """Return the number of elements of a shape when the program runs."""
        return math.prod(map(self.value, shape))

    def tensor_type(self, dtypes: Sequence[str] = (), ranks: tuple[int, int] = (0, 4)) -> T.RelaxTensorType:
        """Draw a tensor type of these element types and ranks."""
        allowed = [dtype for dtype in self.dtypes if not dtypes or dtype in dtypes]
        dtype = self.rng.choice(allowed or list(dtypes) or list(self.dtypes))
        low, high = ranks
        rank = min(high, max(low, self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5))))
        return T.RelaxTensorType(dtype, self.shape(rank))

    def shape(self, rank: int) -> T.Shape:
        """Return a shape of a rank."""
        shape: list[T.Size] = []
        for _ in range(rank):
            room = max(1, LIMIT // 2 // self.count(shape)) if shape else 8
            if self.symbols and self.rng.random() < self.symbolic:
                shape.append(T.Sym(self.rng.choice(list(self.symbols))))
            else:
                shape.append(self.size(room))
        return tuple(shape)

    def broadcast(self, shape: T.Shape) -> tuple[T.Shape, T.Shape]:
        """Draw two shapes that broadcast to one."""
        kept = self.rng.randrange(2)
        pair: list[list[T.Size]] = [list(shape), list(shape)]
        for axis in range(len(shape)):
            if self.rng.random() < RATES.side_of_one:
                pair[self.rng.randrange(2)][axis] = 1
        if self.rng.random() < RATES.fewer_sides and shape:
            cut = self.rng.randint(1, len(shape))
            # Leading sides may be left out only if the other shape has all of them.
            if all(pair[kept][axis] == shape[axis] for axis in range(cut)):
                del pair[1 - kept][:cut]
        return tuple(pair[0]), tuple(pair[1])

    def factors(self, count: int, rank: int | None = None) -> tuple[int, ...]:
        """Return a static shape with so many elements."""
        rank = self.rng.randint(1, 4) if rank is None else rank
        shape = [1] * rank
        if not rank:
            return ()
        rest = count
        divisor = 2
        while rest > 1:
            while rest % divisor:
                divisor += 1
            shape[self.rng.randrange(rank)] *= divisor
            rest //= divisor
        return tuple(shape)

    def chance(self, share: float) -> bool:
        """Return True in this share of calls."""
        return self.rng.random() < share

    def axis(self, rank: int) -> int:
        """Return an axis of a tensor, sometimes counted from the end."""
        axis = self.rng.randrange(rank)
        return axis - rank if self.chance(RATES.negative_axis) else axis

    def constant(self, dtype: str, shape: Sequence[int], low: float = -3, high: float = 3) -> R.Constant:
        """Draw a constant with elements between two numbers, both included; whole ones for integer types."""
        count = math.prod(shape)
        if dtype.startswith(("float", "bfloat")):
            return numbers(dtype, shape, [round(self.rng.uniform(low, high), 3) for _ in range(count)])
        low = max(low, 0) if dtype.startswith(("uint", "bool")) else low
        high = max(low, min(high, 1) if dtype == "bool" else high)
        ends = math.ceil(low), math.floor(high)
        return numbers(dtype, shape, [self.rng.randint(*ends) for _ in range(count)])

    def indices(self, shape: Sequence[int], size: int, dtype: str = "int64") -> R.Constant:
        """Return a constant of indices into an axis of a size."""
        return self.constant(dtype, shape, 0, size - 1)


def numbers(dtype: str, shape: Sequence[int], values: Sequence[float]) -> R.Constant:
    """Return a constant of these elements, row by row, rounded to the element type."""
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    return R.Constant(Array(dtype, tuple(shape), np.array(values).astype(kind).tobytes()))


def number(dtype: str, value: float) -> R.Constant:
    """Return a constant of rank 0."""
    return numbers(dtype, (), [value])


def whole(value: int) -> R.Scalar:
    """Return a scalar of 64-bit integer."""
    return R.Scalar(value, "int64")


def real(value: float) -> R.Scalar:
    """Return a scalar of 64-bit floating point."""
    return R.Scalar(float(value), "float64")


@dataclass(frozen=True, slots=True)
class GraphRates:
    """Rates, each named by its choice."""

    # Types and shapes.
    # A parameter of main has a type that occurs in the result.
    of_result: float = 0.5
    # A side is 1 in one of two shapes that broadcast.
    side_of_one: float = 0.12
    # One of the two shapes has fewer sides.
    fewer_sides: float = 0.2

    # Constructs.
    # A variable is chosen instead of a literal, if there is one.
    in_scope: float = 0.9
    cached: float = 0.2
    # An inner variable of a dataflow block is exported too.
    exported: float = 0.3
    # For a tensor whose shape was dropped.
    named_sizes: float = 0.6
    # Each of these sizes gets a name.
    named_size: float = 0.6
    more_computed: float = 0.6
    copied: float = 0.5
    known_function: float = 0.5
    # A parameter of a function that is not a tensor.
    other_field: float = 0.3
    of_own_type: float = 0.6
    symbolic_side: float = 0.6
    carried: float = 0.5
    applied_twice: float = 0.5

    # Attributes and inputs of operators.
    # A flag whose values are equally interesting.
    flag: float = 0.5
    negative_axis: float = 0.3
    # Each of several axes is counted from the end.
    negative_of_many: float = 0.2
    # Omitted where the default is equal.
    left_out: float = 0.5
    uneven_pieces: float = 0.5
    # A size is 1, to be broadcast.
    one: float = 0.4
    fewer_dimensions: float = 0.3
    # The factors of an int32 product are int8.
    narrow_factors: float = 0.5
    second_vector: float = 0.5
    # The first operand of an einsum has a letter of the result.
    first_has: float = 0.7
    # The second operand has a letter that the first has too.
    second_has: float = 0.3
    ceil: float = 0.2
    pads_count: float = 0.3
    kept_ones: float = 0.5
    exclusive: float = 0.3
    negative_begin: float = 0.2
    whole_exponent: float = 0.5


RATES = GraphRates()
FLOATS = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, "bool")


@dataclass(frozen=True, slots=True)
class Want:
    """An argument to be generated: its type, and the numbers it may hold, both ends included (None: any)."""

    type: T.Type
    within: tuple[float, float] | None = None


# A tuple is a tuple of arguments.
Given = Union[Want, R.Expr, "tuple[Given, ...]"]


@dataclass(frozen=True, slots=True)
class Solution:
    """Arguments and attributes of a call; where it yields a tuple that the wanted type is a field of, that
    type and the index.
    """

    args: tuple[Given, ...]
    attrs: R.Attributes | None = None
    whole: T.Type | None = None
    index: int = 0


Solver = Callable[[Draw, T.RelaxTensorType], Solution]


@dataclass(frozen=True, slots=True)
class Recogniser:
    """Which tensors may be the result: element types, ranks (both ends included), static shape if need be,
    and a condition.

    Compared by value: operators that share one are found together.
    """

    dtypes: tuple[str, ...] = ALL
    ranks: tuple[int, int] = (0, 5)
    static: bool = True
    condition: Callable[[tuple[int, ...]], bool] | None = None

    def __call__(self, kind: T.Type) -> bool:
        """Return whether a type can be the result."""
        if not isinstance(kind, T.RelaxTensorType) or kind.dtype not in self.dtypes or kind.shape is None:
            return False
        if not self.ranks[0] <= kind.rank <= self.ranks[1] or (self.static and not T.is_static(kind)):
            return False
        return self.condition is None or self.condition(static_sizes(kind))


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """The declaration of an operator. `onnx` names the operator of ONNX that means the same, "" for none."""

    name: str
    accepts: Recogniser
    solve: Solver
    onnx: str = ""

    def sample(self, draw: Draw) -> tuple[T.RelaxTensorType, Solution]:
        """Return a result type that the recogniser takes, and its solution.

        Raises:
            LookupError: 200 drawn types were all refused.
        """
        # Conditions on shapes are arbitrary functions, so types are drawn until one satisfies them.
        for _ in range(200):
            kind = draw.tensor_type(self.accepts.dtypes, self.accepts.ranks)
            if self.accepts(kind):
                return kind, self.solve(draw, kind)
        raise LookupError(f"no result type of {self.name} was found")


def attributes(kind: str, **values: Value) -> R.Attributes:
    """Make attributes of a kind (`SoftmaxAttrs`) in the order of TVM's fields; all fields must be given."""
    full = f"relax.attrs.{kind}"
    return R.Attributes(full, tuple((name, values[name]) for name in schema()[full]))


def static_sizes(kind: T.RelaxTensorType) -> tuple[int, ...]:
    """Return the sizes of a static shape; a symbol counts as 0."""
    return tuple(size if isinstance(size, int) else 0 for size in kind.shape or ())


def tensor(dtype: str, shape: Sequence[T.Size]) -> T.RelaxTensorType:
    """Return the type of a tensor."""
    return T.RelaxTensorType(dtype, tuple(shape))


def pick(rng: random.Random, items: Sequence[str]) -> str:
    """Draw an item, the first ones more often, because tables list the common element types first."""
    return items[min(rng.randrange(len(items)), rng.randrange(len(items)))]
