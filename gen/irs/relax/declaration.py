"""The declaration of one Relax operator for the generator: the types it can yield, and operands that yield a
given type.

After the RFC on type-directed fuzzing (TVM, "Handling Operators"), an operator has

    accepts(type)        recogniser: whether the type can be its result
    solve(draw, type)    solver: arguments and attributes that yield exactly this type; always there when
    `accepts` says so sample(draw)         sampler: a result type and its solution

A solution names the type wanted of each argument, or the leaf itself where its value matters (an axis, an
index). What values an argument may have comes from the declaration of the ONNX operator that corresponds
(`onnx`): its `safe` domains.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.draw import Draw
from opsieve.gen.irs.tvm.nodes import Value, schema

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
