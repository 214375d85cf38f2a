"""Symbolic sizes as terms: arithmetic on them gives a term, and a comparison gives a relation.

A term is an operator and its operands. Evaluation waits until numbers for the symbols are known (`value`). In
a truth context, as in `if` and `in`, an equality tells whether both sides are the same term; any other
relation raises `OpenSize`, because the answer depends on numbers that are still unknown.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Operand: TypeAlias = "Term | int"
NUMBER, IF, OR, AND = "number", "if", "or", "and"
COMPUTED: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
}


class OpenSize(Exception):
    """Raised where a decision depends on an open size."""


class Term:
    """An open size, or a relation over open sizes. `args` are what its operator works on: terms, numbers,
    truths; of an open number its place.
    """

    __slots__ = ("args", "op")

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        self.op = op
        self.args = args

    def __add__(self, other: Operand) -> "Term":
        # A sum with 0, as of most paddings, would only lengthen the terms that are built on it.
        return self if type(other) is int and not other else Term("+", (self, other))

    def __radd__(self, other: Operand) -> "Term":
        return self + other

    def __sub__(self, other: Operand) -> "Term":
        return Term("-", (self, other))

    def __rsub__(self, other: Operand) -> "Term":
        return Term("-", (other, self))

    def __mul__(self, other: Operand) -> "Term":
        return Term("*", (self, other))

    __rmul__ = __mul__

    def __neg__(self) -> "Term":
        return Term("-", (0, self))

    def __floordiv__(self, other: Operand) -> "Term":
        return Term("//", (self, other))

    def __rfloordiv__(self, other: Operand) -> "Term":
        return Term("//", (other, self))

    def __mod__(self, other: Operand) -> "Term":
        return Term("%", (self, other))

    def __lt__(self, other: Operand) -> "Term":
        return Term("<", (self, other))

    def __le__(self, other: Operand) -> "Term":
        return Term("<=", (self, other))

    def __gt__(self, other: Operand) -> "Term":
        return Term("<", (other, self))

    def __ge__(self, other: Operand) -> "Term":
        return Term("<=", (other, self))

    # Equality gives a relation whose truth is evaluated later, so the types differ from those of `object`.
    def __eq__(self, other: object) -> "Term":  # type: ignore[override]
        return Term("==", (self, other))

    def __ne__(self, other: object) -> "Term":  # type: ignore[override]  # as above
        return Term("!=", (self, other))

    # A class that defines equality loses its hash; terms are hashed by identity.
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        if self.op in ("==", "!="):
            return _same(*self.args) is (self.op == "==")
        raise OpenSize("a size that is open is asked for")

    def __repr__(self) -> str:
        return f"n{self.args[0]}" if self.op == NUMBER else f"({f' {self.op} '.join(map(repr, self.args))})"


def _same(one: Any, other: Any) -> bool:
    """Return whether two terms say the same, operator by operator."""
    if not isinstance(one, Term) or not isinstance(other, Term):
        return type(one) is type(other) and bool(one == other)
    return one is other or (
        one.op == other.op and len(one.args) == len(other.args) and all(map(_same, one.args, other.args))
    )


def value(term: Any, numbers: Sequence[int] | Mapping[int, int], known: dict[int, Any] | None = None) -> Any:
    """Evaluate a term or relation with numbers for its symbols. `known` caches choices by id, because sizes
    after a choice contain it several times.
    """
    if type(term) is not Term:
        return term
    op, args = term.op, term.args
    # `is` is enough for a shared constant, and faster than a comparison of texts.
    if op is NUMBER:
        return numbers[args[0]]
    if known is None:
        known = {}
    computed = COMPUTED.get(op)
    if computed is not None:
        one, other = args
        return computed(
            value(one, numbers, known) if type(one) is Term else one,
            value(other, numbers, known) if type(other) is Term else other,
        )
    if op is OR:
        return any(value(arg, numbers, known) for arg in args)
    if op is AND:
        return all(value(arg, numbers, known) for arg in args)
    found = known.get(id(term))
    if found is None:
        found = known[id(term)] = value(
            args[1] if value(args[0], numbers, known) else args[2], numbers, known
        )
    return found


def places(term: Any) -> frozenset[int]:
    """Return the places of the open numbers in a term."""
    found, seen, waiting = set(), set[int](), [term]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Term) and id(each) not in seen:
            seen.add(id(each))
            if each.op == NUMBER:
                found.add(each.args[0])
            else:
                waiting += each.args
    return frozenset(found)
