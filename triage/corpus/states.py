"""The states of the cases of a corpus: a verdict compared with the recorded one."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from opsieve.backends.releases.installers import release_key
from opsieve.backends.target import Target
from opsieve.backends.verdict import FAILING, JUDGED
from opsieve.gen.errors import BadInput

State = Literal["newly-failing", "changed", "still-failing", "fixed", "passing", "not-judged"]
STATES: tuple[State, ...] = ("newly-failing", "changed", "still-failing", "fixed", "passing", "not-judged")
# The states that give exit code 1
FAIL_ON: Mapping[str, frozenset[State]] = {
    "new": frozenset(["newly-failing", "changed"]),
    "any": frozenset(["newly-failing", "changed", "still-failing"]),
    "none": frozenset(),
}


# What others wrote is printed in lines that a person reads.
Word = Annotated[str, msgspec.Meta(max_length=2000)]


@dataclass(frozen=True, slots=True)
class SeenVerdict:
    """A recorded verdict of a target: the keys of `opsieve run --json` that are compared and shown."""

    verdict: Word
    kind: Word | None = None
    stage: Word | None = None
    fingerprint: Word = ""
    version: Word = ""

    @property
    def words(self) -> str:
        """The verdict for a person: `fail (crash at compile)`."""
        if self.verdict != "fail":
            return self.verdict
        return f"fail ({self.kind or 'failure'} at {self.stage or 'an unknown stage'})"


@dataclass(frozen=True, slots=True)
class CorpusResult:
    """A case on a target now and before. `target` is "" and `refused` true for an unusable case."""

    case: str
    target: str
    state: State
    before: SeenVerdict | None = None
    after: SeenVerdict | None = None
    reason: str = ""
    seconds: float = 0.0
    refused: bool = False

    @property
    def sentence(self) -> str:
        """The result for a person."""
        if self.after is None or self.state == "not-judged":
            return self.reason or "not judged"
        was = f", was {self.before.words}" if self.before is not None and self.before != self.after else ""
        reason = self.reason.removeprefix(f"{self.target} ")
        return f"{self.after.words}{was}" + (
            f": {reason}" if reason and self.after.verdict in FAILING else ""
        )


def make_result(
    case: str,
    target: str,
    records: Mapping[str, SeenVerdict],
    after: SeenVerdict,
    reason: str = "",
    seconds: float = 0.0,
) -> CorpusResult:
    """Make the result of a case with its state; `records` are its earlier verdicts by target."""
    before = _find_record(records, target, after)
    return CorpusResult(case, target, _choose_state(before, after), before, after, reason, seconds)


def count_states(results: Iterable[CorpusResult]) -> dict[str, int]:
    """Count the results in each state, all states in order."""
    found = Counter(result.state for result in results)
    return {state: found[state] for state in STATES}


def list_facts(results: Iterable[CorpusResult]) -> list[dict[str, Any]]:
    """Return the results as `--json` prints them (docs/reference/json.md)."""
    return [
        {
            "case": result.case,
            "target": result.target,
            "state": result.state,
            "before": get_verdict_facts(result.before),
            "after": get_verdict_facts(result.after),
            "reason": result.reason,
            "seconds": result.seconds,
            "refused": result.refused,
        }
        for result in results
    ]


def get_verdict_facts(seen: SeenVerdict | None) -> dict[str, Any] | None:
    """Return the keys of a verdict in `--json`."""
    if seen is None:
        return None
    return {name: getattr(seen, name) for name in ("verdict", "kind", "stage", "fingerprint", "version")}


def _find_record(records: Mapping[str, SeenVerdict], target: str, after: SeenVerdict) -> SeenVerdict | None:
    """Return the record with which a verdict is compared: the compiler's last known state before the judged
    version.

    Only records of the same compiler that say `pass`, `fail` or `flaky` count, in this order:

    1. Records with the same options, before records with others.
    2. The nearest earlier release, the release itself included. Installed versions and builds stand at the
    version that they state; one without a version is newer than every release, and its record is used if the
    target is the same.
    3. If only later releases are on record, the nearest later one: a failure that it shows is known, and an
    older release that fails although it passes fails newly, because that failure is unrecorded.
    4. Of records of one version that of the same target, then one of the same failure, then a pass.

    So a failing release whose last recorded predecessor passes is never still failing, whatever older
    releases did.
    """
    asked = _parse_target(target)
    known = ((text, _parse_target(text), seen) for text, seen in records.items() if seen.verdict in JUDGED)
    alike = [record for record in known if record[1].backend == asked.backend]
    places = {text: get_place(recorded, seen) for text, recorded, seen in alike}
    order = sorted({place for place in places.values() if place is not None})
    here = get_place(asked, after)
    now = len(order) - 1 if here is None else bisect_right(order, here) - 1

    def rank(record: tuple[str, Target, SeenVerdict]) -> tuple[bool, int, int, bool, bool, bool]:
        text, recorded, seen = record
        place = places[text]
        at = order.index(place) if place is not None else now if text == target else len(order) + now
        later = (place is None and text != target) or at > now
        unlike = seen.fingerprint != after.fingerprint
        return (
            recorded.options != asked.options,
            later,
            abs(now - at),
            text != target,
            unlike,
            seen.verdict != "pass",
        )

    return min(alike, key=rank)[2] if alike else None


def _parse_target(text: str) -> Target:
    """Parse the target of a record; an invalid one counts as a compiler of its own."""
    try:
        return Target.parse(text)
    except BadInput:
        return Target(text)


def get_place(target: Target, seen: SeenVerdict) -> tuple[object, ...] | None:
    """Return the place of a release in the order of versions, or None for a build without a version."""
    try:
        return release_key(target.release or seen.version)
    except BadInput:
        return None


def _choose_state(before: SeenVerdict | None, after: SeenVerdict) -> State:
    if after.verdict == "pass":
        return "fixed" if before is not None and before.verdict == "fail" else "passing"
    if after.verdict not in FAILING:
        return "not-judged"
    if before is None or before.verdict not in FAILING:
        return "newly-failing"
    # Which has no fingerprint
    if "flaky" in (before.verdict, after.verdict):
        return "still-failing" if before.kind == after.kind else "changed"
    return "still-failing" if before.fingerprint == after.fingerprint else "changed"
