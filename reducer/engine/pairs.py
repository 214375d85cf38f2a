"""A second search at a fixpoint: two edits at once, each of which loses the failure alone.

Only edits that touch the same are paired: of pairs of any edits of the samples 2 of 1,327 kept the failure,
and these two were coupled.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from opsieve.reducer.engine.edit import Edit, Pass
from opsieve.reducer.engine.form import SubjectKind

S = TypeVar("S")
# Pairs of one subject: 1 of 716 and 0 of 181 that the samples had kept the failure
_MOST = 24


@dataclass
class PairsPass(Generic[S]):
    """Pairs of coupled single edits of other passes, as far as the budget goes: of each two dimensions in
    turn, the first edits first.

    `left` is how many pairs of the subject seen last were not made. Pairs that give the same candidate as
    another, or as a single edit, are left out.
    """

    form: SubjectKind[S]
    passes: Sequence[Pass[S]]
    most: int = _MOST
    left: int = 0
    name: str = "pairs"
    _seen: dict[str, tuple[list[Edit[S]], int]] = field(default_factory=dict)

    def edits(self, subject: S) -> Iterator[Edit[S]]:
        """The pairs, each an edit of its own; the same subject gives the same ones."""
        digest = self.form.digest(subject)
        if digest not in self._seen:
            self._seen = {digest: self._make_pairs(subject)}
        found, self.left = self._seen[digest]
        yield from found

    def _make_pairs(self, subject: S) -> tuple[list[Edit[S]], int]:
        singles = []
        for each in self.passes:
            made = [(edit, edit.apply(subject)) for edit in each.edits(subject)]
            singles.append([(edit, once) for edit, once in made if once is not None])
        known = {
            self.form.digest(subject),
            *(self.form.digest(once) for group in singles for _, once in group),
        }
        found: list[Edit[S]] = []
        products = [_products(*groups) for groups in itertools.combinations_with_replacement(singles, 2)]
        pairs = [pair for pair in _in_turn(products) if not pair[0][0].touches.isdisjoint(pair[1][0].touches)]
        for place, ((first, once), (second, _)) in enumerate(pairs):
            if len(found) == self.most:
                return found, len(pairs) - place
            twice = second.apply(once)
            if twice is None or not self.form.simpler(twice, subject):
                continue
            digest = self.form.digest(twice)
            if digest not in known:
                known.add(digest)
                found.append(_pair(first, second, subject, twice))
        return found, 0


_Single = tuple[Edit[S], S]


def _products(one: list[_Single[S]], other: list[_Single[S]]) -> Iterator[tuple[_Single[S], _Single[S]]]:
    """Every two edits of two dimensions once, those that stand first in both first."""
    if one is other:
        return iter(itertools.combinations(one, 2))
    places = sorted(itertools.product(range(len(one)), range(len(other))), key=sum)
    return ((one[a], other[b]) for a, b in places)


def _in_turn(
    groups: Sequence[Iterator[tuple[_Single[S], _Single[S]]]],
) -> Iterator[tuple[_Single[S], _Single[S]]]:
    """One of each group in turn, until all are empty."""
    waiting = deque(groups)
    while waiting:
        group = waiting.popleft()
        pair = next(group, None)
        if pair is not None:
            waiting.append(group)
            yield pair


def _pair(first: Edit[S], second: Edit[S], of: S, made: S) -> Edit[S]:
    def apply(subject: S) -> S | None:
        if subject is of:
            return made
        once = first.apply(subject)
        return None if once is None else second.apply(once)

    return Edit(f"{first.label}; {second.label}", first.touches | second.touches, apply)
