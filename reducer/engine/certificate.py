"""The drive of an engine to a fixpoint, and the proof that it is one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from opsieve.reducer.engine.edit import Pass
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.pairs import PairsPass

S = TypeVar("S")
_MAX_ROUNDS = 40


@dataclass(frozen=True)
class CertificateLine:
    """One dimension: how many edits are left, and what became of them; minimal when none is `same`. `untried`: pairs beyond the budget."""

    name: str
    edits: int
    gone: int
    slippage: int
    invalid: int
    untried: int = 0


def to_fixpoint(engine: Engine[S], passes: Sequence[Pass[S]]) -> None:
    """Sweep the passes until none gains.

    What failed is tried again only when something that it touches has changed; and once more at the end, all of it: what is
    left then is what `certify` proves.
    """
    for _ in range(_MAX_ROUNDS):
        gained = [engine.sweep(each, retry=False) for each in passes]
        if not any(gained):
            gained = [engine.sweep(each) for each in passes]
            if not any(gained):
                return


def certify(engine: Engine[S], passes: Iterable[Pass[S]]) -> tuple[tuple[CertificateLine, ...], bool]:
    """Every edit that is left in every dimension, tried; whether none of them keeps the failure."""
    lines = []
    minimal = True
    for each in passes:
        engine.dimension = each.name
        engine.refresh()
        kinds = [result.kind for edit in each.edits(engine.best) if (result := engine.single(edit)) is not None]
        minimal = minimal and "same" not in kinds
        counts = (kinds.count("gone"), kinds.count("slippage"), kinds.count("invalid"))
        untried = each.left if isinstance(each, PairsPass) else 0
        lines.append(CertificateLine(each.name, len(kinds), *counts, untried))
    return tuple(lines), minimal
