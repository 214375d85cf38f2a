"""Solve relations over symbolic sizes: repair the current solution, and ask z3 if that fails.

At any time there is a number for every symbol such that all accepted relations hold. New relations, most of
which already hold, are repaired by moves: for a broken relation, change the one number that breaks the fewest
others, then repair those. Every move follows from the relation itself: the target of `a + b` determines that
of `a`. So most answers cost some dozens of evaluations. After a limit on moves, z3 gets the query with all
relations that share a number with it: only z3 proves that something is impossible. Answers depend on the
query alone.

Sources: NNSmith (ASPLOS 2023), section 3.2, Algorithm 1 (`Solve`) and Algorithm 2 (attribute binning), and
the special bins of section 4. The search: min-conflicts (Minton and others, Artificial Intelligence 58,
1992), whose moves go down the terms as in Niemetz, Preiner and Biere, "Precise and complete propagation based
local search" (CAV 2016).
"""

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.symbolic_arith import Size, Truth
from opsieve.gen.declarations.terms import AND, COMPUTED, IF, NUMBER, OR, Term, places, value

# Repair solves 98 % of the insertions within this many moves; z3 takes over for the rest.
_MOVES = 40
# The most moves of other numbers to let one into its bin; after that it keeps its value.
_BIN_MOVES = 12
# Tries to move a number: the whole way, half of it, a quarter
_HALVED = 3
# Each earlier change of a number counts as this many broken relations, so that a repair does not move one
# number back and forth.
_AGAIN = 2
# The limit of a number that no relation bounds.
_FAR = 1 << 20


@dataclass(frozen=True, slots=True)
class BinnedNumber:
    """A number that is spread over bins: its limits, and single values with a bin of their own (0 for a
    padding).
    """

    place: int
    low: int
    high: int
    own: tuple[int, ...] = ()


class Constraints:
    """The relations between the sizes of a program, kept together with numbers that satisfy all of them."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._ends: list[tuple[int, int]] = []
        # For each number, the relations that contain it.
        self._about: list[list[Term]] = []
        self._binned: list[BinnedNumber] = []

    def add_number(self, low: int, high: int = _FAR, own: tuple[int, ...] = (), spread: bool = True) -> Size:
        """Add a number from `low` to `high`; `own` values get bins of their own, and one that is not `spread`
        gets no bins.
        """
        place = len(self._numbers)
        self._numbers.append(low)
        self._ends.append((low, high))
        self._about.append([])
        if spread:
            self._binned.append(BinnedNumber(place, low, high, own))
        return Term(NUMBER, (place,))

    def add_relations(self, relations: Iterable[Truth]) -> bool:
        """Add relations if all can hold together; else return False without a change. A question that takes
        z3 too long counts as no.
        """
        terms = [relation for relation in relations if relation is not True]
        if any(relation is False for relation in terms):
            return False
        asked = [(term, places(term)) for term in terms]
        for term, found in asked:
            for place in found:
                self._about[place].append(term)
        if self._repair(
            [term for term in terms if not value(term, self._numbers)], _MOVES, -1
        ) or self._solve_with_z3(asked):
            return True
        for _, found in reversed(asked):
            for place in found:
                self._about[place].pop()
        return False

    def _solve_with_z3(self, asked: Iterable[tuple[Term, Iterable[int]]]) -> bool:
        """Let z3 satisfy relations and all others that share their numbers; else return False without a
        change.
        """
        # Import z3 lazily, because most programs do not need it.
        from opsieve.gen.strategies.nnsmith.solving import find_solution

        relations = {id(term): term for term, _ in asked}
        ends: dict[int, tuple[int, int]] = {}
        waiting = [place for _, found in asked for place in sorted(found)]
        while waiting:
            place = waiting.pop()
            if place not in ends:
                ends[place] = self._ends[place]
                for term in self._about[place]:
                    if id(term) not in relations:
                        relations[id(term)] = term
                        waiting += sorted(places(term))
        numbers = find_solution([*relations.values()], ends)
        for place, number in (numbers or {}).items():
            self._numbers[place] = number
        return numbers is not None

    def count_numbers(self) -> int:
        """Return how many numbers there are, for a later `forget`."""
        return len(self._binned)

    def forget_after(self, mark: int) -> None:
        """Stop spreading the numbers added after the mark, because they are unused."""
        del self._binned[mark:]

    def spread_numbers(self, rng: Rng) -> None:
        """Move every number into a drawn part of a drawn bin, as many as possible together (Algorithm 2)."""
        if not rng.bins:
            return
        for binned in rng.shuffle_items(self._binned):
            (low, high), place = _draw_bin(binned, rng), binned.place
            there = self._numbers[place]
            wanted = rng.between(low, high)
            # A full move may break other relations that half of it keeps.
            for _ in range(0 if low <= there <= high else _HALVED):
                self._numbers[place] = wanted
                if self._repair(self._list_broken(place), _BIN_MOVES, place):
                    break
                self._numbers[place] = there
                wanted = (wanted + there) // 2

    def get_value(self, size: Size) -> int:
        """Return the number of a size."""
        return int(value(size, self._numbers))

    def _list_broken(self, place: int) -> list[Term]:
        """List the relations about a number that do not hold."""
        return [term for term in self._about[place] if not value(term, self._numbers)]

    def _repair(self, broken: list[Term], moves: int, fixed: int) -> bool:
        """Satisfy relations by moving other numbers than the fixed one; else return False without a
        change.
        """
        numbers, before = self._numbers, list(self._numbers) if broken else []
        moved = [0] * len(numbers)
        while broken:
            moves -= 1
            best, least = None, math.inf
            for place, wanted in _list_moves(broken[0], True, numbers) if moves >= 0 else ():
                low, high = self._ends[place]
                there, wanted = numbers[place], min(max(wanted, low), high)
                if place == fixed or wanted == there:
                    continue
                worse = _AGAIN * moved[place]
                numbers[place] = wanted
                worse += len(self._list_broken(place))
                numbers[place] = there
                if worse < least:
                    best, least = (place, wanted), worse
            if best is None:
                numbers[:] = before
                return False
            place, numbers[place] = best
            moved[place] += 1
            about = set(map(id, self._about[place]))
            broken = [*self._list_broken(place), *(term for term in broken if id(term) not in about)]
        return True


def _list_moves(relation: Any, wanted: bool, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers to change, with new values that make a relation hold (or fail)."""
    if not isinstance(relation, Term):
        return
    op, args = relation.op, relation.args
    if op in (OR, AND):
        for arg in args:
            yield from _list_moves(arg, wanted, numbers)
        return
    one, other = value(args[0], numbers), value(args[1], numbers)
    if op in ("==", "!="):
        off = 0 if (op == "==") is wanted else 1
        yield from _list_moves_towards(args[0], other + off, numbers)
        yield from _list_moves_towards(args[1], one + off, numbers)
    elif wanted:
        off = op == "<"
        yield from _list_moves_towards(args[0], other - off, numbers)
        yield from _list_moves_towards(args[1], one + off, numbers)
    else:
        off = op == "<="
        yield from _list_moves_towards(args[0], other + off, numbers)
        yield from _list_moves_towards(args[1], one - off, numbers)


