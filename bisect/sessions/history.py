"""Rank the commits between two versions by how likely they changed the behaviour, without building any."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from opsieve.bisect.blame import commit_range, history_evidence, wording
from opsieve.bisect.blame.ranking import rank_by_evidence
from opsieve.bisect.blame.release_commit import ReleaseCommit, ReleaseEnd, find_release_commit
from opsieve.bisect.sessions.answers import EndCommit, HistoryRanking, RankedCommit
from opsieve.bisect.sources.git_history import (
    describe_commit,
    explain_git_errors,
    find_merge_base,
    open_repository,
)
from opsieve.gen.errors import BadInput

if TYPE_CHECKING:
    from git import Repo

# Ranked commits that are kept
_MOST = 20


def rank_commits(
    repository: Path, change: tuple[ReleaseEnd, ReleaseEnd], clues: wording.Clues
) -> HistoryRanking:
    """Rank the commits between the two versions of `change`, the likeliest first, with reasons.

    Raises:
        BadInput: If the commit of a version is unknown, or, with git's own message, if git fails on the
        repository.
    """
    # A partial clone fetches objects late, so that any command of git may fail.
    with explain_git_errors(repository):
        return _rank_range(repository, change, clues)


def _rank_range(
    repository: Path, change: tuple[ReleaseEnd, ReleaseEnd], clues: wording.Clues
) -> HistoryRanking:
    started = time.monotonic()
    ends = [find_release_commit(repository, built, before=built is change[0]) for built in change]
    old, new = (end.sha for end in ends)
    with open_repository(repository) as opened:
        # Releases often come from branches; then the older one's commit is not an ancestor of the newer
        # one's.
        base = find_merge_base(opened, old, new)
        between = commit_range.read_between(opened, old, new)
        _check_order(opened, change, ends, base, bool(between.commits))
        ranking = rank_by_evidence(
            between.commits,
            history_evidence.gather_evidence(opened, between, clues, change[1].folders),
            is_exact=all(end.exact for end in ends),
        )
        suspects = tuple(
            RankedCommit(
                **asdict(describe_commit(opened, suspect.sha)),
                probability=round(suspect.probability, 4),
                reasons=suspect.reasons,
            )
            for suspect in ranking.suspects[:_MOST]
        )
    good, bad = (
        EndCommit(built.name, end.sha, end.source, end.exact) for built, end in zip(change, ends, strict=True)
    )
    return HistoryRanking(
        repository=str(repository),
        good=good,
        bad=bad,
        branched=base != old,
        commits=len(between.commits),
        cherry_picked=between.dropped,
        ranked=suspects,
        none=round(ranking.none, 4),
        settle=(
            f"opsieve bisect CASE --commits {repository} --good {old[:12]} --bad {new[:12]} --build SCRIPT"
        ),
        seconds=round(time.monotonic() - started, 2),
    )


def _check_order(
    repository: "Repo",
    change: Sequence[ReleaseEnd],
    ends: Sequence[ReleaseCommit],
    base: str,
    any_between: bool,
) -> None:
    """Check that the newer release has the newer commit.

    The dates count only for exact ends: on a release branch a patch may be younger than the next release.

    Raises:
        BadInput: If the order is wrong.
    """
    dates = [repository.commit(end.sha).committed_date for end in ends]
    # A commit found by its date or its tree may be off by days, so its date proves no wrong order.
    exact = all(end.exact for end in ends)
    if base != ends[1].sha and any_between and (exact or base == ends[0].sha or dates[0] <= dates[1]):
        return
    read = " and ".join(
        f"{end.sha[:12]} for {built.name} ({end.source})" for built, end in zip(change, ends, strict=True)
    )
    raise BadInput(
        f"the commits of the two releases are not in order, or none lies between them: {read}; "
        "the clone may lack the right ones (git fetch --all --tags)"
    )
