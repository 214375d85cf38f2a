"""Solve size constraints with z3 when local repair fails.

Each query has a z3 context of its own, so that an answer depends on the query and not on earlier ones in the
process, and a limit in z3's own units of work rather than seconds: it ends, and ends the same way on every
machine. This module imports z3, so callers import it lazily.

Source: NNSmith (ASPLOS 2023), section 3.2, Algorithm 1 (`Solve`).
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import z3

from opsieve.gen.declarations.terms import AND, COMPUTED, IF, NUMBER, OR, Term, value

# z3's units: about a tenth of a second
_WORK = 300_000
# z3 has Python's operators, but for the quotient of whole numbers, which is its `/`.
_MAKERS = {**COMPUTED, "//": operator.truediv, IF: z3.If, OR: z3.Or, AND: z3.And}


def find_solution(relations: Sequence[Term], ends: Mapping[int, tuple[int, int]]) -> dict[int, int] | None:
    """Find a number for each place of `ends`, between its ends, so that all relations hold; None if z3 finds
    none.
    """
    context = z3.Context()
    solver = z3.SimpleSolver(ctx=context)
    solver.set("rlimit", _WORK)
    numbers = {place: z3.Int(f"n{place}", context) for place in ends}
    for place, (low, high) in ends.items():
        solver.add(numbers[place] >= low, numbers[place] <= high)
    known: dict[int, Any] = {}
    solver.add(*(_translate(relation, numbers, known, context) for relation in relations))
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    found = {place: int(model.eval(term, model_completion=True).as_long()) for place, term in numbers.items()}
    # z3 rounds a quotient as Python does where the divisor is positive, as sizes are: what holds there is
    # made sure of here.
    return found if all(value(relation, found) for relation in relations) else None


def _translate(term: Any, numbers: Mapping[int, Any], known: dict[int, Any], context: Any) -> Any:
    """Translate a term or relation to z3. `known` holds earlier translations by id, because choices repeat
    sizes.
    """
    if not isinstance(term, Term):
        return z3.BoolVal(term, context) if isinstance(term, bool) else z3.IntVal(term, context)
    if term.op == NUMBER:
        return numbers[term.args[0]]
    found = known.get(id(term))
    if found is not None:
        return found
    args = [_translate(arg, numbers, known, context) for arg in term.args]
    made = known[id(term)] = _MAKERS[term.op](*args)
    return made
