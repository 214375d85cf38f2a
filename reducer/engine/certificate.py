"""The drive of an engine to a fixpoint, and the proof that it is one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from opsieve.reducer.engine.edit import Pass
from opsieve.reducer.engine.engine import Engine

S = TypeVar("S")
_MAX_ROUNDS = 40


@dataclass(frozen=True)
class CertificateLine:
    """One dimension: how many single edits are left, and what became of them; minimal when none is `same`."""

    name: str
    edits: int
    gone: int
    slippage: int
    invalid: int


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
    """Every single edit that is left in every dimension, tried; whether none of them keeps the failure."""
    lines = []
    minimal = True
    for each in passes:
        engine.dimension = each.name
        engine.refresh()
        kinds = [result.kind for edit in each.edits(engine.best) if (result := engine.single(edit)) is not None]
        minimal = minimal and "same" not in kinds
        counts = (kinds.count("gone"), kinds.count("slippage"), kinds.count("invalid"))
        lines.append(CertificateLine(each.name, len(kinds), *counts))
    return tuple(lines), minimal
