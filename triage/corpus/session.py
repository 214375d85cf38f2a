"""A corpus, a folder of cases with recorded verdicts: add cases, replay them on a compiler, compare two
replays.

The collection of bugs is a corpus too: its cases are replayed on the releases on record or on the newest
ones.
"""

import datetime
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.registry import resolve
from opsieve.backends.releases import consent, installers
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.target import Target
from opsieve.backends.verdict import JUDGED
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import DATA, open_case, save
from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.model import durable, files
from opsieve.triage.corpus.corpus_file import (
    CorpusEntry,
    CorpusResult,
    SeenVerdict,
    State,
    is_corpus,
    latest,
    make_case_name,
    make_result,
    read_bugs,
    read_corpus,
    read_results,
    status,
    write_corpus,
)
from opsieve.triage.fingerprint.fingerprint import VERSION
from opsieve.triage.judging import JudgeRequest, JudgeResult, RefusedModel, choose_target, judge_models

_LIMITS = Limits()
_NO_CHOICE = OracleChoice()
# The compiler that every installation has.
_DEFAULT = "onnxruntime"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CorpusRequest:
    """A corpus and how to judge its cases; `targets` replace those that the cases name, `oracles` are added.

    `chosen`, unless it is None, has the cases to judge by name, and their targets in place of the recorded
    ones.
    """

    folder: Path
    targets: tuple[str, ...] = ()
    limits: Limits = _LIMITS
    offline: bool = False
    oracles: OracleChoice = _NO_CHOICE
    chosen: Mapping[str, tuple[str, ...]] | None = None

    def make_judge_request(self, targets: tuple[str, ...]) -> JudgeRequest:
        """Make the request to judge models on these targets."""
        return JudgeRequest(targets, limits=self.limits, offline=self.offline, oracles=self.oracles)


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """A case folder or model, and its recorded verdicts by target."""

    path: Path
    targets: Mapping[str, SeenVerdict]


@dataclass(frozen=True, slots=True)
class AddedCase:
    """A case in the corpus: its name there, and its verdicts by target, with reasons."""

    model: str
    name: str
    targets: Mapping[str, SeenVerdict]
    reasons: Mapping[str, str]


def add_cases(paths: Sequence[Path], request: CorpusRequest, say: Say) -> Iterator[AddedCase | RefusedModel]:
    """Judge cases and copy them into the corpus, each by itself; for a case already there only the record is
    renewed.
    """
    # Unknown targets are refused before any case is judged.
    for text in request.targets:
        resolve(text)
    entries = read_corpus(request.folder) if is_corpus(request.folder) else {}
    groups: dict[tuple[str, ...], list[Path]] = {}
    for path in dict.fromkeys(paths):
        try:
            # Grouped by targets, so that the workers of a compiler start once for all of its cases.
            groups.setdefault(_choose_targets(path, request), []).append(path)
        except BadInput as error:
            yield RefusedModel(str(path), str(error))
        except Exception as error:  # noqa: BLE001
            # A fault of ours on one case costs the others nothing
            yield RefusedModel(str(path), "opsieve failed to read it", error)
    for targets, group in groups.items():
        judged: dict[str, list[JudgeResult]] = {}
        for found in judge_models(group, request.make_judge_request(targets), say):
            if isinstance(found, JudgeResult):
                judged.setdefault(found.model, []).append(found)
            else:
                yield found
        for model, results in judged.items():
            try:
                yield _save_case(model, results, request.folder, entries)
            except BadInput as error:
                yield RefusedModel(model, str(error))


def replay_corpus(request: CorpusRequest, say: Say) -> Iterator[CorpusResult | RefusedModel]:
    """Judge every case of a corpus on the targets of the request, or on those of its record.

    A bad case does not affect the others.

    Raises:
        BadInput: If the folder is not a corpus, or a target of the request is unknown.
    """
    entries = read_corpus(request.folder)
    cases = {name: RecordedCase(request.folder / name, entry.targets) for name, entry in entries.items()}
    return replay_cases(cases, request, say)


