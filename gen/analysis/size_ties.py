"""Find which dimensions of a node's inputs and outputs its operator ties together, by running its declaration
on marked sizes.

The rules of a declaration run on integers; here they run on integers that remember their dimension. Where
`infer` passes a size of an input on to an output, and where a relation of `requires` compares two sizes and
finds them equal, the two are tied: changing one alone would make the node invalid, or change a type that is
not computed from it. So the declaration remains the only place for an operator's requirements on sizes.
(Concolic execution, as in Godefroid, Klarlund and Sen, DART, PLDI 2005, on a small scale.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opsieve.gen.declarations import declaration, instance
from opsieve.gen.declarations.tensor import Attributes, Tensor, Typed

# The number of a tensor of the node, inputs first, and one of its axes.
Place = tuple[int, int]
Tie = tuple[Place, Place]


class MarkedSize(int):
    """A size that remembers its dimension, and how far it is from it: `size + 1 - 1` is the same size
    again.
    """

    place: Place
    offset: int
    ties: set[Tie]

    def __new__(cls, size: int, place: Place, offset: int, ties: set[Tie]) -> MarkedSize:
        """Return the size of a dimension, or one that is `offset` more."""
        made = super().__new__(cls, size)
        made.place, made.offset, made.ties = place, offset, ties
        return made

    def _shift_by(self, by: int) -> int:
        return MarkedSize(int(self) + by, self.place, self.offset + by, self.ties)

    def __add__(self, other: Any) -> Any:
        return self._shift_by(other) if type(other) is int else int(self) + _plain(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._shift_by(-other) if type(other) is int else int(self) - _plain(other)

    def __mul__(self, other: Any) -> Any:
        # A product with another factor is a different size: equality with it ties nothing.
        return self if type(other) is int and other == 1 else int(self) * _plain(other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self if type(other) is int and other == 1 else int(self) // _plain(other)

    def __eq__(self, other: object) -> bool:
        same = int(self) == other
        if (
            same
            and isinstance(other, MarkedSize)
            and self.offset == other.offset
            and self.place != other.place
        ):
            self.ties.add((self.place, other.place))
        return same

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


def _plain(number: Any) -> Any:
    return int(number) if isinstance(number, MarkedSize) else number


def size_ties(
    operator: declaration.Operator,
    ins: Sequence[Tensor | None],
    attrs: Attributes,
    outs: Sequence[tuple[int, ...] | None],
) -> list[Tie] | None:
    """List the dimensions that a node ties, each a tensor's number (inputs first, then outputs) and an axis;
    returns `None` if they are unknown.

    `outs` are the shapes of the outputs, None for one that is absent or unknown: if the declaration disagrees
    with them it does not cover this node.
    """
    ties: set[Tie] = set()
    marked = [
        None if tensor is None else _mark_sizes(tensor, number, ties) for number, tensor in enumerate(ins)
    ]
    try:
        # The rules of operators with optional inputs check for None themselves.
        if not all(operator.requires(marked, attrs)):  # type: ignore[arg-type]
            return None
        types = operator.infer(marked, attrs)[: len(outs)]  # type: ignore[arg-type]  # as above
        if any(
            shape is not None and not (typed is not None and tuple(int(size) for size in typed[1]) == shape)
            for typed, shape in zip(types, outs, strict=False)
        ):
            return None
    except Exception:  # noqa: BLE001
        # Rules are written for drawn instances; on a node of a user's model they may raise anything.
        return None
    return [*ties, *_handed_on(types, outs, len(ins))]


def _mark_sizes(tensor: Tensor, number: int, ties: set[Tie]) -> Tensor:
    shape = tuple(MarkedSize(size, (number, axis), 0, ties) for axis, size in enumerate(tensor.shape))
    return instance.with_sizes(tensor, shape)


def _handed_on(
    types: Sequence[Typed | None], outs: Sequence[tuple[int, ...] | None], first: int
) -> Iterator[Tie]:
    for number, (typed, shape) in enumerate(zip(types, outs, strict=False), first):
        if typed is None or shape is None:
            continue
        for axis, size in enumerate(typed[1]):
            if isinstance(size, MarkedSize) and size.offset == 0:
                yield size.place, (number, axis)
