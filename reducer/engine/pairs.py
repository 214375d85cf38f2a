"""A second search at a fixpoint: two edits at once, each of which loses the failure alone.

Only edits that touch the same are paired: of pairs of any edits of the samples 2 of 1,327 kept the failure,
and these two were coupled.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from opsieve.reducer.engine.edit import Edit, Pass
from opsieve.reducer.engine.form import SubjectKind

S = TypeVar("S")
# The most pairs of one subject. Few pairs pay: of the samples' pairs, 1 of 716 and 0 of 181 kept the failure.
_MOST = 24


@dataclass
class PairsPass(Generic[S]):
    """Pairs of coupled single edits of other passes, as far as the budget goes, the first edits of
    each dimension first.

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
        """Yield the pairs, each as one edit; the same subject gives the same pairs."""
        digest = self.form.digest(subject)
        if digest not in self._seen:
            self._seen = {digest: self._make_pairs(subject)}
        found, self.left = self._seen[digest]
        yield from found

    def _make_pairs(self, subject: S) -> tuple[list[Edit[S]], int]:
        singles = [
            (place, edit, once)
            for each in self.passes
            for place, edit in enumerate(each.edits(subject))
            if (once := edit.apply(subject)) is not None
        ]
        known = {self.form.digest(subject), *(self.form.digest(once) for _, _, once in singles)}
        found: list[Edit[S]] = []
        # Those that stand first in their dimensions come first.
        pairs = sorted(itertools.combinations(singles, 2), key=lambda pair: pair[0][0] + pair[1][0])
        pairs = [pair for pair in pairs if not pair[0][1].touches.isdisjoint(pair[1][1].touches)]
        for place, ((_, first, once), (_, second, _)) in enumerate(pairs):
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


def _pair(first: Edit[S], second: Edit[S], of: S, made: S) -> Edit[S]:
    def apply(subject: S) -> S | None:
        # Computed already when the pairs were chosen.
        if subject is of:
            return made
        once = first.apply(subject)
        return None if once is None else second.apply(once)

    return Edit(f"{first.label}; {second.label}", first.touches | second.touches, apply)
