"""The passes that belong to a program: fewer of them, and without arguments."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from opsieve.reducer.engine.census import Part
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmSubject


def pass_parts(subject: TvmSubject) -> Iterator[Part[TvmSubject]]:
    """Each application of a pass, and each argument."""
    passes = subject.program.passes
    for item in dict.fromkeys(passes):
        yield from (Part("passes", f"{item} {turn}") for turn in range(passes.count(item)))
        if ":" in item and not item.startswith("="):
            yield Part("arguments", item)


def shorten_passes(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Drop single passes, the last first; then each argument."""
    for item in dict.fromkeys(reversed(subject.program.passes)):
        many = subject.program.passes.count(item)
        for turn in range(many):
            label = f"drop the pass {item}" + (f" ({turn + 1} of {many})" if many > 1 else "")
            yield Edit(label, frozenset([f"{item} {turn}"]), partial(_without, item, turn))
    for item in dict.fromkeys(subject.program.passes):
        if ":" in item and not item.startswith("="):
            yield Edit(f"drop the argument of {item}", frozenset([item]), partial(_plain, item))


def _without(item: str, turn: int, subject: TvmSubject) -> TvmSubject | None:
    """Without the application of a pass that stands `turn` from the end."""
    places = [place for place, name in enumerate(subject.program.passes) if name == item]
    if not places:
        return None
    gone = places[-1 - min(turn, len(places) - 1)]
    left = tuple(name for place, name in enumerate(subject.program.passes) if place != gone)
    return TvmSubject(replace(subject.program, passes=left), subject.inputs)


def _plain(item: str, subject: TvmSubject) -> TvmSubject | None:
    if item not in subject.program.passes:
        return None
    passes = tuple(name.partition(":")[0] if name == item else name for name in subject.program.passes)
    return TvmSubject(replace(subject.program, passes=passes), subject.inputs)
