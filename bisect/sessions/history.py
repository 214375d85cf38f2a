"""From two releases to the commits between them that may have changed the behaviour, ranked, without building any."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opsieve.bisect.blame.commit_range import read_between
from opsieve.bisect.blame.history_evidence import Clues, gather
from opsieve.bisect.blame.ranking import rank
from opsieve.bisect.blame.release_commit import release_commit
from opsieve.bisect.sources.git_history import describe, merge_base, open_repository
from opsieve.gen.model.bad_input import BadInput, shown

_MOST = 20  # ranked commits that are kept


def rank_commits(
    repository: Path, change: tuple[str, str], folders: tuple[Sequence[Path], Sequence[Path]], clues: Clues
) -> dict[str, Any]:
    """As `_rank`; BadInput with git's own words where it fails on the repository."""
    import git

    try:
        return _rank(repository, change, folders, clues)
    except git.GitCommandError as error:
        said = " ".join(str(error.stderr).split())[:200]
        raise BadInput(f"git cannot read {shown(repository, 200)}: {said}") from None


def _rank(
    repository: Path, change: tuple[str, str], folders: tuple[Sequence[Path], Sequence[Path]], clues: Clues
) -> dict[str, Any]:
    """The key `history` of the answer: commits between the two releases of `change`, the likeliest first, with reasons.

    `folders` are where the two releases are unpacked, () for one that is not: then a tag names its commit. BadInput when
    neither does.
    """
    started = time.monotonic()
    ends = [release_commit(repository, release, where) for release, where in zip(change, folders, strict=True)]
    old, new = (end.sha for end in ends)
    with open_repository(repository) as opened:
        base = merge_base(opened, old, new)
        between = read_between(opened, old, new)
        ranking = rank(between.commits, gather(opened, between, clues, folders[1]))
        suspects = [
            {
                **asdict(describe(opened, suspect.sha)),
                "probability": round(suspect.probability, 4),
                "reasons": list(suspect.reasons),
            }
            for suspect in ranking.suspects[:_MOST]
        ]
    return {
        "repository": str(repository),
        "good": {"release": change[0], "commit": old, "source": ends[0].source, "exact": ends[0].exact},
        "bad": {"release": change[1], "commit": new, "source": ends[1].source, "exact": ends[1].exact},
        "branched": base != old,
        "commits": len(between.commits),
        "cherry_picked": between.dropped,
        "ranked": suspects,
        "none": round(ranking.none, 4),
        "settle": f"opsieve bisect CASE --commits {repository} --good {old[:12]} --bad {new[:12]} --build SCRIPT",
        "seconds": round(time.monotonic() - started, 2),
    }
