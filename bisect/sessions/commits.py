"""One call of `opsieve bisect --commits`: the search through a repository."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from opsieve.backends.judge.oracle_names import add_oracles
from opsieve.backends.registry import ResolvedTarget, names, resolve
from opsieve.backends.releases.consent import named_by_file
from opsieve.bisect.blame.release_commit import find_release_commit
from opsieve.bisect.search.search import estimate_tests
from opsieve.bisect.sessions import answers, sentences, version_rows
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sources import git_history, outcome, release_source, version_sequence
from opsieve.bisect.sources.commit_source import CaseCheck, Commits
from opsieve.gen.case.case import open_case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.printable import count_noun


def bisect_commits(
    request: BisectRequest, repository: Path, say: Callable[[str], None]
) -> answers.CommitAnswer | answers.CommitPreview:
    """Search a repository and keep the answer beside the case; a dry run returns the planned probes."""
    if request.good is None or request.bad is None:
        raise BadInput("name --good and --bad: each a tag, branch, hash, date or backend@path")
    # First in, so last out: scripts and folders are cleaned up under the first.
    with (
        version_sequence.raise_on_sigterm(),
        git_history.explain_git_errors(repository),
        ExitStack() as stack,
    ):
        good, bad = (_resolve_end(end, request, repository) for end in (request.good, request.bad))
        check: Path | CaseCheck = request.check or stack.enter_context(_make_case_check(request))
        source = stack.enter_context(
            Commits(
                repository,
                good,
                bad,
                check,
                request.build,
                paths=request.paths,
                first_parent=request.first_parent,
                sparse=request.sparse,
                limits=request.limits,
                fresh=request.fresh,
                root=outcome.get_default_root(),
                say=say,
            )
        )
        if request.dry_run:
            plan = source.plan
            size = len(plan.between.commits)
            ends = (plan.row[plan.good], plan.row[plan.bad])
            return answers.CommitPreview(
                commits=size,
                first=ends,
                known=sum(source.recall_probe(sha) is not None for sha in ends),
                # `auto` is measured at the bad end, which a dry run does not test.
                expected_probes=estimate_tests(size, request.repro_rate),
            )
        started = time.monotonic()
        found = source.search_commits(
            chance=request.repro_rate,
            confidence=request.confidence,
            jobs=request.probes_at_once,
            progressed=lambda progress: say(
                f"{count_noun(progress.candidates, 'commit')} left, about"
                f" {count_noun(round(progress.expected), 'probe')} to go"
            ),
        )
        answer = replace(sentences.make_commit_answer(found), seconds=round(time.monotonic() - started, 2))
    # A script has no fingerprint: only a case says which failure it was.
    if source.wanted is not None and source.wanted.key:
        answer = replace(answer, fingerprint=source.wanted.key, symptom=source.wanted.symptom)
    answers.keep_culprit(request.case, "commits", answer.as_json(), say)
    return answer


def _resolve_end(end: str, request: BisectRequest, repository: Path) -> str:
    """Return the commit of an end: that of a build, `backend@path`, or the revision itself.

    Raises:
        BadInput: If the build does not state its commit.
    """
    # A revision of git, such as HEAD@{yesterday}, contains the sign as well.
    if end.partition("@")[0] not in names() or "@" not in end:
        return end
    target = (
        resolve(end.partition("@")[0]) if request.check and not request.target else _resolve_target(request)
    )
    build = release_source.open_end(end, target)
    if build is None:
        return end
    found = find_release_commit(repository, version_rows.describe_end(build, target))
    if not found.exact:
        raise BadInput(
            f"{shown(end, 200)} does not say its commit ({found.source} is only near): name the commit"
        )
    return found.sha


def _resolve_target(request: BisectRequest) -> ResolvedTarget:
    """Return the compiler that is built: the requested one, else the case's own."""
    if request.case is None:
        raise BadInput(
            "name the CASE to test each commit with, or --check, a script that exits 0 for good, 125 for"
            " untestable, and 1 to 127 for bad"
        )
    opened = open_case(request.case, request.inputs, request.expected, request.seed)
    target = request.target or opened.parameters.get("target", "")
    if not target:
        raise BadInput("name --target, the compiler that is built, such as onnxscript")
    # Only for a name in the case's file, which may be a stranger's and asks for consent.
    if not request.target:
        named_by_file(target, request.offline, opened.origin.versions)
    return resolve(target)


def _make_case_check(request: BisectRequest) -> CaseCheck:
    """Turn the case into a check of commits."""
    named = _resolve_target(request)
    opened = open_case(request.case or Path(), request.inputs, request.expected, request.seed)
    opened, target = add_oracles(opened, named, request.oracles)
    own = outcome.read_recorded_failure(request.case, opened, target)
    return CaseCheck(opened, target, request.policy, own, request.run_limits)
