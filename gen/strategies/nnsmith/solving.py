"""Relations over symbolic sizes, solved with z3: numbers, the relations among them, bins that spread them, and their values.

One `Constraints` serves one program and has a z3 context of its own, so that answers depend on what was asked of it and on nothing
that was solved before in the process. Each check has a limit in z3's own units of work rather than seconds: it ends, and ends the same
way on every machine.

Sources: NNSmith (ASPLOS 2023), section 3.2, Algorithm 1 (`Solve`) and Algorithm 2 (attribute binning), and the special bins of section 4.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from opsieve.gen.spec.rng import Rng
from opsieve.gen.spec.symbolic_arith import Size, Truth

_WORK = 300_000  # z3's units for one check: about a tenth of a second
_BIN_CHECKS = 24  # for the bins of one program
_FAR = 1 << 20


@dataclass(frozen=True, slots=True)
class BinnedNumber:
    """A number to be spread over bins: where it may lie, and single values that have a bin of their own (0 for a padding)."""

    term: Any
    low: int
    high: int
    own: tuple[int, ...] = ()


class Constraints:
    """What the sizes of one program must satisfy. Relations are only kept when they can hold together with all before."""

    def __init__(self) -> None:
        self._context = z3.Context()
        self._solver = z3.SimpleSolver(ctx=self._context)
        self._solver.set("rlimit", _WORK)
        self._binned: list[BinnedNumber] = []
        self._count = 0
        self._model: Any = None
        self.checks = 0

    def number(self, low: int, high: int = _FAR, own: tuple[int, ...] = (), spread: bool = True) -> Size:
        """A new number from `low` to `high`; `own` values get bins of their own, and one that is not `spread` gets none."""
        term = z3.Int(f"n{self._count}", self._context)
        self._count += 1
        self._assert(term >= low)
        if high < _FAR:
            self._assert(term <= high)
        if spread:
            self._binned.append(BinnedNumber(term, low, high, own))
        self._model = None
        return term

    def hold(self, relations: Iterable[Truth]) -> bool:
        """Take relations in when all can hold; else False, and nothing has changed. A check that takes too long counts as no."""
        terms = []
        for relation in relations:
            if isinstance(relation, bool):
                if not relation:
                    return False
                continue
            simple = z3.simplify(relation)
            if z3.is_false(simple):
                return False
            if not z3.is_true(simple):
                terms.append(simple)
        return self._added(terms) if terms else True

    def _added(self, terms: Sequence[Any]) -> bool:
        self._solver.push()
        for term in terms:
            self._assert(term)
        self.checks += 1
        if self._solver.check() == z3.sat:
            self._model = self._solver.model()
            return True
        self._solver.pop()
        return False

    def _assert(self, term: Any) -> None:
        """Assert a relation that is a term of z3: `add` looks at what it is given for longer than all else takes."""
        z3.Z3_solver_assert(self._context.ref(), self._solver.solver, term.as_ast())

    def mark(self) -> int:
        """How many numbers there are, to `forget` the later ones."""
        return len(self._binned)

    def forget(self, mark: int) -> None:
        """Spread no number that came after the mark: nothing uses it."""
        del self._binned[mark:]

    def spread(self, rng: Rng) -> None:
        """Ask every number to lie in a drawn part of a drawn bin, as many of them as can be had together (Algorithm 2).

        Where all together cannot hold, NNSmith drops half of them at random; here each half is tried by itself, so more are kept.
        """
        if rng.bins:
            wanted = [found for binned in self._binned for found in [_bin(binned, rng)] if found]
            left = _BIN_CHECKS
            groups = [rng.shuffled(wanted)]
            while groups and left:
                group = groups.pop()
                left -= 1
                if group and not self._added([term for terms in group for term in terms]) and len(group) > 1:
                    half = len(group) // 2
                    groups += [group[half:], group[:half]]
        if self._model is None:
            self._added([])

    def value(self, size: Size) -> int:
        """The number that a size stands for, in the last solution."""
        if isinstance(size, int):
            return size
        return int(self._model.eval(size, model_completion=True).as_long())


def _bin(binned: BinnedNumber, rng: Rng) -> list[Any]:
    """Relations that put a number into a part of one of its bins (Algorithm 2, SampleFromBin); [] for the whole of a bin that is open."""
    term, low, high = binned.term, binned.low, binned.high
    if binned.own and rng.random() < len(binned.own) / (len(binned.own) + 2):
        return [term == rng.choice(binned.own)]
    top = min(rng.bins, max(high, 1).bit_length())
    bottom = max(low, 1).bit_length()
    place = rng.between(bottom, max(top, bottom))
    if place == rng.bins:
        return [term >= min(1 << (place - 1), high)]
    ends = sorted(math.floor(2 ** (place - 1 + rng.random())) for _ in range(2))
    return [term >= min(max(ends[0], low), high), term <= max(min(ends[1], high), low)]
