"""Shapes as text, for what a declaration says of sizes: `batch groups*size keys`.

Terms stand between blanks. Each is a number, the name of a size, a product of those, or, at the end, a name with three dots that stands for
all further sizes: `batch channels sides...`. What a name stands for is the first size that is met under it, or an attribute of that name. So one text
gives a shape, and several ask that inputs agree:

    requires=agree("batch queries size", "batch keys size", "batch keys width")
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from opsieve.gen.spec.builder import FREE, Sizes
from opsieve.gen.spec.symbolic_arith import Size, Truth, product
from opsieve.gen.spec.tensor import Ins, Tensor

Term = tuple[int | str, ...]  # factors
Sized = dict[str, Any]  # sizes by name; those of a name with dots are a tuple
_DOTS = "..."


class Known(Protocol):
    """What names stand for."""

    def __getitem__(self, name: str) -> Any:
        """What a name stands for; KeyError where it is nothing."""

    def get(self, name: str, default: Any) -> Any:
        """What a name stands for, else the default."""


@functools.cache
def _terms(text: str) -> tuple[Term, ...]:
    return tuple(
        tuple(int(factor) if factor.isdigit() else factor for factor in term.split("*")) for term in text.split()
    )


def shape_of(text: str, known: Known) -> Sizes:
    """The shape that a text stands for where names stand for these sizes; FREE where a name stands for none."""
    found: list[Size] = []
    for term in _terms(text):
        first = term[0]
        if isinstance(first, str) and first.endswith(_DOTS):
            found += known[first.removesuffix(_DOTS)]
        elif len(term) == 1:
            found.append(known.get(first, FREE) if isinstance(first, str) else first)
        else:
            found.append(product(known[factor] if isinstance(factor, str) else factor for factor in term))
    return tuple(found)


def name_sizes(text: str, shape: Sizes, known: Sized) -> None:
    """Let the names that stand for nothing yet stand for the sizes of a shape."""
    for place, term in enumerate(_terms(text)):
        first = term[0]
        if len(term) == 1 and isinstance(first, str):
            if first.endswith(_DOTS):
                known.setdefault(first.removesuffix(_DOTS), shape[place:])
            else:
                known.setdefault(first, shape[place])


def sized(texts: Sequence[str], ins: Sequence[Tensor | None], attrs: Mapping[str, Any]) -> tuple[Sized, list[Truth]]:
    """What names stand for in an instance, and the relations that must hold for its inputs to be of the shapes; `""` is an input of any shape."""
    known, found = dict(attrs), list[Truth]()
    for text, tensor in zip(texts, ins, strict=False):
        if tensor is None or not text:
            continue
        shape = tensor.shape
        dots = text.endswith(_DOTS)
        terms = _terms(text)
        if len(shape) < len(terms) - 1 if dots else len(shape) != len(terms):
            return known, [False]
        name_sizes(text, shape, known)
        wanted = shape_of(text, known)
        found += [len(wanted) == len(shape), *(p == q for p, q in zip(wanted, shape, strict=False) if p is not q)]
    return known, [truth for truth in found if truth is not True]


def agree(*texts: str) -> Callable[[Ins, Mapping[str, Any]], Sequence[Truth]]:
    """The `requires` of an operator whose inputs have shapes that agree."""
    return lambda ins, attrs: sized(texts, ins, attrs)[1]