def _list_moves_towards(term: Any, wanted: int, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers to change, with new values that give a term a value."""
    if not isinstance(term, Term):
        return
    op, args = term.op, term.args
    if op == NUMBER:
        yield args[0], wanted
        return
    if op == IF:
        chosen = value(args[0], numbers)
        yield from _list_moves_towards(args[1] if chosen else args[2], wanted, numbers)
        yield from _list_moves(args[0], not chosen, numbers)
        return
    one, other = value(args[0], numbers), value(args[1], numbers)
    if op == "+":
        yield from _list_moves_towards(args[0], wanted - other, numbers)
        yield from _list_moves_towards(args[1], wanted - one, numbers)
    elif op == "-":
        yield from _list_moves_towards(args[0], wanted + other, numbers)
        yield from _list_moves_towards(args[1], one - wanted, numbers)
    elif op == "*":
        for arg, factor in ((args[0], other), (args[1], one)):
            if factor:
                yield from _list_moves_towards(arg, wanted // factor, numbers)
    elif op == "//":
        yield from _list_moves_towards(args[0], wanted * other + one % other, numbers)
    elif op == "%":
        yield from _list_moves_towards(args[0], one - one % other + wanted, numbers)


def _draw_bin(binned: BinnedNumber, rng: Rng) -> tuple[int, int]:
    """Draw the ends of a part of one of a number's bins (Algorithm 2, SampleFromBin), or of a whole
    open bin.
    """
    low, high = binned.low, binned.high
    if binned.own and rng.random() < len(binned.own) / (len(binned.own) + 2):
        number = rng.choice(binned.own)
        return number, number
    top = min(rng.bins, max(high, 1).bit_length())
    bottom = max(low, 1).bit_length()
    place = rng.between(bottom, max(top, bottom))
    if place == rng.bins:
        return min(1 << (place - 1), high), high
    ends = sorted(math.floor(2 ** (place - 1 + rng.random())) for _ in range(2))
    return min(max(ends[0], low), high), max(min(ends[1], high), low)


# z3's units: about a tenth of a second
_WORK = 300_000
# z3 has Python's operators, but for the quotient of whole numbers, which is its `/`.
_MAKERS = {**COMPUTED, "//": operator.truediv, IF: z3.If, OR: z3.Or, AND: z3.And}


def find_solution(relations: Sequence[Term], ends: Mapping[int, tuple[int, int]]) -> dict[int, int] | None:
    """Find a number for each place of `ends`, between its ends, so that all relations hold; None if z3 finds
    none.
    """
    # A context of its own: z3's global one keeps state, and answers would depend on earlier questions.
    context = z3.Context()
    solver = z3.SimpleSolver(ctx=context)
    # Not "timeout": a limit in units of work makes the same program on every machine.
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
