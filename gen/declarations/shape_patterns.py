"""Shapes as text, the notation of declarations: `batch groups*size keys`.

Blanks separate terms. A term is a number, the name of a size, a product of those, or, at the end, a name with
three dots for all further sizes: `batch channels sides...`. A name is bound to the first size that it meets,
or to the attribute of that name. So one text gives a shape, and several require inputs to agree:

    requires=agree("batch queries size", "batch keys size", "batch keys width")
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opsieve.gen.declarations.builder import FREE, Sizes
from opsieve.gen.declarations.symbolic_arith import Size, Truth, product
from opsieve.gen.declarations.tensor import Ins, Tensor

Factor = int | str
# Sizes by name; those of a name with dots are a tuple
Sized = dict[str, Any]
_DOTS: Final = "..."


@dataclass(frozen=True, slots=True)
class Rest:
    """All further sizes."""

    name: str


Term = Factor | tuple[Factor, ...] | Rest


def _factor(text: str) -> Factor:
    return int(text) if text.isdigit() else text


@functools.cache
def _terms(text: str) -> tuple[Term, ...]:
    found: list[Term] = []
    for term in text.split():
        if term.endswith(_DOTS):
            found.append(Rest(term.removesuffix(_DOTS)))
        else:
            found.append(tuple(map(_factor, term.split("*"))) if "*" in term else _factor(term))
    return tuple(found)


@functools.cache
def _names(text: str) -> tuple[tuple[str, int | slice], ...]:
    """Return the names that stand for a size, or for all from a place on, and where they stand."""
    found: list[tuple[str, int | slice]] = []
    for place, term in enumerate(_terms(text)):
        if isinstance(term, Rest):
            found.append((term.name, slice(place, None)))
        elif isinstance(term, str):
            found.append((term, place))
    return tuple(found)


def shape_of(text: str, sizes: Sized, attrs: Mapping[str, Any]) -> Sizes:
    """Return the shape that a text stands for, by names of sizes and by attributes; FREE where a name stands
    for nothing.
    """
    found: list[Size] = []
    for term in _terms(text):
        if isinstance(term, str):
            found.append(sizes[term] if term in sizes else attrs.get(term, FREE))
        elif isinstance(term, int):
            found.append(term)
        elif isinstance(term, Rest):
            found += sizes[term.name]
        else:
            found.append(
                product(
                    each if isinstance(each, int) else (sizes[each] if each in sizes else attrs[each])
                    for each in term
                )
            )
    return tuple(found)


def name_sizes(text: str, shape: Sizes, sizes: Sized) -> None:
    """Bind the names that are still free to the sizes of a shape."""
    for name, place in _names(text):
        if name not in sizes:
            sizes[name] = shape[place]


def match_sizes(
    texts: Sequence[str], ins: Sequence[Tensor | None], attrs: Mapping[str, Any]
) -> tuple[Sized, list[Truth]]:
    """Match shapes and return the sizes of the names, and the relations that inputs must satisfy; `""` is an
    input of any shape.
    """
    known: Sized = {}
    found: list[Truth] = []
    for text, tensor in zip(texts, ins, strict=False):
        if tensor is None or not text:
            continue
        shape = tensor.shape
        dots = text.endswith(_DOTS)
        terms = _terms(text)
        # The dots may stand for no size at all.
        if len(shape) < len(terms) - 1 if dots else len(shape) != len(terms):
            return known, [False]
        for name, place in _names(text):
            # Otherwise they must agree with its binding.
            if name not in known and name not in attrs:
                known[name] = shape[place]
        wanted = shape_of(text, known, attrs)
        found += [
            len(wanted) == len(shape),
            # The same object needs no relation; a bound name gives just that.
            *(p == q for p, q in zip(wanted, shape, strict=False) if p is not q),
        ]
    return known, [truth for truth in found if truth is not True]


def agree(*texts: str) -> Callable[[Ins, Mapping[str, Any]], Sequence[Truth]]:
    """Return the `requires` of an operator whose inputs have shapes that agree."""
    return lambda ins, attrs: match_sizes(texts, ins, attrs)[1]
