"""What the searches found: the keys of `opsieve bisect --json` (docs/reference/json.md) as dataclasses, and
`culprit.json`.

That file stands beside a case, for triage and for people. It is one object with a key for each kind of search
that was made, `releases`, `commits` and `passes`; its value is what the command prints with `--json`. A new
answer takes the place of the old one of its kind.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from opsieve.bisect.sources.git_history import Commit
from opsieve.bisect.sources.outcome import State, Transition, VersionOutcome
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import read_file, reason


class Answer:
    """What can be printed as an object of JSON; a field that is None is left out."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        """The answer in dicts, lists, texts and numbers."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        absent = [field.name for field in fields(self) if getattr(self, field.name) is None]  # type: ignore[arg-type]
        return {key: value for key, value in plain.items() if key not in absent}


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version that was tested."""

    version: str
    state: State
    symptom: str
    text: str


@dataclass(frozen=True, slots=True)
class SeenBeside:
    """A run beside a change, with what the compiler said."""

    version: str
    symptom: str
    text: str
    message: str


@dataclass(frozen=True, slots=True)
class EndCommit:
    """The commit of an end; one that is not `exact` is near it. `source` says where it was read."""

    release: str
    commit: str
    source: str
    exact: bool


@dataclass(frozen=True, slots=True)
class RankedCommit(Commit):
    """A commit that may have made the change."""

    probability: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryRanking:
    """The commits between two versions, the likeliest first; `none` is the probability of none of these."""

    repository: str
    good: EndCommit
    bad: EndCommit
    branched: bool
    commits: int
    cherry_picked: int
    ranked: tuple[RankedCommit, ...]
    none: float
    settle: str
    seconds: float


@dataclass(frozen=True, slots=True)
class NextStep:
    """Where to go on: the two tags in a repository; `importable` tells that nothing need be built."""

    repository: str
    good: str
    bad: str
    importable: bool


@dataclass(frozen=True, slots=True)
class GuiltyPasses:
    """What attribution said in the bad version next to the change."""

    attribution: str
    guilty_passes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionAnswer(Answer):
    """Of a search or sweep through versions."""

    package: str
    answer: str
    transitions: tuple[Transition, ...]
    monotone: bool
    first_bad: str
    first_good: str
    candidates: tuple[str, ...]
    culprit_commit: str
    confidence: float
    ends_verified: bool
    wrong_ends: tuple[str, ...]
    versions: tuple[SeenVersion, ...]
    evidence: tuple[SeenBeside, ...]
    fingerprint: str
    symptom: str
    probes: int
    recalled: int
    seconds: float = 0.0
    target: str = ""
    attribution: str | None = None
    guilty_passes: tuple[str, ...] | None = None
    next: NextStep | None = None
    history: HistoryRanking | None = None

    def change(self, fixed: bool) -> Transition | None:
        """The change that is asked about: what brought the failure, or with `fixed`, or where nothing did,
        what ended it.
        """
        first = self.first_good if fixed or not self.first_bad else self.first_bad
        return next((item for item in self.transitions if item.first_after == first), None) if first else None


@dataclass(frozen=True, slots=True)
class CommitAnswer(Answer):
    """Of a search through commits."""

    package: str
    answer: str
    transitions: tuple[Transition, ...]
    first_bad: str
    first_good: str
    culprit_commit: str
    culprits: tuple[Commit, ...]
    confidence: float
    ends_verified: bool
    wrong_ends: tuple[tuple[str, str], ...]
    commits: int
    seen: Mapping[str, VersionOutcome]
    probes: int
    recalled: int
    seconds: float = 0.0
    fingerprint: str | None = None
    symptom: str | None = None


@dataclass(frozen=True, slots=True)
class PassAnswer(Answer):
    """Of an attribution."""

    target: str
    answer: str
    passes: tuple[str, ...]
    alone: tuple[str, ...]
    kept: tuple[str, ...]
    applications: Mapping[str, tuple[int, ...]]
    levels: Mapping[str, str]
    probes: int
    seconds_cpu: float
    fingerprint: str
    symptom: str
    beneath: str


@dataclass(frozen=True, slots=True)
class VersionPreview(Answer):
    """Of a dry run: what would be tested, what is known already, and about how many probes it takes."""

    versions: tuple[str, ...]
    known: tuple[str, ...]
    first: tuple[str, ...]
    expected_probes: int


@dataclass(frozen=True, slots=True)
class CommitPreview(Answer):
    """The same of commits; `known` counts the ends that were tested before."""

    commits: int
    first: tuple[str, ...]
    known: int
    expected_probes: int


NAME = "culprit.json"
_MAX_BYTES = 4 << 20
Kind = Literal["releases", "commits", "passes"]


def keep_culprit(case: Path, kind: Kind, answer: dict[str, Any]) -> None:
    """Write an answer beside `case.json`, all or nothing. A folder without one is not ours, and a sample
    stays as it came.
    """
    if not (case / "case.json").is_file() or (case / "sample.toml").is_file():
        return
    text = json.dumps({**read_culprit(case), kind: answer}, indent=2)
    try:
        write_file(case / NAME, text.encode() + b"\n")
    except OSError as error:
        raise BadInput(f"{NAME} cannot be written in {shown(case, 200)}: {reason(error)}") from None


def read_culprit(case: Path) -> dict[str, Any]:
    """What is kept of a case, {} for nothing; a file that is damaged, or too long to be ours, counts as
    none.
    """
    try:
        found = json.loads(read_file(case / NAME, _MAX_BYTES))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
