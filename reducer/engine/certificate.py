"""Run an engine to a fixpoint, and certify the fixpoint."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from opsieve.reducer.engine.census import Census, PartLine, census_lines, try_singles
from opsieve.reducer.engine.edit import Pass
from opsieve.reducer.engine.engine import Engine

S = TypeVar("S")
# A backstop only. Every gain makes the subject simpler, so a fixpoint exists; `certify` says whether it was
# reached.
_MAX_ROUNDS = 40


@dataclass(frozen=True)
class CertificateLine:
    """One dimension: how many edits are left, and their results; minimal if `same` is 0."""

    name: str
    edits: int
    gone: int
    slippage: int
    invalid: int
    by_rewriting: int = 0


def to_fixpoint(engine: Engine[S], passes: Sequence[Pass[S]]) -> None:
    """Sweep the passes until all of them stop gaining.

    A failed edit is tried again only after a change to something that it touches, and once more at the end:
    `certify` proves the remaining result.
    """
    for _ in range(_MAX_ROUNDS):
        gained = [engine.sweep(each, retry=False) for each in passes]
        if not any(gained):
            gained = [engine.sweep(each) for each in passes]
            if not any(gained):
                return


@dataclass(frozen=True)
class Certificate:
    """The results of all remaining edits, by dimension and by part.

    `beaten` says whether one of them keeps the failure. It is not `complete` if a budget was spent before
    all of them were tried.
    """

    lines: tuple[CertificateLine, ...] = ()
    parts: tuple[PartLine, ...] = ()
    beaten: bool = False
    complete: bool = True

    @property
    def minimal(self) -> bool:
        """Return whether every part was tried and every remaining single edit loses the failure."""
        return self.complete and not self.beaten and not any(part.is_open for part in self.parts)


def certify(engine: Engine[S], passes: Iterable[Pass[S]], census: Census[S] = lambda _: ()) -> Certificate:
    """Try every edit that is left in every dimension, then those of parts that no dimension has tried."""
    passes = list(passes)
    singles = list(try_singles(engine, passes))
    lines = []
    for each in passes:
        own = [single.result for single in singles if single.dimension is each]
        kinds = Counter(result.kind for result in own)
        counts = (kinds["gone"], kinds["slippage"], kinds["invalid"])
        rewriting = sum(result.by_rewriting for result in own)
        lines.append(CertificateLine(each.name, kinds.total(), *counts, rewriting))
    parts = census_lines(engine, singles, census)
    beaten = any(single.result.kind == "same" for single in singles) or any(part.same for part in parts)
    return Certificate(tuple(lines), parts, beaten)
