"""Dimensions made smaller by classes that change together: batch, channels, spatial sizes, lengths."""

from collections.abc import Iterator
from functools import partial
from typing import TypeVar

from opsieve.gen.irs.edits import ProgramEdits
from opsieve.gen.irs.view import SizeClass
from opsieve.reducer.engine.edit import Edit

S = TypeVar("S")


def shrink_dimensions(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Shrink every class of dimensions: all of them to 1 before any to 2, then to 3, to half, by one, those
    with most elements first; then to the last element, and to all but the first.
    """
    found = edits.view(subject).sizes()
    rounds = [_targets(each.size) for each in found]
    for turn in range(max(map(len, rounds), default=0)):
        for each, targets in zip(found, rounds, strict=True):
            if turn < len(targets):
                yield _edit(edits, each, targets[turn])
    for each in found:
        # What matters may stand behind.
        for target in dict.fromkeys((1, each.size - 1)) if each.is_held else ():
            yield _edit(edits, each, target, keep_last=True)


def _edit(edits: ProgramEdits[S], sizes: SizeClass, target: int, keep_last: bool = False) -> Edit[S]:
    label = f"shrink {sizes.label} from {sizes.size} to {'the last ' if keep_last else ''}{target}"
    change = partial(edits.resize, sizes=sizes, size=target, keep_last=keep_last)
    return Edit(label, sizes.touches, change)


def _targets(size: int) -> list[int]:
    return [target for target in dict.fromkeys((1, 2, 3, size // 2, size - 1)) if 0 < target < size]
