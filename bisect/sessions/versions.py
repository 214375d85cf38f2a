"""One call of `opsieve bisect --releases` or `--source`: the search through the versions of a package."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.blame.history_evidence import Clues
from opsieve.bisect.culprit import keep_culprit
from opsieve.bisect.passes.pass_source import attributable, blame_passes
from opsieve.bisect.search.search import expected_tests
from opsieve.bisect.sessions.answers import version_facts
from opsieve.bisect.sessions.history import rank_commits
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sources.git_history import open_repository, tag_of
from opsieve.bisect.sources.journal import ProbeJournal, case_digest, default_root
from opsieve.bisect.sources.release_source import Releases, backend_of, is_pure, releases_of
from opsieve.bisect.sources.version_sequence import Timeline, VersionSequence, place_of
from opsieve.bisect.sources.version_source import opener
from opsieve.gen.case.case import Case
from opsieve.gen.case.open_case import open_case
from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.triage.fingerprint.fingerprint import VERSION

Say = Callable[[str], None]
Ends = tuple[int | None, int | None]


def bisect_releases(request: BisectRequest, package: str, say: Say) -> dict[str, Any]:
    """The facts of the answer, also kept beside the case; of a dry run, what would be probed.

    With `then_commits` the key `next` names the ends between which to go on, where the repository has tags of the two releases.
    """
    for repository in filter(None, (request.then_commits, request.history)):
        open_repository(repository).close()
    case, target = _opened(request)
    backend = backend_of(package)
    target = target or resolve(backend)
    if target.name != backend:
        raise BadInput(f"--target is {target.display}, but {package} is the package of {backend}")
    versions = releases_of(package, request.offline, root=default_root())
    bad = request.bad or (target.release if target.release in versions else None)
    ends = place_of(request.good, versions, "--good"), place_of(bad, versions, "--bad")
    started = time.monotonic()
    with Workers(offline=request.offline, say=say) as workers:
        source = Releases(case, target, workers, default_root(), policy=request.policy, say=say)
        if request.dry_run:
            return _preview(source, versions, ends, request)
        timeline = _timeline(source, versions, ends, request, say)
        facts = version_facts(timeline, package)
        if request.offline:  # releases that are not installed may stand between any two
            facts["transitions"] = [{**change, "exact": False} for change in facts["transitions"]]
        change = _followed(facts, request.fixed)
        if request.attribute and change is not None:
            facts |= _guilty_passes(case, source, workers, _bad_end(change), request, say)
    facts |= _effort(timeline, started, source.target)
    if request.then_commits is not None and facts["first_bad"]:
        try:
            facts["next"] = _next(request.then_commits, facts, source.target)
        except BadInput as error:  # no such tags: report the releases all the same
            say(str(error))
    if request.history is not None:
        try:
            facts |= _ranked(case, source.target, request.history, facts, change)
        except BadInput as error:  # no such commits: report the releases all the same
            say(str(error))
    if request.case is not None:
        keep_culprit(request.case, "releases", facts)
    return facts


def _followed(facts: dict[str, Any], fixed: bool) -> dict[str, Any] | None:
    """The change that is asked about, of `transitions`: what brought the failure, or with `fixed`, or where nothing did, what ended it."""
    first = facts["first_good"] if fixed or not facts["first_bad"] else facts["first_bad"]
    return next((item for item in facts["transitions"] if item["first_after"] == first), None) if first else None


def _bad_end(change: dict[str, Any]) -> str:
    return str(change["last_before"] if change["kind"] == "fix" else change["first_after"])


def _ranked(
    case: Case, target: ResolvedTarget, repository: Path, facts: dict[str, Any], change: dict[str, Any] | None
) -> dict[str, Any]:
    """The commits between the two releases of the change, ranked; {} where none was found."""
    if change is None:
        return {}
    ends = change["last_before"], change["first_after"]
    store = ReleaseStore()
    folders = tuple(store.environment(target.backend, release, offline=True).path for release in ends)
    seen: dict[str, str] = next((item for item in facts["evidence"] if item["version"] == _bad_end(change)), {})
    clues = Clues(
        tuple(facts.get("guilty_passes", ())),
        tuple(sorted(set(case.program.operators()))),
        seen.get("message", ""),
        seen.get("symptom", ""),
    )
    return {"history": rank_commits(repository, ends, (folders[0], folders[1]), clues)}


def bisect_source(request: BisectRequest, source: str, say: Say) -> dict[str, Any]:
    """The same over versions of a plug-in, `NAME` or `NAME:ARGUMENT`."""
    name, _, argument = source.partition(":")
    case, target = _opened(request)
    if target is None:
        raise BadInput("name --target, the backend and its options")
    started = time.monotonic()
    with opener(name)(case, target, argument, request.offline) as found:
        versions = list(found.versions)
        if not versions:
            raise BadInput(f"the source {shown(source)} has no versions")
        ends = place_of(request.good, versions, "--good"), place_of(request.bad, versions, "--bad")
        question = {"source": source, "case": case_digest(case), "target": target.display, "fingerprints": VERSION}
        sequence = VersionSequence(found.evaluate, ProbeJournal(default_root(), question), name, say)
        if request.dry_run:
            return _preview(sequence, versions, ends, request)
        timeline = _timeline(sequence, versions, ends, request, say)
    facts = version_facts(timeline, source) | _effort(timeline, started, target)
    if request.case is not None:
        keep_culprit(request.case, "releases", facts)
    return facts


def _opened(request: BisectRequest) -> tuple[Case, ResolvedTarget | None]:
    """The case, and the target that is named, or that it failed on."""
    if request.case is None:
        raise BadInput("name the CASE to run on each version")
    case = open_case(request.case, request.inputs, request.expected, request.seed)
    named = request.target or case.parameters.get("target", "")
    return case, resolve(named) if named else None


def _effort(timeline: Timeline, started: float, target: ResolvedTarget) -> dict[str, Any]:
    return {
        "probes": timeline.probed + timeline.recalled,
        "recalled": timeline.recalled,
        "seconds": round(time.monotonic() - started, 2),
        "target": target.display,
    }


def _timeline(source: VersionSequence, versions: list[str], ends: Ends, request: BisectRequest, say: Say) -> Timeline:
    """A search, or a sweep when one was asked for or the two ends do not differ."""
    if request.sweep:
        return source.sweep(versions, request.jobs)
    found = source.search(
        versions,
        *ends,
        chance=request.repro_rate,
        confidence=request.confidence,
        jobs=request.jobs,
        progressed=lambda progress: say(
            f"{progress.candidates} versions left, about {progress.expected:.0f} probes to go"
        ),
    )
    assert found.outcome is not None
    if found.outcome.ends.trouble == "never":  # somewhere it does fail, or nobody would ask
        say("neither end fails: testing every version")
        return source.sweep(versions, request.jobs)
    return found


def _guilty_passes(
    case: Case, source: Releases, workers: Workers, release: str, request: BisectRequest, say: Say
) -> dict[str, Any]:
    """The pass at fault in the first bad release, where passes can be switched off."""
    if source.target.name not in attributable():
        return {}
    known = source.journal.conclusion(f"passes-{release}")
    if known is not None:
        return known
    target = source.target.with_release(release)
    try:
        found = blame_passes(case, target, ObservationCache(workers), request.policy).attribution
    except BadInput as error:
        say(str(error))
        return {}
    answer: dict[str, Any] = {"attribution": found.answer, "guilty_passes": list(found.passes)}
    source.journal.conclude(f"passes-{release}", answer)
    return answer


def _next(repository: Path, facts: dict[str, Any], target: ResolvedTarget) -> dict[str, Any]:
    """The ends in the repository that the answer names, tags of the two releases; `importable` tells that nothing need be built."""
    change = next(item for item in facts["transitions"] if item["first_after"] == facts["first_bad"])
    good, bad = (tag_of(repository, change[name]) for name in ("last_before", "first_after"))
    folders = ReleaseStore().environment(target.backend, change["first_after"], offline=True).path
    return {"repository": str(repository), "good": good, "bad": bad, "importable": is_pure(folders, facts["package"])}


def _preview(source: VersionSequence, versions: list[str], ends: Ends, request: BisectRequest) -> dict[str, Any]:
    good, bad = ends
    last = len(versions) - 1 if bad is None else bad
    rate = request.repro_rate if isinstance(request.repro_rate, float) else 1.0
    return {
        "versions": versions,
        "known": [version for version in versions if source.recall(version) is not None],
        "first": versions if request.sweep else list(dict.fromkeys((versions[good or 0], versions[last]))),
        "expected_probes": len(versions) if request.sweep else expected_tests(len(versions) - 1, rate),
    }
