"""The protocol for edits of a program of any IR. An IR implements the edits; passes decide which to try.

`S` is a program with the values of its inputs. It is never changed in place: an edit returns a new one, or
`None` where it does not apply (any more). Operations without readers stay, and types are updated.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from opsieve.gen.irs.view import Array, Opening, Operation, ProgramView, SizeClass, StoredTensor, TypeClass

S = TypeVar("S")


class ProgramEdits(Protocol[S]):
    """The edits of an IR."""

    def view(self, subject: S) -> ProgramView:
        """Return the program as passes see it."""

    def drop_output(self, subject: S, name: str) -> S | None:
        """Yield one value less."""

    def remove(self, subject: S, operation: Operation) -> S | None:
        """Remove an operation; inputs or constants replace its results."""

    def replace(self, subject: S, result: str, by: str, retype: bool) -> S | None:
        """Read another value wherever a result is read, and drop the operation; `retype`: it may be one of
        another type, and what follows gets other types too.
        """

    def open(self, subject: S, opening: Opening) -> S | None:
        """Put a body in the place of its operation."""

    def store(self, subject: S, tensor: StoredTensor, array: Array) -> S | None:
        """Give a tensor another value of its type, where it still has the one that it was seen with."""

    def freeze(self, subject: S, name: str) -> S | None:
        """Make an input a constant."""

    def resize(self, subject: S, sizes: SizeClass, size: int, keep_last: bool) -> S | None:
        """Give dimensions a smaller size; tensors keep their first elements or their last."""

    def retype(self, subject: S, classes: Sequence[TypeClass], dtype: str) -> S | None:
        """Change the element type of whole classes of values."""


class FreshNames:
    """A source of names that are unique in a program."""

    def __init__(self, taken: Iterable[str] = (), first: int = 0) -> None:
        self._taken, self._first = set(taken), first
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """`stem0`, `stem1`, ..."""
        while True:
            number = self._next.get(stem, self._first)
            self._next[stem] = number + 1
            if (name := f"{stem}{number}") not in self._taken:
                return name
