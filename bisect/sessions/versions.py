"""One call of `opsieve bisect --releases`, `--builds` or `--source`: the search through the versions of a
compiler.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.builds import trusted
from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.blame.wording import Clues
from opsieve.bisect.passes.pass_source import attributable, blame_passes
from opsieve.bisect.search.search import expected_tests
from opsieve.bisect.sessions.answers import (
    GuiltyPasses,
    HistoryRanking,
    NextStep,
    VersionAnswer,
    VersionPreview,
    keep_culprit,
)
from opsieve.bisect.sessions.history import rank_commits
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sessions.sentences import version_answer
from opsieve.bisect.sessions.version_rows import VersionRow, assemble, between, built
from opsieve.bisect.sources.git_history import open_repository, tag_of
from opsieve.bisect.sources.journal import ProbeJournal, case_digest, default_root
from opsieve.bisect.sources.outcome import Evaluate, Transition
from opsieve.bisect.sources.release_source import Releases, backend_of, is_pure
from opsieve.bisect.sources.version_row import VersionStore
from opsieve.bisect.sources.version_sequence import Timeline, VersionSequence, opener, place_of
from opsieve.gen.case.case import Case
from opsieve.gen.case.open_case import open_case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.printable import counted
from opsieve.triage.fingerprint.fingerprint import VERSION

Say = Callable[[str], None]
Ends = tuple[int | None, int | None]


def bisect_releases(request: BisectRequest, package: str, say: Say) -> VersionAnswer | VersionPreview:
    """The answer, also kept beside the case; of a dry run, what would be probed. `package` is "" for builds
    alone.

    With `then_commits` the field `next` names the ends between which to go on, where the repository has tags
    of the two releases.
    """
    for repository in filter(None, (request.then_commits, request.history)):
        open_repository(repository).close()
    case, named = _opened(request)
    target = _searched(named, package)
    row = assemble(request, package, target, say)
    started = time.monotonic()
    versions = (*row.versions, *row.loose)
    with (
        Workers(offline=request.offline, say=say, store=VersionStore(versions)) as workers,
        _elsewhere(request, say) as (jobs, elsewhere),
    ):
        request = replace(request, jobs=jobs)
        source = Releases(
            case,
            target,
            workers,
            default_root(),
            policy=request.policy,
            say=say,
            row=versions,
            elsewhere=elsewhere,
        )
        if request.dry_run:
            return _preview(source, row.names, (row.good, row.bad), request)
        timeline = _timeline(source, row.names, (row.good, row.bad), request, say)
        answer = version_answer(timeline, package)
        change = answer.change(request.fixed)
        if row.loose and change is not None:
            timeline = _narrowed(source, timeline, row, change, request, say)
            answer = version_answer(timeline, package)
            change = answer.change(request.fixed)
        if request.offline and package:  # releases that are not installed may stand between any two
            exact = [replace(item, exact=False) for item in answer.transitions]
            answer = replace(answer, transitions=tuple(exact))
        if request.attribute and change is not None:
            blamed = _guilty_passes(case, source, workers, _bad_end(change), request, say)
            if blamed is not None:
                answer = replace(answer, attribution=blamed.attribution, guilty_passes=blamed.guilty_passes)
    answer = replace(answer, seconds=round(time.monotonic() - started, 2), target=target.display)
    answer = _continued(answer, case, target, row, change, request, say)
    if request.case is not None:
        keep_culprit(request.case, "releases", answer.as_json())
    return answer


@contextmanager
def _elsewhere(request: BisectRequest, say: Say) -> Iterator[tuple[int, Evaluate | None]]:
    """How many versions are tried at once, and what tries them on the cluster that was named."""
    if request.scheduler is None or request.dry_run:
        yield request.at_once, None
        return
    from opsieve.bisect.sources.cluster_probes import cluster_probes  # most searches need no cluster

    with cluster_probes(request.scheduler, request.resources, request.offline, say) as (threads, elsewhere):
        yield request.jobs or threads, elsewhere


def _searched(named: ResolvedTarget | None, package: str) -> ResolvedTarget:
    """The compiler whose versions are searched; BadInput where the package is another one's."""
    if not package:
        if named is None:
            raise BadInput("name --target, the compiler whose builds these are")
        return named.with_release(named.release)
    backend = backend_of(package)
    target = named or resolve(backend)
    if target.name != backend:
        raise BadInput(f"--target is {target.display}, but {package} is the package of {backend}")
    return target


def _narrowed(
    source: Releases, found: Timeline, row: VersionRow, change: Transition, request: BisectRequest, say: Say
) -> Timeline:
    """The search on, through the builds that a repository has between the two versions of the change."""
    if request.history is None:
        return found
    try:
        inner = between(request.history, row, change.last_before, change.first_after, source.target)
    except BadInput as error:
        say(f"the builds are left out: {error}")
        return found
    if len(inner.versions) == 2:
        say("no build lies between the two releases")
        return found
    last = len(inner.versions) - 1
    good, bad = (last, 0) if change.kind == "fix" else (0, last)
    return _timeline(source, inner.names, (good, bad), request, say).within(found)


def _continued(
    answer: VersionAnswer,
    case: Case,
    target: ResolvedTarget,
    row: VersionRow,
    change: Transition | None,
    request: BisectRequest,
    say: Say,
) -> VersionAnswer:
    """With what a repository says of the change: the tags between which to go on, the commits that may have
    made it.
    """
    if request.then_commits is not None and answer.first_bad:
        try:
            answer = replace(answer, next=_next(request.then_commits, answer, target))
        except BadInput as error:  # no such tags: report the releases all the same
            say(str(error))
    if request.history is not None and change is not None:
        try:
            answer = replace(answer, history=_ranked(case, target, row, request.history, answer, change))
        except BadInput as error:  # no such commits: report the releases all the same
            say(str(error))
    return answer


