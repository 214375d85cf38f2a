"""The types of Relax: tensors with symbolic shapes, shapes, scalars, tuples, functions, and the one that
holds anything.

Frozen and compared by value. A symbol is known by its name, which is unique in a module. Sources: apache-tvm
0.27, `tvm.relax.type` and include/tvm/relax/type.h.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sym:
    """A symbolic size: an integer variable, of 64 bits unless said otherwise."""

    name: str
    dtype: str = "int64"


@dataclass(frozen=True, slots=True)
class SizeOp:
    """Arithmetic of sizes: `op` is the name of TVM's node (`Add`, `Sub`, `Mul`, `FloorDiv`, `FloorMod`,
    `Min`, `Max`).
    """

    op: str
    left: "Size"
    right: "Size"


Size = int | Sym | SizeOp
Shape = tuple[Size, ...]

SIZE_OPS: Mapping[str, Any] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
}
SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}


@dataclass(frozen=True, slots=True)
class RelaxTensorType:
    """A tensor. An unknown `dtype` is "", an unknown `shape` is None, an unknown `rank` is -1."""

    dtype: str
    shape: Shape | None
    rank: int = -1

    def __post_init__(self) -> None:
        if self.shape is not None:
            object.__setattr__(self, "rank", len(self.shape))


@dataclass(frozen=True, slots=True)
class ShapeType:
    """A shape as a value; unknown `sizes` are None, an unknown `rank` is -1."""

    sizes: Shape | None
    rank: int = -1

    def __post_init__(self) -> None:
        if self.sizes is not None:
            object.__setattr__(self, "rank", len(self.sizes))


@dataclass(frozen=True, slots=True)
class PrimType:
    """A scalar outside tensors."""

    dtype: str


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple, of any number of fields."""

    fields: tuple["Type", ...]


@dataclass(frozen=True, slots=True)
class FuncType:
    """A function; `params` is `None` if unknown, and then `derive` names the function that infers the result
    of a call.
    """

    params: tuple["Type", ...] | None
    result: "Type"
    pure: bool = True
    derive: str = ""


@dataclass(frozen=True, slots=True)
class StringType:
    """A string."""


@dataclass(frozen=True, slots=True)
class AnyType:
    """Anything (`R.Object`)."""


Type = RelaxTensorType | ShapeType | PrimType | TupleType | FuncType | StringType | AnyType
# The fields of a type or size that hold others.
_PARTS: Mapping[type, tuple[str, ...]] = {
    SizeOp: ("left", "right"),
    RelaxTensorType: ("shape",),
    ShapeType: ("sizes",),
    TupleType: ("fields",),
    FuncType: ("params", "result"),
}


def size_value(size: Size, known: Mapping[str, int]) -> int:
    """Return the value of a size when the symbols have these.

    Raises:
        KeyError: a symbol has none.
    """
    if isinstance(size, int):
        return size
    if isinstance(size, Sym):
        return known[size.name]
    return int(SIZE_OPS[size.op](size_value(size.left, known), size_value(size.right, known)))


def symbols(item: "Type | Size | tuple[Any, ...] | None") -> Iterator[str]:
    """Yield the names of the symbols that a type or size reads, in order, with repeats."""
    return (part.name for part in _walk(item) if isinstance(part, Sym))


def tensors(kind: "Type | tuple[Type, ...] | None") -> Iterator[RelaxTensorType]:
    """Yield the tensor types in a type, in order."""
    return (part for part in _walk(kind) if isinstance(part, RelaxTensorType))


def _walk(item: Any) -> Iterator[Any]:
    """Yield a type or size and everything in it, in order."""
    yield item
    parts = item if isinstance(item, tuple) else [getattr(item, name) for name in _PARTS.get(type(item), ())]
    for part in parts:
        yield from _walk(part)


def replace_sizes(kind: "Type", size: Callable[[Size], Size], dtype: Callable[[str], str] = str) -> "Type":
    """Map every size of a type's tensors and shapes, and every element type."""
    if isinstance(kind, RelaxTensorType):
        shape = None if kind.shape is None else tuple(map(size, kind.shape))
        return RelaxTensorType(dtype(kind.dtype), shape, kind.rank)
    if isinstance(kind, ShapeType) and kind.sizes is not None:
        return ShapeType(tuple(map(size, kind.sizes)))
    if isinstance(kind, TupleType):
        return TupleType(tuple(replace_sizes(field, size, dtype) for field in kind.fields))
    if isinstance(kind, FuncType):
        params = (
            None if kind.params is None else tuple(replace_sizes(item, size, dtype) for item in kind.params)
        )
        return FuncType(params, replace_sizes(kind.result, size, dtype), kind.pure, kind.derive)
    return kind


def concrete(kind: "Type", known: Mapping[str, Size]) -> "Type":
    """Replace the symbols of a type by values or other symbols; unknown symbols stay."""
    return replace_sizes(kind, lambda size: resolve_size(size, known))


def resolve_size(size: Size, known: Mapping[str, Size]) -> Size:
    """Replace the symbols of a size, and compute it if all of them are known."""
    if isinstance(size, Sym):
        return known.get(size.name, size)
    if isinstance(size, int):
        return size
    left, right = resolve_size(size.left, known), resolve_size(size.right, known)
    if isinstance(left, int) and isinstance(right, int):
        return int(SIZE_OPS[size.op](left, right))
    return SizeOp(size.op, left, right)


def is_static(kind: "Type") -> bool:
    """Return whether a type says every shape in numbers."""
    if isinstance(kind, RelaxTensorType):
        return kind.shape is not None and all(isinstance(size, int) for size in kind.shape)
    if isinstance(kind, ShapeType):
        return kind.sizes is not None and all(isinstance(size, int) for size in kind.sizes)
    if isinstance(kind, TupleType):
        return all(map(is_static, kind.fields))
    return isinstance(kind, PrimType)


def elements(shape: Shape, known: Mapping[str, int]) -> int:
    """Return how many elements a tensor of this shape has."""
    return math.prod(size_value(size, known) for size in shape)


def size_text(size: Size) -> str:
    """Return a size as Python writes it."""
    if isinstance(size, int):
        return str(size)
    if isinstance(size, Sym):
        return size.name
    if size.op in SIGNS:
        return f"({size_text(size.left)} {SIGNS[size.op]} {size_text(size.right)})"
    return f"T.{size.op.lower()}({size_text(size.left)}, {size_text(size.right)})"