def replay_cases(
    cases: Mapping[str, RecordedCase], request: CorpusRequest, say: Say
) -> Iterator[CorpusResult | RefusedModel]:
    """Judge cases by name, as `replay_corpus` does."""
    for text in request.targets:
        resolve(text)
    groups: dict[tuple[str, ...], list[str]] = {}
    chosen = {name: tuple(case.targets) for name, case in cases.items()}
    for name, recorded in (chosen if request.chosen is None else request.chosen).items():
        targets = []
        for text in request.targets or recorded or (_DEFAULT,):
            try:
                # A record may be a stranger's, so that its targets need consent; typed ones do not.
                resolve(consent.named_by_file(text, request.offline) if not request.targets else text)
                targets.append(text)
            except BadInput as error:
                yield CorpusResult(name, text, "not-judged", cases[name].targets.get(text), None, str(error))
        if targets:
            groups.setdefault(tuple(targets), []).append(name)
    for asked, group in groups.items():
        names = {str(cases[name].path): name for name in group}
        for found in judge_models([Path(path) for path in names], request.make_judge_request(asked), say):
            name = names[found.model]
            if isinstance(found, RefusedModel):
                yield replace(found, model=name)
                continue
            result, records = found.facts(), cases[name].targets
            yield make_result(
                name, result["target"], records, _make_verdict(found), result["reason"], result["seconds"]
            )


def make_refusal(found: RefusedModel) -> CorpusResult:
    """Turn a case that could not be used into a result."""
    return CorpusResult(found.model, "", "not-judged", reason=found.reason, refused=True)


def compare_results(old: Path, new: Path) -> Iterator[CorpusResult]:
    """Compare two outputs of `corpus run --json`, the older one as the record.

    Raises:
        BadInput: For an invalid file.
    """
    records: dict[str, dict[str, SeenVerdict]] = {}
    for result in read_results(old):
        records.setdefault(result.case, {})
        # A case that was not judged then is no record to compare with.
        if result.after is not None:
            records[result.case][result.target] = result.after
    met = set()
    for result in read_results(new):
        met.add(result.case)
        known = records.get(result.case, {})
        if result.after is None:
            before = known.get(result.target)
            yield CorpusResult(
                result.case,
                result.target,
                "not-judged",
                before,
                None,
                result.reason,
                result.seconds,
                result.refused,
            )
        else:
            yield make_result(result.case, result.target, known, result.after, result.reason, result.seconds)
    # A case that is missing from the new results was not judged, rather than passed.
    for case in records:
        if case not in met:
            yield CorpusResult(
                case, "", "not-judged", reason=f"{shown(case, 120)} is not among the new results"
            )


def _choose_targets(path: Path, request: CorpusRequest) -> tuple[str, ...]:
    """Choose the targets for a new case: those of the request, or the one that the case names."""
    if request.targets:
        return tuple(dict.fromkeys(request.targets))
    return (choose_target(open_case(path), request.offline),)