def _bad_end(change: Transition) -> str:
    return change.last_before if change.kind == "fix" else change.first_after


def _ranked(
    case: Case,
    target: ResolvedTarget,
    row: VersionRow,
    repository: Path,
    answer: VersionAnswer,
    change: Transition,
) -> HistoryRanking:
    """The commits between the two versions of the change, ranked."""
    old, new = (built(row.named(name), target) for name in (change.last_before, change.first_after))
    seen = next((item for item in answer.evidence if item.version == _bad_end(change)), None)
    clues = Clues(
        answer.guilty_passes or (),
        tuple(sorted(set(case.program.operators()))),
        seen.message if seen else "",
        seen.symptom if seen else "",
        fixed=change.kind == "fix",
    )
    return rank_commits(repository, (old, new), clues)


def bisect_source(request: BisectRequest, source: str, say: Say) -> VersionAnswer | VersionPreview:
    """The same over versions of a plug-in, `NAME` or `NAME:ARGUMENT`."""
    name, _, argument = source.partition(":")
    case, target = _opened(request)
    if target is None:
        raise BadInput("name --target, the backend and its options")
    if not request.target:
        named_by_file(case.parameters["target"], request.offline, case.origin.versions)
    started = time.monotonic()
    with opener(name)(case, target, argument, request.offline) as found:
        versions = list(found.versions)
        if not versions:
            raise BadInput(f"the source {shown(source)} has no versions")
        ends = place_of(request.good, versions, "--good"), place_of(request.bad, versions, "--bad")
        question = {
            "source": source,
            "case": case_digest(case),
            "target": target.display,
            "fingerprints": VERSION,
        }
        sequence = VersionSequence(found.evaluate, ProbeJournal(default_root(), question), name, say)
        if request.dry_run:
            return _preview(sequence, versions, ends, request)
        timeline = _timeline(sequence, versions, ends, request, say)
    answer = version_answer(timeline, source)
    answer = replace(answer, seconds=round(time.monotonic() - started, 2), target=target.display)
    if request.case is not None:
        keep_culprit(request.case, "releases", answer.as_json())
    return answer


def _opened(request: BisectRequest) -> tuple[Case, ResolvedTarget | None]:
    """The case, and the target that is named, or that it failed on."""
    if request.case is None:
        raise BadInput("name the CASE to run on each version")
    case = open_case(request.case, request.inputs, request.expected, request.seed)
    named = request.target or trusted(case.parameters.get("target", ""))
    return case, resolve(named) if named else None


def _timeline(
    source: VersionSequence, versions: list[str], ends: Ends, request: BisectRequest, say: Say
) -> Timeline:
    """A search, or a sweep when one was asked for or the failure is to be found at all. Two named ends bound
    both.
    """
    if request.sweep:
        named = [place for place in ends if place is not None]
        return source.sweep(
            versions[min(named) : max(named) + 1] if len(named) == 2 else versions, request.at_once
        )
    found = source.search(
        versions,
        *ends,
        chance=request.repro_rate,
        confidence=request.confidence,
        jobs=request.at_once,
        progressed=lambda progress: say(
            f"{counted(progress.candidates, 'version')} left, about"
            f" {counted(round(progress.expected), 'probe')} to go"
        ),
    )
    assert found.outcome is not None
    if found.outcome.ends.trouble == "never" and None in ends:  # somewhere it does fail, or nobody would ask
        say("neither end fails: testing every version")
        return source.sweep(versions, request.at_once)
    return found


def _guilty_passes(
    case: Case, source: Releases, workers: Workers, version: str, request: BisectRequest, say: Say
) -> GuiltyPasses | None:
    """The pass at fault in a bad version, where passes can be switched off."""
    if source.target.name not in attributable():
        return None
    name = f"passes-{source.key(version)}"
    known = source.journal.conclusion(name)
    if known is not None:
        try:
            return msgspec.convert(known, GuiltyPasses)
        except msgspec.ValidationError:
            pass  # damaged: it is asked again
    try:
        found = blame_passes(
            case, source.target_of(version), ObservationCache(workers), request.policy
        ).attribution
    except BadInput as error:
        say(str(error))
        return None
    blamed = GuiltyPasses(found.answer, tuple(found.passes))
    source.journal.conclude(name, msgspec.to_builtins(blamed))
    return blamed


def _next(repository: Path, answer: VersionAnswer, target: ResolvedTarget) -> NextStep:
    """The ends in the repository that the answer names, tags of the two releases."""
    change = next(item for item in answer.transitions if item.first_after == answer.first_bad)
    good, bad = (tag_of(repository, name) for name in (change.last_before, change.first_after))
    folders = ReleaseStore().environment(target.backend, change.first_after, offline=True).path
    return NextStep(str(repository), good, bad, is_pure(folders, answer.package))


def _preview(
    source: VersionSequence, versions: list[str], ends: Ends, request: BisectRequest
) -> VersionPreview:
    good, bad = ends
    last = len(versions) - 1 if bad is None else bad
    rate = request.repro_rate if isinstance(request.repro_rate, float) else 1.0
    return VersionPreview(
        versions=tuple(versions),
        known=tuple(version for version in versions if source.recall(version) is not None),
        first=tuple(versions if request.sweep else dict.fromkeys((versions[good or 0], versions[last]))),
        expected_probes=len(versions) if request.sweep else expected_tests(len(versions) - 1, rate),
    )
