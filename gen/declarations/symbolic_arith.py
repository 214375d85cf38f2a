"""Arithmetic for the rules of operators: the same lines check Python integers and give terms over open sizes.

Sizes of windows, paddings and groups are written once, as functions of dimensions and attributes. Called with
integers they check and infer at full speed; called with terms (gen/declarations/terms.py) the same lines give
relations. Only what Python's own operators do not do for terms is here.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from opsieve.gen.declarations.terms import AND, IF, OR, Term

# An int, or a term
Size = Any
# A bool, or a relation
Truth = Any


def quotient(a: Size, b: int) -> Size:
    """`a` divided by a positive `b`, rounded down."""
    return a // b


def ceil_quotient(a: Size, b: Size) -> Size:
    """`a` divided by a positive `b`, rounded up."""
    return quotient(a + b - 1, b)


def smaller(a: Size, b: Size) -> Size:
    """Return the smaller of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return a if a < b else b
    return Term(IF, (a < b, a, b))


def larger(a: Size, b: Size) -> Size:
    """Return the larger of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return a if a > b else b
    return Term(IF, (a > b, a, b))


def where(condition: Truth, a: Size, b: Size) -> Size:
    """`a` where the condition holds, else `b`."""
    if isinstance(condition, bool):
        return a if condition else b
    return Term(IF, (condition, a, b))


def either(*truths: Truth) -> Truth:
    """Return whether any of them holds."""
    return any(truths) if all(isinstance(truth, bool) for truth in truths) else Term(OR, truths)


def both(*truths: Truth) -> Truth:
    """Return whether all of them hold."""
    return all(truths) if all(isinstance(truth, bool) for truth in truths) else Term(AND, truths)


def product(sizes: Iterable[Size]) -> Size:
    """Return the sizes multiplied; 1 for none."""
    result: Size = 1
    for size in sizes:
        # No factor 1: it would make each term one operation longer.
        result = size if isinstance(result, int) and result == 1 else result * size
    return result


def broadcast(a: Sequence[Size], b: Sequence[Size]) -> tuple[Size, ...]:
    """Return the shape of two operands together by numpy's rule; `broadcasts` tells whether they have one.

    ValueError where it hangs on sizes that have only names, as models that are read have.
    """
    if len(a) == len(b) and a == b:
        return tuple(a)
    short, long = (a, b) if len(a) < len(b) else (b, a)
    extra = len(long) - len(short)
    sides: list[Size] = list(long[:extra])
    for p, q in zip(short, long[extra:], strict=True):
        if isinstance(p, int) and isinstance(q, int):
            sides.append(q if p == 1 else p)
        elif isinstance(p, str) or isinstance(q, str):
            if p != q and 1 not in (p, q):
                raise ValueError("sizes with names")
            sides.append(q if p == 1 else p)
        else:
            sides.append(where(p == 1, q, p))
    return tuple(sides)


def broadcasts(a: Sequence[Size], b: Sequence[Size]) -> list[Truth]:
    """Return the relations under which two shapes go together."""
    return [either(p == q, p == 1, q == 1) for p, q in zip(reversed(a), reversed(b), strict=False)]


def window(size: Size, kernel: Size, stride: Size, dilation: Size, padding: Size, ceil: bool = False) -> Size:
    """Return how many places a window has along one axis; `padding` is that of both ends together.

    Source: the ONNX operator page of MaxPool (output spatial shape), Conv alike with `ceil` false.
    """
    room = size + padding - dilation * (kernel - 1) - 1
    return (ceil_quotient(room, stride) if ceil else quotient(room, stride)) + 1


def divisors(number: int) -> list[int]:
    """Return every divisor of a positive number, in order."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    # The root of a square is its own partner.
    return low + [number // n for n in reversed(low) if n * n != number]
