"""How others group failures, as their sources have it: each a function of failures that gives a key for every
one.

- ClusterFuzz (src/clusterfuzz/_internal/crash_analysis: stacktraces, crash_comparer): a state of the three
  innermost functions, the message where there is no stack; states are alike when equal, when two of the three
  are the same in order, or when their lines are more than 0.8 alike on average (Levenshtein over both
  lengths); groups by single link.
- CASR (libcasr: stacktrace.rs, cluster.rs): the position dependent measure of ReBucket (a = 0.04, r = 0.13),
  complete link, cut at a distance of 0.3.
- Sentry (grouping, "newstyle"): the application's frames, by file and function, exactly; exception and
  message, with numbers and quoted text replaced, only where there is no stack.
- raw: the message as it is.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import LCSseq, Levenshtein

_NUMBER = re.compile(r"0x[0-9a-f]++|\d++")
_QUOTED = re.compile(r"'[^'\n]*+'|\"[^\"\n]*+\"")
_STATE = 3
_ALIKE = 0.8
_NEAR, _SHIFT, _CUT = 0.04, 0.13, 0.3


@dataclass(frozen=True)
class Shown:
    """What a failure shows: frames innermost first, as `file function`; exception and message."""

    backend: str
    frames: tuple[str, ...]
    exception: str
    message: str


def raw(failures: Sequence[Shown]) -> list[str]:
    """Equal exceptions and messages."""
    return [f"{one.backend} {one.exception} {one.message}" for one in failures]


def exception_and_frames(failures: Sequence[Shown]) -> list[tuple[str, ...]]:
    """Equal exceptions and equal three innermost frames of installed packages; the message where there are
    none.
    """
    return [(one.backend, one.exception, *(one.frames[:_STATE] or (one.message,))) for one in failures]


def sentry(failures: Sequence[Shown]) -> list[str]:
    """Equal frames; equal messages where there are none."""
    return [
        " < ".join((one.backend, *one.frames))
        if one.frames
        else f"{one.backend} {one.exception} {_NUMBER.sub('N', _QUOTED.sub('S', one.message))}"
        for one in failures
    ]


def clusterfuzz(failures: Sequence[Shown]) -> list[int]:
    """Similar states, single link."""
    states = [
        (one.backend, one.exception, *(one.frames[:_STATE] or (_NUMBER.sub("NUMBER", one.message[:80]),)))
        for one in failures
    ]
    distinct = list(dict.fromkeys(states))
    group = list(range(len(distinct)))

    def root(at: int) -> int:
        while group[at] != at:
            at = group[at]
        return at

    for at, one in enumerate(distinct):
        for before in range(at):
            if one[:2] == distinct[before][:2] and _states_alike(one[2:], distinct[before][2:]):
                group[root(at)] = root(before)
    place = {state: root(at) for at, state in enumerate(distinct)}
    return [place[state] for state in states]


def _states_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    if LCSseq.similarity(one, other) >= 2:
        return True
    ratios = [
        1 - Levenshtein.distance(a, b) / max(len(a) + len(b), 1) for a, b in zip(one, other, strict=False)
    ]
    return bool(ratios) and sum(ratios) / len(ratios) > _ALIKE


def casr(failures: Sequence[Shown]) -> list[int]:
    """Complete link over the position dependent measure of whole stacks; those without a stack by their
    message.
    """
    stacks = [(one.backend, *(one.frames or (one.message[:80],))) for one in failures]
    distinct = list(dict.fromkeys(stacks))
    groups: list[list[int]] = [[at] for at in range(len(distinct))]
    far = [[1.0 - _measure(a, b) for b in distinct] for a in distinct]
    between = [row[:] for row in far]
    alive = set(range(len(distinct)))
    while len(alive) > 1:
        best, one, other = min((between[a][b], a, b) for a in alive for b in alive if a < b)
        if best >= _CUT:
            break
        groups[one] += groups[other]
        alive.discard(other)
        for third in alive - {one}:
            between[one][third] = between[third][one] = max(between[one][third], between[other][third])
    place = {distinct[at]: number for number in alive for at in groups[number]}
    return [place[stack] for stack in stacks]


def _measure(one: Sequence[str], other: Sequence[str]) -> float:
    """The similarity of ReBucket (Dang and others, ICSE 2012, section 3.2): the best alignment of equal
    frames, 0 to 1.
    """
    if one[0] != other[0]:
        return 0.0
    a, b = one[1:], other[1:]
    best = [0.0] * (len(b) + 1)
    for i, frame in enumerate(a):
        corner = 0.0
        for j, against in enumerate(b):
            hit = corner + math.exp(-_NEAR * min(i, j) - _SHIFT * abs(i - j)) if frame == against else 0.0
            corner = best[j + 1]
            best[j + 1] = max(best[j + 1], best[j], hit)
    most = sum(math.exp(-_NEAR * i) for i in range(min(len(a), len(b))))
    return best[-1] / most if most else 0.0


RULES: Mapping[str, Callable[[Sequence[Shown]], Sequence[object]]] = {
    "ClusterFuzz (top 3, 0.8)": clusterfuzz,
    "CASR (PDM, 0.3)": casr,
    "Sentry-like": sentry,
    "exception and top 3": exception_and_frames,
    "raw text": raw,
}