def _save_case(
    model: str, results: Sequence[JudgeResult], folder: Path, entries: dict[str, CorpusEntry]
) -> AddedCase:
    """Save a judged case unless it is there, and record its verdicts."""
    case = results[0].case
    # The SHA-256 of a program and its values: equal cases are one case of a corpus, whatever else
    # their folders hold.
    state = hashlib.sha256(case.program.digest.encode())
    with tempfile.TemporaryDirectory(prefix="opsieve-corpus-") as scratch:
        save(case, Path(scratch) / "case")
        for path in sorted((Path(scratch) / "case" / DATA).iterdir()):
            state.update(b"\0" + path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    digest = state.hexdigest()
    name = next((name for name, entry in entries.items() if entry.digest == digest), "")
    # A folder that a person deleted is written again under its recorded name.
    if not name or not (folder / name).is_dir():
        name = name or _find_free_name(make_case_name(Path(model)), folder, entries)
        save(case, folder / name)
    seen = {result.target.display: _make_verdict(result) for result in results}
    # Other targets keep their verdicts; only those that were judged now change.
    known = entries[name].targets if name in entries else {}
    entries[name] = CorpusEntry(digest, {**known, **seen}, entries[name].bug if name in entries else None)
    write_corpus(folder, entries)
    return AddedCase(
        model, name, seen, {result.target.display: result.judged.verdict.reason for result in results}
    )


def _find_free_name(wanted: str, folder: Path, entries: Mapping[str, CorpusEntry]) -> str:
    """Return the name, with a number if it is taken; a folder without a record is never replaced."""
    name, number = wanted, 1
    while name in entries or (folder / name).exists():
        number += 1
        name = f"{wanted}-{number}"
    return name


def _make_verdict(result: JudgeResult) -> SeenVerdict:
    found = result.facts()
    return SeenVerdict(
        found["verdict"],
        found["kind"],
        found["stage"],
        found["fingerprint"],
        found["version"] or "",
        VERSION if found["fingerprint"] else 0,
    )


STATUS: Mapping[State, str] = {
    "newly-failing": "live",
    "still-failing": "live",
    "changed": "changed",
    "fixed": "fixed",
    "passing": "fixed",
    "not-judged": "not judged",
}
STATUSES = tuple(dict.fromkeys(STATUS.values()))


@dataclass(frozen=True, slots=True)
class BugsRequest:
    """A collection and which of its cases to replay, all unless some are named.

    Each is judged on the newest release that is on record for it, with `newest` on the newest one of the
    package index (with `offline` the newest one that is installed). `journal` is a file that gets each result
    as soon as it is known, and whose results are not asked for again.
    """

    folder: Path
    names: tuple[str, ...] = ()
    newest: bool = False
    journal: Path | None = None
    limits: Limits = _LIMITS
    offline: bool = False


@dataclass(frozen=True, slots=True)
class _Record:
    digest: str
    result: CorpusResult


def replay_bugs(request: BugsRequest, say: Say) -> Iterator[CorpusResult | RefusedModel]:
    """Judge the cases of a collection, those first that the journal has; BadInput for an unknown name.

    A release that cannot be looked up makes its cases not judged; `newest` is consent to install releases.
    """
    bugs = read_bugs(request.folder)
    for name in request.names:
        if name not in bugs:
            raise BadInput(
                f"there is no bug {shown(name, 80)}: opsieve bugs lists them{suggest_name(name, bugs)}"
            )
    journal = None if request.journal is None else durable.Journal(request.journal, _Record)
    known = {
        (record.result.case, record.digest, record.result.target): record.result
        for record in (journal.read() if journal else ())
        # A release that could not be installed then may be there now.
        if record.result.state != "not-judged"
    }
    chosen: dict[str, tuple[str, ...]] = {}
    # One question to the index for each package, whatever the number of cases.
    newest = cache(lambda package: find_newest(package, request.offline))
    for name in request.names or bugs:
        entry, bug = bugs[name]
        target = latest(entry, bug)[0]
        try:
            if request.newest:
                target = place_on_newest(bug.fails, newest) or target
        except BadInput as error:
            yield CorpusResult(name, bug.fails, "not-judged", entry.targets.get(bug.fails), reason=str(error))
            continue
        if (name, entry.digest, target) in known:
            yield known[name, entry.digest, target]
        else:
            chosen[name] = (target,)
    asked_for = CorpusRequest(request.folder, (), request.limits, request.offline, chosen=chosen)
    # Asking for the newest release is asking for its installation.
    with consent.give_consent() if request.newest else nullcontext():
        for found in replay_corpus(asked_for, say):
            if journal is not None and isinstance(found, CorpusResult):
                try:
                    journal.add([_Record(bugs[found.case][0].digest, found)])
                except OSError as error:
                    raise BadInput(
                        f"cannot write {shown(journal.path, 200)}: {files.reason(error)}"
                    ) from None
            yield found


def place_on_newest(target: str, newest: Callable[[str], str]) -> str:
    """Return a target with the newest release of its package; "" for a build and for what has no releases.

    BadInput if the target is unknown, or `newest` knows no release.
    """
    asked = resolve(target)
    return (
        asked.with_release(newest(asked.facts.package)).display
        if asked.facts.package and not asked.build
        else ""
    )


def find_newest(package: str, offline: bool = False) -> str:
    """Return the newest release of a package; BadInput when none is known."""
    store = ReleaseStore()
    releases = [each for each, _ in store.list_installed(package)] if offline else store.available(package)
    if not releases:
        raise BadInput(f"no release of {package} is installed; leave out --offline to install one")
    return releases[-1]


def update_bugs(folder: Path, results: Sequence[CorpusResult]) -> None:
    """Record the verdicts in the collection, and the release and the day in which a bug was found fixed."""
    entries = dict(read_corpus(folder))
    for result in results:
        entry, bug, seen = entries[result.case], entries[result.case].bug, result.after
        # What the target could not judge neither mends a bug nor brings it back.
        if bug is None or seen is None or seen.verdict not in JUDGED:
            continue
        entry = replace(entry, targets={**entry.targets, result.target: seen})
        release = Target.parse(latest(entry, bug)[0]).release
        if status(entry, bug) == "live":
            # A release before the fix says nothing about it.
            if (
                bug.fixed_in
                and release
                and installers.release_key(release) >= installers.release_key(bug.fixed_in)
            ):
                bug = replace(bug, fixed_in="", fixed_on="")
        # The first release without the bug stays; later ones that pass too say nothing new.
        elif status(entry, bug) == "fixed" and not bug.fixed_in:
            bug = replace(bug, fixed_in=release, fixed_on=datetime.date.today().isoformat())
        entries[result.case] = replace(entry, bug=bug)
    write_corpus(folder, entries)
