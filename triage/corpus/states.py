"""What became of the cases of a corpus: a verdict beside the one that was seen before."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["newly-failing", "changed", "still-failing", "fixed", "passing", "not-judged"]
STATES: tuple[State, ...] = ("newly-failing", "changed", "still-failing", "fixed", "passing", "not-judged")
FAIL_ON: Mapping[str, frozenset[State]] = {
    "new": frozenset(["newly-failing", "changed"]),
    "any": frozenset(["newly-failing", "changed", "still-failing"]),
    "none": frozenset(),
}
_BACKEND_ENDS = re.compile(r"==|@|:")


@dataclass(frozen=True, slots=True)
class SeenVerdict:
    """What a target made of a case: the keys of `opsieve run --json` that are compared and shown."""

    verdict: str
    kind: str | None = None
    stage: str | None = None
    fingerprint: str = ""
    version: str = ""

    @property
    def words(self) -> str:
        """For a person: `fail (crash at compile)`."""
        if self.verdict != "fail":
            return self.verdict
        return f"fail ({self.kind or 'failure'} at {self.stage or 'an unknown stage'})"


@dataclass(frozen=True, slots=True)
class CorpusResult:
    """A case on a target now and before. `target` is "" and `refused` true for a case that could not be used at all."""

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
        """What happened, for a person."""
        if self.after is None or self.state == "not-judged":
            return self.reason or "not judged"
        was = f", was {self.before.words}" if self.before is not None and self.before != self.after else ""
        reason = self.reason.removeprefix(f"{self.target} ")
        return f"{self.after.words}{was}" + (f": {reason}" if reason and self.after.verdict == "fail" else "")


def replayed(
    case: str,
    target: str,
    records: Mapping[str, SeenVerdict],
    after: SeenVerdict,
    reason: str = "",
    seconds: float = 0.0,
) -> CorpusResult:
    """A case with its state; `records` are what was seen of it before, by target."""
    before = _before(records, target, after)
    return CorpusResult(case, target, _state(before, after), before, after, reason, seconds)


def counts(results: Iterable[CorpusResult]) -> dict[str, int]:
    """How many have which state, all states in order."""
    found = Counter(result.state for result in results)
    return {state: found[state] for state in STATES}


def facts(results: Iterable[CorpusResult]) -> list[dict[str, Any]]:
    """The results as `--json` prints them (docs/reference/json.md)."""
    return [
        {
            "case": result.case,
            "target": result.target,
            "state": result.state,
            "before": verdict_facts(result.before),
            "after": verdict_facts(result.after),
            "reason": result.reason,
            "seconds": result.seconds,
            "refused": result.refused,
        }
        for result in results
    ]


def verdict_facts(seen: SeenVerdict | None) -> dict[str, Any] | None:
    """The keys of a verdict in `--json`."""
    if seen is None:
        return None
    return {name: getattr(seen, name) for name in ("verdict", "kind", "stage", "fingerprint", "version")}


def _before(records: Mapping[str, SeenVerdict], target: str, after: SeenVerdict) -> SeenVerdict | None:
    """What was seen on the target; else on the same compiler in another release, build or setting: the same failure if there is
    one, any failure before a pass."""
    if target in records:
        return records[target]
    name = _BACKEND_ENDS.split(target, maxsplit=1)[0]
    alike = [seen for text, seen in records.items() if _BACKEND_ENDS.split(text, maxsplit=1)[0] == name]
    return min(
        alike,
        key=lambda seen: (
            seen.verdict != "fail",
            seen.fingerprint != after.fingerprint,
            seen.verdict != "pass",
        ),
        default=None,
    )


def _state(before: SeenVerdict | None, after: SeenVerdict) -> State:
    failed = before is not None and before.verdict == "fail"
    if after.verdict == "fail":
        if before is None or not failed:
            return "newly-failing"
        return "still-failing" if before.fingerprint == after.fingerprint else "changed"
    if after.verdict == "pass":
        return "fixed" if failed else "passing"
    return "not-judged"
