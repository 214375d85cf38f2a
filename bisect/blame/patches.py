"""What commits changed, line by line, as git shows it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git import Repo

_MOST_PATCH = 32 << 20  # characters


@dataclass(frozen=True, slots=True)
class Patch:
    """`lines` are those added and removed, as (file, line with its sign), without blank ones; `places` the
    functions and classes that git names above its hunks, as (file, heading).
    """

    lines: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: frozenset[tuple[str, str]] = frozenset()


def read_patches(repository: "Repo", shas: Sequence[str]) -> dict[str, Patch]:
    """The patches of many commits by one call of git; an empty one where a partial clone lacks the
    contents.
    """
    found = dict.fromkeys(shas, Patch())
    if found:
        shown = repository.git.show("--format=%x00%H", "-U0", "--find-copies", *found, with_exceptions=False)
        for text in shown.split("\0")[1:]:
            sha, _, patch = text.partition("\n")
            found[sha] = _parsed(patch[:_MOST_PATCH])
    return found


def _parsed(patch: str) -> Patch:
    lines: Counter[tuple[str, str]] = Counter()
    places: set[tuple[str, str]] = set()
    file, head = "", True
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            file, head = line.rpartition(" b/")[2], True
        elif line.startswith("@@"):
            head = False
            places.add((file, line.split("@@", 2)[2].strip()))
        elif not head and line[:1] in ("+", "-") and line[1:].strip():
            lines[file, line[0] + line[1:].strip()] += 1
    return Patch(lines, frozenset(place for place in places if place[1]))
