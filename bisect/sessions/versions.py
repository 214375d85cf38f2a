"""One call of `opsieve bisect --releases`, `--builds` or `--source`, the search through a compiler's
versions, and of `opsieve attribute`, the search for the passes that cause a failure.
"""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from opsieve.backends.judge.oracle_names import add_oracles
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases import builds, consent, releases
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.blame.wording import Clues
from opsieve.bisect.passes.pass_source import blame_passes, list_attributable
from opsieve.bisect.search.search import estimate_tests
from opsieve.bisect.sessions import history, sentences, version_rows
from opsieve.bisect.sessions.answers import (
    GuiltyPasses,
    NextStep,
    PassAnswer,
    VersionAnswer,
    VersionPreview,
    keep_culprit,
)
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sources import git_history, outcome
from opsieve.bisect.sources.release_source import Releases, VersionStore, find_backend, is_pure
from opsieve.bisect.sources.version_sequence import Timeline, VersionSequence, find_place, load_opener
from opsieve.gen.case.case import Case, open_case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.printable import count_noun
from opsieve.triage.fingerprint.fingerprint import VERSION

Say = Callable[[str], None]
Ends = tuple[int | None, int | None]


def bisect_releases(request: BisectRequest, package: str, say: Say) -> VersionAnswer | VersionPreview:
    """Search the versions and keep the answer beside the case; a dry run returns the planned probes.

    `package` is "" for builds alone. With `then_commits` the field `next` names the ends between which to
    continue, if the repository has tags of the two releases.
    """
    # Before the search, which may take an hour and would end with this error.
    for repository in filter(None, (request.then_commits, request.history)):
        git_history.check_readable(repository)
    case, named = _open_case(request)
    case, target = add_oracles(case, _check_target(named, package), request.oracles)
    row = version_rows.assemble_row(request, package, target, say)
    started = time.monotonic()
    versions = (*row.versions, *row.loose)
    with (
        Workers(
            request.run_limits, offline=request.offline, say=say, store=VersionStore(versions)
        ) as workers,
        _open_prober(request, say) as (jobs, elsewhere),
    ):
        request = replace(request, jobs=jobs)
        source = Releases(
            case,
            target,
            workers,
            outcome.get_default_root(),
            policy=request.policy,
            say=say,
            row=versions,
            elsewhere=elsewhere,
        )
        if request.dry_run:
            return _preview_search(source, row.names, (row.good, row.bad), request)
        # The failure that the store knows: an old release may fail for another reason.
        own = outcome.read_recorded_failure(request.case, case, target)
        timeline = _probe_versions(source, own, row.names, (row.good, row.bad), request, say)
        answer = sentences.make_version_answer(timeline, package)
        change = answer.find_change(request.fixed)
        if row.loose and change is not None:
            timeline = _search_builds_between(source, own, timeline, row, change, request, say)
            answer = sentences.make_version_answer(timeline, package)
            change = answer.find_change(request.fixed)
        # Uninstalled releases may lie between any two.
        if request.offline and package:
            exact = [replace(item, exact=False) for item in answer.transitions]
            answer = replace(answer, transitions=tuple(exact))
        if request.attribute and change is not None:
            blamed = _find_guilty_passes(case, source, workers, change.bad_end, request, say)
            if blamed is not None:
                answer = replace(answer, attribution=blamed.attribution, guilty_passes=blamed.guilty_passes)
    answer = replace(answer, seconds=round(time.monotonic() - started, 2), target=target.display)
    answer = _add_repository_facts(answer, case, target, row, change, request, say)
    keep_culprit(request.case, "releases", answer.as_json(), say)
    return answer


@contextmanager
def _open_prober(request: BisectRequest, say: Say) -> Iterator[tuple[int, outcome.Evaluate | None]]:
    """Yield how many versions are tried at once, and a function that tries one on the named cluster (or
    None).
    """
    if request.scheduler is None or request.dry_run:
        yield request.probes_at_once, None
        return
    # Most searches need no cluster
    from opsieve.bisect.sources.cluster_probes import open_cluster_probes

    with open_cluster_probes(
        request.scheduler, request.resources, request.run_limits, request.offline, say
    ) as (threads, elsewhere):
        yield request.jobs or threads, elsewhere


