"""Answers of the searches as dataclasses: their fields are the keys of `opsieve bisect --json`, and of
`culprit.json`.

`culprit.json` stands beside a case, for triage and for people. It is one object with a key for each kind of
search that was made, `releases`, `commits` and `passes`; each value is the object that the command prints
with `--json` (docs/reference/json.md). A new answer replaces the old one of its kind.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from opsieve.bisect.sources import git_history, outcome
from opsieve.gen.errors import BadInput
from opsieve.gen.model import durable, files


class Answer:
    """Base of the answers that print as a JSON object; fields that are None are left out."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        """Convert the answer to dicts, lists, texts and numbers."""
        # Through JSON, which turns tuples, enums and paths into what a file holds.
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        # A key that is missing says "not asked", whereas null would say "asked, and unknown".
        absent = [
            field.name
            for field in fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) is None
        ]
        return {key: value for key, value in plain.items() if key not in absent}


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version that was tested."""

    version: str
    state: outcome.State
    symptom: str
    text: str


@dataclass(frozen=True, slots=True)
class SeenBeside:
    """A run on one side of a change, with the compiler's message."""

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
class RankedCommit(git_history.Commit):
    """A commit that may have made the change."""

    probability: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryRanking:
    """The commits between two versions, the likeliest first; `none` is the probability of any other
    commit.
    """

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
    """The next search: two tags in a repository; `importable` means that the sources need no build."""

    repository: str
    good: str
    bad: str
    importable: bool


@dataclass(frozen=True, slots=True)
class GuiltyPasses:
    """The attribution in the bad version next to the change."""

    attribution: str
    guilty_passes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionAnswer(Answer):
    """The answer of a search or sweep through versions."""

    package: str
    answer: str
    transitions: tuple[outcome.Transition, ...]
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

    def find_change(self, fixed: bool) -> outcome.Transition | None:
        """Return the change in question: the start of the failure, or its end if `fixed` or if the start is
        unknown.
        """
        first = self.first_good if fixed or not self.first_bad else self.first_bad
        return next((item for item in self.transitions if item.first_after == first), None) if first else None


@dataclass(frozen=True, slots=True)
class CommitAnswer(Answer):
    """The answer of a search through commits."""

    package: str
    answer: str
    transitions: tuple[outcome.Transition, ...]
    first_bad: str
    first_good: str
    culprit_commit: str
    culprits: tuple[git_history.Commit, ...]
    confidence: float
    ends_verified: bool
    wrong_ends: tuple[tuple[str, str], ...]
    commits: int
    seen: Mapping[str, outcome.VersionOutcome]
    probes: int
    recalled: int
    seconds: float = 0.0
    fingerprint: str | None = None
    symptom: str | None = None


@dataclass(frozen=True, slots=True)
class PassAnswer(Answer):
    """The answer of an attribution."""

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
    """The answer of a dry run: versions to test, versions already known, and an estimate of the probes."""

    versions: tuple[str, ...]
    known: tuple[str, ...]
    first: tuple[str, ...]
    expected_probes: int


@dataclass(frozen=True, slots=True)
class CommitPreview(Answer):
    """The answer of a dry run through commits; `known` counts the ends that were tested before."""

    commits: int
    first: tuple[str, ...]
    known: int
    expected_probes: int


NAME = "culprit.json"
# A sweep of a thousand versions, 0.5 kB each with its text, fits several times.
_MAX_BYTES = 4 << 20
Kind = Literal["releases", "commits", "passes"]


def keep_culprit(
    case: Path | None, kind: Kind, answer: dict[str, Any], say: Callable[[str], None] = print
) -> None:
    """Write an answer beside `case.json` atomically, or say why it is not kept.

    Folders without `case.json` and cases of the collection of bugs stay untouched.
    """
    # Another folder is the user's own, and a case of the collection is compared byte by byte with git.
    if case is None or not (case / "case.json").is_file() or (case / "confirm.py").is_file():
        return
    try:
        # Answers of other kinds of searches stay.
        text = json.dumps({**read_culprit(case), kind: answer}, indent=2)
        durable.write_output(case / NAME, text + "\n")
    except BadInput as error:
        # The search may have taken an hour, and its answer is still to be printed.
        say(f"the answer is not kept beside the case: {error}")


@files.bound_reading
def read_culprit(case: Path) -> dict[str, Any]:
    """Read the kept answers of a case; {} if the file is missing, damaged or too long."""
    try:
        found = json.loads(files.read_file(case / NAME, _MAX_BYTES))
    # The file is a cache: a damaged one is replaced by the next answer, so that it never stops a command.
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
