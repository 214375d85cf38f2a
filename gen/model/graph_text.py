"""A graph drawn as text: a node a line, the values that are still needed as rails to its left. Pure.

│      x  float32[1,3,8,8]
●      Pad → p
├─╮    (p is read twice)
"""

from collections.abc import Sequence
from dataclasses import dataclass

# Rails drawn; values beyond them are only named
_RAILS = 16


@dataclass(frozen=True, slots=True)
class Box:
    """A node, a graph input ("●" is "○" then) or an output: its label, its inputs and its outputs."""

    label: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sign: str = "●"


def draw_boxes(boxes: Sequence[Box]) -> list[tuple[str, str]]:
    """Draw a line for each box: its rails and its label. Boxes come in topological order."""
    left: dict[str, int] = {}
    for box in boxes:
        for name in box.inputs:
            left[name] = left.get(name, 0) + 1
    # The value of each rail, "" for a free one
    rails: list[str] = []
    lines: list[tuple[str, str]] = []
    for box in boxes:
        read = list(dict.fromkeys(name for name in box.inputs if name in rails))
        for name in box.inputs:
            left[name] -= 1
        joined = sorted(rails.index(name) for name in read)
        ended = {rails.index(name) for name in read if not left[name]}
        home = next((at for at in joined if at in ended), None)
        if home is None:
            # The first free rail, made if need be.
            if "" not in rails:
                rails.append("")
            home = rails.index("")
        made = [name for name in box.outputs if left.get(name)]
        places = [home, *_more_free(rails, ended - {home}, home, len(made) - 1)] if made else []
        lines.append((_line(rails, home, joined, ended, places[1:], box.sign), box.label))
        for at in ended:
            rails[at] = ""
        for at, name in zip(places, made, strict=False):
            rails[at] = name
        while rails and not rails[-1]:
            rails.pop()
    return lines


def _more_free(rails: list[str], ending: set[int], home: int, many: int) -> list[int]:
    """Further rails for a box of several outputs."""
    found: list[int] = []
    at = home + 1
    while len(found) < many:
        if at == len(rails):
            rails.append("")
        if not rails[at] and at not in ending:
            found.append(at)
        at += 1
    return found


def _line(
    rails: list[str], home: int, joined: list[int], ended: set[int], begun: Sequence[int], sign: str
) -> str:
    """The rails beside one box: `│` passes by, `╯` ends here, `┤` is read and goes on, `╮` begins here."""
    touched = {*joined, *begun, home}
    low, high = min(touched), max(touched)
    text = []
    for at in range(min(_RAILS, max(len(rails), high + 1))):
        if at == home:
            mark = sign
        elif at in begun:
            mark = "╮"
        elif at in joined:
            ends = at in ended
            mark = ("╯" if ends else "┤") if at > home else ("╰" if ends else "├")
        elif at < len(rails) and rails[at]:
            mark = "┼" if low < at < high else "│"
        else:
            mark = "─" if low < at < high else " "
        text.append(mark + ("─" if low <= at < high else " "))
    return "".join(text).rstrip() + ("…" if high >= _RAILS or len(rails) > _RAILS else "")