def _check_target(named: ResolvedTarget | None, package: str) -> ResolvedTarget:
    """Return the compiler whose versions are searched.

    Raises:
        BadInput: If the package belongs to another compiler.
    """
    if not package:
        if named is None:
            raise BadInput("name --target, the compiler whose builds these are")
        return named.with_release(named.release)
    # One wheel may hold several tools: onnxruntime's optimizer, quantizer and float16 converter.
    if named is not None and package == named.facts.package:
        return named
    backend = find_backend(package)
    if named is not None and named.name != backend:
        raise BadInput(f"--target is {named.display}, but {package} is the package of {backend}")
    return named or resolve(backend)


def _search_builds_between(
    source: Releases,
    own: outcome.VersionOutcome | None,
    found: Timeline,
    row: version_rows.VersionRow,
    change: outcome.Transition,
    request: BisectRequest,
    say: Say,
) -> Timeline:
    """Continue the search in the builds that a repository places between the two versions of the change."""
    if request.history is None:
        return found
    try:
        inner = version_rows.insert_loose_builds(
            request.history, row, change.last_before, change.first_after, source.target
        )
    except BadInput as error:
        say(f"the builds are left out: {error}")
        return found
    # Two versions are the ends alone.
    if len(inner.versions) == 2:
        say("no build lies between the two releases")
        return found
    last = len(inner.versions) - 1
    # Where a failure ended, the older end is the bad one.
    good, bad = (last, 0) if change.kind == "fix" else (0, last)
    return _probe_versions(source, own, inner.names, (good, bad), request, say).insert_into(found)


def _add_repository_facts(
    answer: VersionAnswer,
    case: Case,
    target: ResolvedTarget,
    row: version_rows.VersionRow,
    change: outcome.Transition | None,
    request: BisectRequest,
    say: Say,
) -> VersionAnswer:
    """Add the tags between which to continue, and the commits that may have made the change."""
    if request.then_commits is not None and answer.first_bad:
        try:
            turn = next(item for item in answer.transitions if item.first_after == answer.first_bad)
            good, bad = (
                git_history.find_tag(request.then_commits, name)
                for name in (turn.last_before, turn.first_after)
            )
            folders = releases.ReleaseStore().environment(target.backend, turn.first_after, offline=True).path
            answer = replace(
                answer, next=NextStep(str(request.then_commits), good, bad, is_pure(folders, answer.package))
            )
        except BadInput as error:
            # No such tags: report the releases all the same
            say(str(error))
    if request.history is not None and change is not None:
        try:
            # Rank the commits between the two versions of the change.
            old, new = (
                version_rows.describe_end(row.get_version(name), target)
                for name in (change.last_before, change.first_after)
            )
            seen = next((item for item in answer.evidence if item.version == change.bad_end), None)
            clues = Clues(
                answer.guilty_passes or (),
                tuple(sorted(set(case.program.operators()))),
                seen.message if seen else "",
                seen.symptom if seen else "",
                fixed=change.kind == "fix",
            )
            answer = replace(answer, history=history.rank_commits(request.history, (old, new), clues))
        except BadInput as error:
            # No such commits: report the releases all the same
            say(str(error))
    return answer


def bisect_source(request: BisectRequest, source: str, say: Say) -> VersionAnswer | VersionPreview:
    """Search the versions of a plug-in, `NAME` or `NAME:ARGUMENT`."""
    name, _, argument = source.partition(":")
    case, target = _open_case(request)
    if target is None:
        raise BadInput("name --target, the backend and its options")
    # Before the journal's question is made, so that other oracles never recall these probes.
    case, target = add_oracles(case, target, request.oracles)
    if not request.target:
        consent.named_by_file(case.parameters["target"], request.offline, case.origin.versions)
    started = time.monotonic()
    with load_opener(name)(case, target, argument, request.offline) as found:
        versions = list(found.versions)
        if not versions:
            raise BadInput(f"the source {shown(source)} has no versions")
        ends = find_place(request.good, versions, "--good"), find_place(request.bad, versions, "--bad")
        question = {
            "source": source,
            "case": outcome.hash_case(case),
            "target": target.display,
            "fingerprints": VERSION,
        }
        sequence = VersionSequence(
            found.evaluate, outcome.ProbeJournal(outcome.get_default_root(), question), name, say
        )
        if request.dry_run:
            return _preview_search(sequence, versions, ends, request)
        own = outcome.read_recorded_failure(request.case, case, target)
        timeline = _probe_versions(sequence, own, versions, ends, request, say)
    answer = sentences.make_version_answer(timeline, source)
    answer = replace(answer, seconds=round(time.monotonic() - started, 2), target=target.display)
    keep_culprit(request.case, "releases", answer.as_json(), say)
    return answer


