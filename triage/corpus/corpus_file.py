"""`corpus.json` with the recorded verdicts of a corpus's cases, the states of cases (a verdict compared with
the recorded one), and the results printed by `corpus run --json`.

In the collection of bugs the entries state the bug that each case shows.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from opsieve.backends.releases.installers import release_key
from opsieve.backends.target import Target
from opsieve.backends.verdict import FAILING, JUDGED, leave_target_out
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model import durable, files

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
    """A recorded verdict of a target: the keys of `opsieve run --json` that are compared and shown.

    `key_version` is the version of the rules that made the fingerprint; 0 in records of old releases.
    """

    verdict: Word
    kind: Word | None = None
    stage: Word | None = None
    fingerprint: Word = ""
    version: Word = ""
    key_version: int = 0

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
        was = "" if self.before is None else self.before.words
        was = f", was {was}" if was and (self.state == "changed" or was != self.after.words) else ""
        reason = leave_target_out(self.reason, self.target)
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
    return asdict(seen)


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
    # What was not judged then says nothing about a regression now.
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
        # A build without a version is taken to be newer than every release.
        later = (place is None and text != target) or at > now
        unlike = seen.fingerprint != after.fingerprint
        # In the order of the list above: the first that differs decides.
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
        # A record of a newer opsieve may name what this one cannot parse; the others stay usable.
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
        alike = before.kind == after.kind
    # Keys by two versions of the rules differ for one failure too.
    elif before.key_version != after.key_version:
        alike = before.words == after.words
    else:
        alike = before.fingerprint == after.fingerprint
    return "still-failing" if alike else "changed"


NAME = "corpus.json"
# Rises when an older opsieve would read a file wrongly, not when a key is added.
FORMAT = 1
# Far above a corpus of people; a file of a stranger may hold anything.
_MOST = 256 << 20
# The name becomes a path, so it must not lead out of the corpus.
_CASE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")


@dataclass(frozen=True, slots=True)
class Bug:
    """The facts of the bug that a case shows, for a corpus that is a collection of bugs.

    `fails` is the target on which the bug was found, with its release, and `passes` a target without the bug.
    `what` says in one line what is wrong. `guilty` is the pass or the place in the source that is at fault.
    `first_bad` is the first release that fails; the releases before it pass or cannot run the case.
    `fixed_in` is the first release without the bug and `fixed_on` the day on which that was observed;
    `upstream` is the address of the project's own issue. `same_as` names the case of the same bug that is
    counted; other cases of that bug are kept, and not counted. All but the first five may be "", unknown.
    """

    fails: str
    passes: str
    what: str
    operators: tuple[str, ...]
    oracles: tuple[str, ...]
    guilty: str = ""
    first_bad: str = ""
    fixed_in: str = ""
    fixed_on: str = ""
    upstream: str = ""
    same_as: str = ""


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """A case of a corpus: a digest of its program and values, its recorded verdicts by target,
    and its bug.
    """

    digest: str
    targets: dict[str, SeenVerdict] = field(default_factory=dict)
    bug: Bug | None = None


@dataclass(frozen=True, slots=True)
class _CorpusFile:
    format: int
    cases: dict[str, CorpusEntry]


@dataclass(frozen=True, slots=True)
class _Result:
    case: Word
    target: Word
    after: SeenVerdict | None
    reason: str = ""
    seconds: float = 0.0
    refused: bool = False


@dataclass(frozen=True, slots=True)
class _Results:
    results: list[_Result]


def is_corpus(folder: Path) -> bool:
    """Whether a folder has a corpus.json."""
    return (folder / NAME).exists()


@files.bound_reading
def read_corpus(folder: Path) -> dict[str, CorpusEntry]:
    """Read the cases of a corpus by name.

    Raises:
        BadInput: If the file is missing or invalid.
    """
    path = folder / NAME
    if not is_corpus(folder):
        raise BadInput(
            f"{shown(folder, 200)} is not a corpus, because it has no {NAME}; create one with `opsieve corpus"
            " add`"
        )
    try:
        file = msgspec.json.decode(files.read_file(path, _MOST), type=_CorpusFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"{shown(path, 200)} is not a description of a corpus: {shown(str(error), 120)}"
        ) from None
    # Refused rather than read in part: a later `corpus add` would write it back without what it did not know.
    if file.format > FORMAT:
        raise BadInput(
            f"{shown(path, 200)} has format {file.format}, newer than this opsieve's {FORMAT}; upgrade"
            " opsieve"
        )
    if file.format < 1:
        raise BadInput(f"{shown(path, 200)} has the unknown format {file.format}")
    for name in file.cases:
        if not _CASE.fullmatch(name):
            raise BadInput(
                f"{shown(path, 200)} names the case {shown(name)}, which is not a valid name in a corpus"
            )
    return file.cases


def write_corpus(folder: Path, cases: Mapping[str, CorpusEntry]) -> None:
    """Write corpus.json atomically, sorted by name.

    Raises:
        BadInput: If it cannot be written.
    """
    found = {
        name: {
            "digest": entry.digest,
            "targets": {text: asdict(seen) for text, seen in sorted(entry.targets.items())},
            **({} if entry.bug is None else {"bug": asdict(entry.bug)}),
        }
        # Sorted, since the file is under version control: a change is a small difference.
        for name, entry in sorted(cases.items())
    }
    data = msgspec.json.format(msgspec.json.encode({"format": FORMAT, "cases": found}), indent=2) + b"\n"
    durable.write_output(folder / NAME, data)


@files.bound_reading
def read_results(path: Path) -> list[_Result]:
    """Read the results in an output of `corpus run --json`.

    Raises:
        BadInput: If it is invalid.
    """
    try:
        return msgspec.json.decode(files.read_file(path, _MOST), type=_Results).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"{shown(path, 200)} is not an output of `corpus run --json`: {shown(str(error), 120)}"
        ) from None


def make_case_name(path: Path) -> str:
    """Make a name for the case at `path`: `X-reduced` for the folder `reduced` of X."""
    path = path.absolute()
    words = path.stem if path.suffix in (".onnx", ".json") else path.name
    # Names that tell nothing, because every case has them.
    if words in ("model", "module", "reduced", "case"):
        words = f"{path.parent.name}-{words}"
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in words)[:100].lstrip(
        "-."
    )
    return name or "case"


def read_bugs(folder: Path) -> dict[str, tuple[CorpusEntry, Bug]]:
    """Return the cases of a collection by name; BadInput when the folder holds no corpus with bugs."""
    bugs = {name: (entry, entry.bug) for name, entry in read_corpus(folder).items() if entry.bug is not None}
    if not bugs:
        raise BadInput(f"the corpus {shown(folder, 200)} states no bugs")
    return bugs


def latest(entry: CorpusEntry, bug: Bug) -> tuple[str, SeenVerdict | None]:
    """Return the target of the newest release that judged a bug, and its verdict; None without a record."""
    asked = replace(Target.parse(bug.fails), release="")
    alike = [
        (get_place(target, seen) or (), text, seen)
        for text, seen in entry.targets.items()
        if (target := Target.parse(text)) and replace(target, release="") == asked and seen.verdict in JUDGED
    ]
    return max(alike, key=lambda record: record[0])[1:] if alike else (bug.fails, None)


def status(entry: CorpusEntry, bug: Bug) -> str:
    """Return the status of a bug in the newest release on record: live, fixed or not judged."""
    seen = latest(entry, bug)[1]
    if seen is None:
        return "not judged"
    return "live" if seen.verdict in FAILING else "fixed"
