"""What is counted and kept once for a whole program, bodies included."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from opsieve.gen.declarations.builder import Budget, Style
from opsieve.gen.declarations.catalogue import OpTable
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.domains import Number
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import Attributes, Tensor
from opsieve.gen.graph.graph import Shape
from opsieve.gen.graph.pieces import Pieces

_NO_CHOICES: Final = OpTable()
Supports = Callable[[Operator, Sequence[Tensor | None], Attributes, int], bool]


class ProgramState:
    """The settings of a program, its leaves, and what it has cost so far.

    `supports` tells whether the compilers under test have an instance, `only` are the operators that were
    asked for (None: all), `choices` what bodies are grown from, `plant` what else is put into some of them
    (None: nothing). `inner` counts the nodes inside bodies, `exposed` are tensors that are to be outputs
    although they are read. `opened` says that sizes are to be left open. `leaves` are inputs, initializers
    and constants; `numbers` those of them that hold known numbers. `held` are the elements, by name, of
    leaves that a model gave values: they are written as they are.
    """

    def __init__(self, rng: Rng, opset: int, style: Style, budget: Budget) -> None:
        self.rng = rng
        self.opset = opset
        self.style = style
        self.budget = budget
        self.supports: Supports | None = None
        self.only: frozenset[str] | None = None
        self.choices: OpTable = _NO_CHOICES
        self.plant: Callable[[Any], None] | None = None
        self.leaves: list[Tensor] = []
        self.numbers: dict[tuple[str, Shape, tuple[Number, ...]], Tensor] = {}
        self.held: dict[str, Any] = {}
        self.exposed: list[Tensor] = []
        self.has_input = False
        self.opened = False
        self.count = 0
        self.inner = 0
        self.elements = 0
        self.work = 0
        self.pieces = Pieces()

    def named(self, kind: str) -> str:
        """A new name."""
        self.count += 1
        return f"{kind}{self.count}"
