"""The graph of the small generator while it grows: values with types, shapes and intervals, and the numbers drawn for it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper

from opsieve.gen.inputs import Stream

OPSET = 18
MAX_ELEMENTS = 1024
# The largest magnitude of a value: float16 has room for sums of products, int64 is exact as a float32 nearly always.
LARGEST = {"float32": 1e4, "float16": 256.0, "int64": 1e6, "bool": 1.0}
FLOATS = ("float32", "float16")

Shape = tuple[int, ...]
T = TypeVar("T")


class Draw:
    """Choices that depend on the seed only, on every machine and release of numpy and Python."""

    def __init__(self, seed: int) -> None:
        self._stream = Stream(seed, "small program")
        self._block: list[int] = []

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        if not self._block:
            self._block = self._stream.integers(0, 2**62 - 1, 256).tolist()
        return self._block.pop() % count

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True that often of a hundred."""
        return self.below(100) < percent

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items, in their order."""
        left = list(range(len(items)))
        chosen = sorted(left.pop(self.below(len(left))) for _ in range(count))
        return [items[place] for place in chosen]


@dataclass(frozen=True, slots=True)
class Val:
    """A value of the graph: all its elements lie between `low` and `high`."""

    name: str
    dtype: str
    shape: Shape
    low: float
    high: float

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> float:
        """The largest magnitude an element can have."""
        return max(abs(self.low), abs(self.high))

    def within(self, low: float, high: float) -> bool:
        """Whether all elements lie between these."""
        return low <= self.low and self.high <= high


class Graph:
    """Nodes, constants and inputs so far. `room` is how many more nodes are wanted, `read` the values that a node reads."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)
        self._numbers = Stream(seed, "small numbers")
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.inputs: dict[str, np.ndarray[Any, Any]] = {}
        self.values: list[Val] = []
        self.read: set[str] = set()
        self.room = 0
        self.float_dtype = "float16" if self.draw.chance(20) else "float32"
        for _ in range(self.draw.between(1, 3)):
            self._input(self.float_dtype)
        if self.draw.chance(35):
            self._input(self.draw.choice(("int64", "bool")))

    def _input(self, dtype: str) -> None:
        low, high = {"int64": (-8.0, 8.0), "bool": (0.0, 1.0)}.get(dtype, (-2.0, 2.0))
        value = Val(f"x{len(self.inputs)}", dtype, self._shape(), low, high)
        self.inputs[value.name] = self._filled(dtype, value.shape, low, high)
        self.values.append(value)

    def _shape(self) -> Shape:
        if self.values and self.draw.chance(50):  # shapes that go together make graphs that hang together
            return self.draw.choice(self.values).shape
        rank = self.draw.choice((0, 1, 2, 2, 2, 3, 3, 4, 4, 4))
        sides = [self.draw.between(1, 4) for _ in range(min(rank, 2))]
        return (*sides, *(self.draw.between(2, 6) for _ in range(rank - 2)))

    def _filled(self, dtype: str, shape: Shape, low: float, high: float) -> np.ndarray[Any, Any]:
        count = math.prod(shape)
        if dtype in FLOATS:
            return (low + (high - low) * self._numbers.fractions(count)).astype(dtype).reshape(shape)
        return self._numbers.integers(math.ceil(low), math.floor(high), count).astype(dtype).reshape(shape)

    def constant(self, dtype: str, shape: Shape, low: float, high: float) -> Val:
        """A new initializer with numbers drawn between the bounds."""
        name = f"c{len(self.constants)}"
        self.constants[name] = self._filled(dtype, shape, low, high)
        return Val(name, dtype, shape, low, high)

    def numbers(self, items: Sequence[float], dtype: str = "int64", shape: Shape | None = None) -> Val:
        """A new initializer with exactly these numbers; a vector unless a shape is given."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(items, dtype).reshape(len(items) if shape is None else shape)
        return Val(name, dtype, self.constants[name].shape, min(items, default=0), max(items, default=0))

    def emit(
        self, operator: str, inputs: Sequence[Val], dtype: str, shape: Shape, low: float, high: float, **attributes: Any
    ) -> Val:
        """Add a node with one output, and give it."""
        return self.emit_all(operator, inputs, [(dtype, shape, low, high)], **attributes)[0]

    def emit_all(
        self,
        operator: str,
        inputs: Sequence[Val],
        outputs: Sequence[tuple[str, Shape, float, float]],
        **attributes: Any,
    ) -> list[Val]:
        """Add a node with outputs of these types, shapes and bounds."""
        first = len(self.values)
        made = [Val(f"v{first + place}", *output) for place, output in enumerate(outputs)]
        names = [value.name for value in made]
        self.nodes.append(
            helper.make_node(operator, [v.name for v in inputs], names, f"n{len(self.nodes)}", **attributes)
        )
        self.read.update(value.name for value in inputs)
        self.values.extend(made)
        return made

    def fits(self, dtype: str, shape: Shape, low: float, high: float) -> bool:
        """Whether a value of these is small enough to go on with."""
        return max(abs(low), abs(high)) <= LARGEST[dtype] and math.prod(shape) <= MAX_ELEMENTS

    def pick(self, wanted: Callable[[Val], bool]) -> Val | None:
        """A value as wanted, more often than not one that nobody reads yet; None when there is none."""
        found = [value for value in self.values if wanted(value)]
        unread = [value for value in found if value.name not in self.read]
        if unread and self.draw.chance(70):
            return self.draw.choice(unread)
        return self.draw.choice(found) if found else None

    def pick_float(self, wanted: Callable[[Val], bool] = lambda value: True) -> Val | None:
        """A float value as wanted."""
        return self.pick(lambda value: value.dtype in FLOATS and wanted(value))

    def clipped(self, value: Val, low: float, high: float) -> Val:
        """The value, behind a Clip where it does not lie between the bounds already."""
        if value.within(low, high):
            return value
        bounds = [self.numbers([bound], value.dtype, ()) for bound in (low, high)]
        return self.emit("Clip", [value, *bounds], value.dtype, value.shape, low, high)
