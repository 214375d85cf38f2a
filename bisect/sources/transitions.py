"""Every change in a sequence of outcomes: regressions, fixes and changes of symptom. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from opsieve.bisect.sources.outcome import VersionOutcome


@dataclass(frozen=True, slots=True)
class Transition:
    """A change between two versions that were looked at; `exact` when no version between them is unknown."""

    kind: Literal["regression", "fix", "symptom"]
    last_before: str
    first_after: str
    exact: bool
    before: str
    after: str


def transitions(versions: Sequence[str], seen: Sequence[VersionOutcome | None]) -> list[Transition]:
    """The changes among `versions`, oldest first; None and skipped ones say nothing."""
    found: list[Transition] = []
    last = -1
    for place, now in enumerate(seen):
        if now is None or now.state == "skip":
            continue
        then = seen[last] if last >= 0 else None
        if then is not None and (then.state, then.trait) != (now.state, now.trait):
            kind: Literal["regression", "fix", "symptom"] = "symptom"
            if then.state != now.state:
                kind = "regression" if now.state == "bad" else "fix"
            exact = place == last + 1
            found.append(Transition(kind, versions[last], versions[place], exact, then.symptom, now.symptom))
        last = place
    return found


def monotone(found: Sequence[Transition]) -> bool:
    """Whether the failure came or went once only."""
    return sum(item.kind != "symptom" for item in found) <= 1
