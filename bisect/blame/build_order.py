"""Commits that somebody built, in the order of a repository's history."""

from collections.abc import Sequence
from pathlib import Path

from opsieve.bisect.sources.git_history import open_repository


def by_history(repository: Path, commits: Sequence[str], old: str = "", new: str = "") -> list[int]:
    """Places in `commits`, every one after its ancestors; with ends, only of those that `new` has and `old`
    has not, ends left out.
    """
    with open_repository(repository) as found:
        heads = [new] if new else sorted(set(commits))
        rows = found.git.rev_list("--topo-order", "--reverse", *heads, *[f"^{old}"] * bool(old)).splitlines()
    order = {sha: place for place, sha in enumerate(rows) if sha not in (old, new)}
    return sorted(
        (place for place, sha in enumerate(commits) if sha in order), key=lambda place: order[commits[place]]
    )
