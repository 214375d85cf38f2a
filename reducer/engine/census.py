"""The census of a subject: every part of it, with the results of the edits of that part alone.

A form lists the parts (`opsieve.reducer.onnx_edit.parts` lists those of ONNX models); passes say which parts
an edit simplifies. A part without a tried edit is listed with the reason, and the result is then not called
minimal.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from opsieve.reducer.engine.edit import Edit, Pass
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.interestingness import CheckResult

S = TypeVar("S")
_NO_EDIT = "no edit of it applies"
_NO_GAIN = "its plainest edit makes the whole no simpler"
_TOO_MUCH = "every edit of it rewrites more, which loses the failure by itself"


@dataclass(frozen=True)
class Part(Generic[S]):
    """One part of a subject, by the key that edits use.

    `simplest` says why it is already as simple as possible, "" where edits have to be tried. `edits` are the
    plainest ones, of this part alone; they are tried if no pass has an edit of it that loses the failure.
    """

    kind: str
    key: str
    simplest: str = ""
    edits: tuple[Edit[S], ...] = ()


Census = Callable[[S], Iterable[Part[S]]]


@dataclass(frozen=True)
class PartLine:
    """The results of the edits of one part; `why` says why they were not tried."""

    kind: str
    part: str
    gone: int = 0
    slippage: int = 0
    invalid: int = 0
    same: int = 0
    by_rewriting: int = 0
    why: str = ""
    simplest: bool = False

    @property
    def is_open(self) -> bool:
        """Return whether the part could be simpler and its edits were not tried."""
        return bool(self.why) and not self.simplest


@dataclass(frozen=True)
class SingleResult(Generic[S]):
    """The result of one edit of one pass."""

    dimension: Pass[S]
    edit: Edit[S]
    result: CheckResult


def try_singles(engine: Engine[S], passes: Iterable[Pass[S]]) -> Iterator[SingleResult[S]]:
    """Try every edit of these passes alone on the best subject, and yield the results."""
    for each in passes:
        engine.dimension = each.name
        engine.refresh()
        for edit in each.edits(engine.best):
            # None: the edit does not apply to this subject, or gives none that is simpler.
            if (result := engine.single(edit)) is not None:
                yield SingleResult(each, edit, result)


def improve_untried(engine: Engine[S], passes: Sequence[Pass[S]], census: Census[S]) -> bool:
    """Try the plainest edits of parts for which no edit of a pass loses the failure, and accept those that
    keep it; returns whether any does.
    """
    # The passes first, because their edits also serve the certificate; the plainest edits only fill its gaps.
    known = _by_part(try_singles(engine, passes))
    engine.dimension = "census"
    parts = list(census(engine.best))
    gains = sum(
        engine.improve(edit.apply(engine.best), edit.label)
        for part in parts
        for edit in _list_wanted(part, known)
    )
    return gains > 0


def census_lines(
    engine: Engine[S], singles: Iterable[SingleResult[S]], census: Census[S]
) -> tuple[PartLine, ...]:
    """Return a line for each part of the best subject; `singles` are the results of the passes' edits."""
    known = _by_part(singles)
    engine.dimension = "census"
    return tuple(_line(engine, part, known) for part in census(engine.best))


def _outcome(result: CheckResult) -> str:
    """Return the kind of a result; an edit that rewrites too much does not count for its part."""
    return "by_rewriting" if result.by_rewriting else result.kind


def _by_part(singles: Iterable[SingleResult[S]]) -> dict[str, Counter[str]]:
    """Count the results of edits by the parts that they simplify."""
    found: dict[str, Counter[str]] = {}
    for single in singles:
        for part in single.edit.simplifies:
            found.setdefault(part, Counter())[_outcome(single.result)] += 1
    return found


def _list_wanted(part: Part[S], known: Mapping[str, Counter[str]]) -> tuple[Edit[S], ...]:
    # One edit that loses the failure proves that the part is needed.
    return () if part.simplest or known.get(part.key, Counter())["gone"] else part.edits


def _line(engine: Engine[S], part: Part[S], known: Mapping[str, Counter[str]]) -> PartLine:
    counts, is_plain = Counter(known.get(part.key, Counter())), False
    for edit in _list_wanted(part, known):
        candidate = edit.apply(engine.best)
        # An edit that does not apply counts as tried: shape inference refuses its candidate.
        if candidate is None:
            counts["invalid"] += 1
        elif (result := engine.single(edit)) is None:
            is_plain = True
        else:
            counts[_outcome(result)] += 1
    why = part.simplest
    if not why and not any(counts[kind] for kind in ("gone", "slippage", "invalid", "same")):
        why = _TOO_MUCH if counts["by_rewriting"] else _NO_GAIN if is_plain else _NO_EDIT
    return PartLine(part.kind, part.key, **counts, why=why, simplest=bool(part.simplest) or why == _NO_GAIN)
