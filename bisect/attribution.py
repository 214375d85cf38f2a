"""Which optimiser passes cause a failure: levels first, then the smallest set of passes whose skipping cures it. Pure.

Two passes can mask each other (either alone causes the failure), so one at a time is not enough: the set is found by delta
debugging (Zeller and Hildebrandt 2002), and confirmed the other way round by running its passes with all others off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from opsieve.bisect.search import Answer

Blame = Literal["pass", "set", "not-a-pass", "unnamed", "does-not-fail"]


@dataclass(frozen=True, slots=True)
class Attribution:
    """`pass` or `set`: skipping `passes` cures the failure, and no smaller part of them does. `alone` are those of them that
    cause it with every other pass off. `not-a-pass`: it fails with all optimisation off. `unnamed`: optimisation causes it,
    but nothing that has a name. `levels` tells which optimisation levels fail.
    """

    answer: Blame
    passes: tuple[str, ...]
    alone: tuple[str, ...]
    levels: dict[str, str]
    probes: int


def attribute(
    levels: Sequence[str],
    passes: Sequence[str],
    hosts: Sequence[str],
    probe: Callable[[str, tuple[str, ...]], Answer],
) -> Attribution:
    """Ask `probe(level, disabled passes)` until the passes are known.

    `levels` go from none to most; `hosts` are passes that only contain others, tried when no single one is guilty.
    """
    asker = _Asker(probe)
    told = {level: asker(level, ()) for level in levels}
    named = {level: answer.value for level, answer in told.items()}
    failing = [level for level in levels if told[level] is Answer.BAD]
    if not failing:
        return Attribution("does-not-fail", (), (), named, asker.count)
    if failing[0] == levels[0]:
        return Attribution("not-a-pass", (), (), named, asker.count)
    level = failing[0]

    def cured(off: Sequence[str]) -> bool:
        return asker(level, tuple(sorted(off))) is Answer.GOOD

    for candidates in (tuple(passes), (*passes, *hosts)):
        if not cured(candidates):
            continue
        guilty = _smallest(candidates, cured)
        others = [name for name in passes if name not in guilty]
        alone = tuple(name for name in guilty if asker(level, tuple(sorted({*others, *guilty} - {name}))) is Answer.BAD)
        return Attribution("pass" if len(guilty) == 1 else "set", guilty, alone, named, asker.count)
    return Attribution("unnamed", (), (), named, asker.count)


class _Asker:
    """Remembers answers and counts the probes."""

    def __init__(self, probe: Callable[[str, tuple[str, ...]], Answer]):
        self._probe = probe
        self._known: dict[tuple[str, tuple[str, ...]], Answer] = {}

    @property
    def count(self) -> int:
        return len(self._known)

    def __call__(self, level: str, off: tuple[str, ...]) -> Answer:
        if (level, off) not in self._known:
            self._known[level, off] = self._probe(level, off)
        return self._known[level, off]


def _smallest(items: Sequence[str], cured: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """A part of `items` that cures, from which no single item can be left out."""
    kept, parts = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        smaller = next((chunk for chunk in chunks if len(chunk) < len(kept) and cured(chunk)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        rests = ([name for name in kept if name not in chunk] for chunk in chunks) if parts > 2 else iter(())
        rest = next((rest for rest in rests if rest and cured(rest)), None)
        if rest is not None:
            kept, parts = rest, max(parts - 1, 2)
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return tuple(kept)
