"""The collection of bugs replayed, on the releases on record or on the newest ones."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from opsieve.backends.registry import resolve
from opsieve.backends.releases.consent import give_consent
from opsieve.backends.releases.installers import release_key
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.target import Target
from opsieve.backends.verdict import JUDGED
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.model.durable import Journal
from opsieve.gen.model.files import reason
from opsieve.triage.corpus.collection import latest, read_bugs, status
from opsieve.triage.corpus.corpus_file import read_corpus, write_corpus
from opsieve.triage.corpus.session import CorpusRequest, Say, replay_corpus
from opsieve.triage.corpus.states import CorpusResult, State
from opsieve.triage.judging import RefusedModel

STATUS: Mapping[State, str] = {
    "newly-failing": "live",
    "still-failing": "live",
    "changed": "changed",
    "fixed": "fixed",
    "passing": "fixed",
    "not-judged": "not judged",
}
STATUSES = tuple(dict.fromkeys(STATUS.values()))
_LIMITS = Limits()


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
    journal = None if request.journal is None else Journal(request.journal, _Record)
    known = {
        (record.result.case, record.digest, record.result.target): record.result
        for record in (journal.read() if journal else ())
        if record.result.state != "not-judged"
    }
    chosen: dict[str, tuple[str, ...]] = {}
    newest = cache(lambda package: find_newest(package, request.offline))
    for name in request.names or bugs:
        entry, bug = bugs[name]
        target = latest(entry, bug)[0]
        try:
            asked = resolve(bug.fails)
            if request.newest and asked.facts.package:
                target = asked.with_release(newest(asked.facts.package)).display
        except BadInput as error:
            yield CorpusResult(name, bug.fails, "not-judged", entry.targets.get(bug.fails), reason=str(error))
            continue
        if (name, entry.digest, target) in known:
            yield known[name, entry.digest, target]
        else:
            chosen[name] = (target,)
    asked_for = CorpusRequest(request.folder, (), request.limits, request.offline, chosen=chosen)
    with give_consent() if request.newest else nullcontext():
        for found in replay_corpus(asked_for, say):
            if journal is not None and isinstance(found, CorpusResult):
                try:
                    journal.add([_Record(bugs[found.case][0].digest, found)])
                except OSError as error:
                    raise BadInput(f"cannot write {shown(journal.path, 200)}: {reason(error)}") from None
            yield found


def find_newest(package: str, offline: bool = False) -> str:
    """Return the newest release of a package; BadInput when none is known."""
    store = ReleaseStore()
    releases = [each for each, _ in store.list_installed(package)] if offline else store.available(package)
    if not releases:
        raise BadInput(f"no release of {package} is installed, and --offline asks for no other")
    return releases[-1]


def update_bugs(folder: Path, results: Sequence[CorpusResult]) -> None:
    """Record what was judged in the collection, and the release and the day in which a bug proved fixed."""
    entries = dict(read_corpus(folder))
    for result in results:
        entry, bug, seen = entries[result.case], entries[result.case].bug, result.after
        if bug is None or seen is None or seen.verdict not in JUDGED:
            continue
        entry = replace(entry, targets={**entry.targets, result.target: seen})
        release = Target.parse(latest(entry, bug)[0]).release
        if status(entry, bug) == "live":
            # A release before the fix says nothing about it.
            if bug.fixed_in and release and release_key(release) >= release_key(bug.fixed_in):
                bug = replace(bug, fixed_in="", fixed_on="")
        elif status(entry, bug) == "fixed" and not bug.fixed_in:
            bug = replace(bug, fixed_in=release, fixed_on=datetime.date.today().isoformat())
        entries[result.case] = replace(entry, bug=bug)
    write_corpus(folder, entries)