def _open_case(request: BisectRequest) -> tuple[Case, ResolvedTarget | None]:
    """Open the case, and resolve the named target or the one it failed on."""
    if request.case is None:
        raise BadInput("name the CASE to run on each version")
    case = open_case(request.case, request.inputs, request.expected, request.seed)
    # A case may come from a stranger, and its target may name a program to run.
    named = request.target or builds.check_trusted(case.parameters.get("target", ""))
    return case, resolve(named) if named else None


def _probe_versions(
    source: VersionSequence,
    own: outcome.VersionOutcome | None,
    versions: list[str],
    ends: Ends,
    request: BisectRequest,
    say: Say,
) -> Timeline:
    """Search, or sweep if the request says so; two named ends bound both."""
    if ends[0] is not None and ends[0] == ends[1]:
        raise BadInput(f"--good and --bad both name {shown(versions[ends[0]])}: name two releases")
    if request.sweep:
        named = [place for place in ends if place is not None]
        return source.sweep_versions(
            versions[min(named) : max(named) + 1] if len(named) == 2 else versions,
            request.probes_at_once,
            own,
        )
    return source.search_versions(
        versions,
        *ends,
        chance=request.repro_rate,
        confidence=request.confidence,
        jobs=request.probes_at_once,
        fixed=request.fixed,
        own=own,
        progressed=lambda progress: say(
            f"{count_noun(progress.candidates, 'version')} left, about"
            f" {count_noun(round(progress.expected), 'probe')} to go"
        ),
    )


def _find_guilty_passes(
    case: Case, source: Releases, workers: Workers, version: str, request: BisectRequest, say: Say
) -> GuiltyPasses | None:
    """Find the guilty passes in a bad version, if its backend can switch passes off."""
    if source.target.name not in list_attributable():
        return None
    # Hundreds of probes lead to it, so that it is kept as a whole.
    name = f"passes-{source.make_key(version)}"
    known = source.journal.get_conclusion(name)
    if known is not None:
        try:
            return msgspec.convert(known, GuiltyPasses)
        except msgspec.ValidationError:
            # A damaged entry is fetched again.
            pass
    try:
        found = blame_passes(
            case, source.get_target(version), ObservationCache(workers), request.policy
        ).attribution
    except BadInput as error:
        say(str(error))
        return None
    blamed = GuiltyPasses(found.answer, tuple(found.passes))
    source.journal.add_conclusion(name, msgspec.to_builtins(blamed))
    return blamed


def _preview_search(
    source: VersionSequence, versions: list[str], ends: Ends, request: BisectRequest
) -> VersionPreview:
    old, new = ends[::-1] if request.fixed else ends
    return VersionPreview(
        versions=tuple(versions),
        known=tuple(version for version in versions if source.recall_probe(version) is not None),
        first=tuple(
            versions
            if request.sweep
            else dict.fromkeys((versions[old or 0], versions[-1 if new is None else new]))
        ),
        expected_probes=len(versions)
        if request.sweep
        else estimate_tests(len(versions) - 1, request.repro_rate),
    )


def attribute_passes(request: BisectRequest, say: Callable[[str], None]) -> PassAnswer:
    """Attribute a failure and keep the answer beside the case.

    Only the case, the target and the values of the request count.

    Raises:
        NoFailure: If the case passes on the target.
        BadInput: If the target's passes cannot be switched off.
    """
    if request.case is None:
        raise BadInput("name the CASE that fails")
    opened = open_case(request.case, request.inputs, request.expected, request.seed)
    named = request.target or consent.named_by_file(
        opened.parameters.get("target", "onnxruntime"), request.offline
    )
    opened, target = add_oracles(opened, resolve(named), request.oracles)
    started = time.process_time()
    with Workers(request.run_limits, offline=request.offline, say=say) as workers:
        blamed = blame_passes(opened, target, ObservationCache(workers), request.policy)
    found, wanted = blamed.attribution, blamed.wanted
    # The CPU seconds of all child processes that have ended.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = PassAnswer(
        target=target.display,
        answer=found.answer,
        passes=found.passes,
        alone=found.alone,
        kept=found.kept,
        applications=found.applications,
        levels=found.levels,
        probes=found.probes,
        seconds_cpu=round((usage.ru_utime + usage.ru_stime) + time.process_time() - started, 3),
        fingerprint=wanted.key,
        symptom=wanted.symptom,
        beneath=blamed.beneath.symptom if blamed.beneath else "",
    )
    keep_culprit(request.case, "passes", answer.as_json(), say)
    return answer
