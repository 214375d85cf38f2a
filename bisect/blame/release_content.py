"""Find the commit whose files a release of Python sources holds, without importing or running anything.

The installed `.py` files are hashed as git does it and compared with the trees of every commit of the clone's
branches and tags. Git lists what each commit changed against its first parent, so one pass over the history
counts the agreeing files at every commit. Only hashes are compared, so a blobless clone is enough.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from opsieve.bisect.blame.built_sources import list_files
from opsieve.bisect.blame.commit_range import find_default_branch

if TYPE_CHECKING:
    from git import Repo

# Files that many build tools write anew when they make a wheel.
VERSION_FILES = frozenset(
    ["_version.py", "version.py", "build_and_package_info.py", "_build_info.py", "git_version.py"]
)
_NATIVE = frozenset([".so", ".pyd", ".dylib", ".dll"])
_MOST_BYTES = 4 << 20
_MOST_COMMITS = 50_000
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ContentMatch:
    """The newest commit with the most agreeing files.

    `exact`: the other files are version files, or are in no commit because the build made them. `pure`: the
    release holds no native code.
    """

    sha: str
    agree: int
    files: int
    exact: bool
    pure: bool


@dataclass(frozen=True, slots=True)
class _Change:
    """A commit with its changes against its first parent, as (path, hash before, hash after)."""

    sha: str
    parent: str
    time: int
    files: tuple[tuple[str, str, str], ...]


def match_content(repository: "Repo", folders: Sequence[Path], tagged: str = "") -> ContentMatch | None:
    """Find the commit whose Python files are those in `folders`.

    Returns None if fewer than half of the files agree with any commit. Among commits that agree equally,
    `tagged` wins, then the newest on the default branch, then the newest.
    """
    installed = {
        path.relative_to(folder).as_posix(): path for folder in folders for path in list_files([folder])
    }
    # Whether a file is worth comparing: an empty one agrees with too much.
    sources = {
        name: path
        for name, path in installed.items()
        if name.endswith(".py") and (path.is_file() and 0 < path.stat().st_size <= _MOST_BYTES)
    }
    if not sources:
        return None
    history = _read_history(repository)
    homes = _find_homes({path for change in history for path, _, _ in change.files}, sources)
    hashes = {name: _hash_file(sources[name]) for name in set(homes.values())}
    seen = {
        homes[p] for change in history for p, _, new in change.files if p in homes and new in hashes[homes[p]]
    }
    total, matched = Counter(map(_get_package, sources)), Counter(map(_get_package, seen))
    packages = {package for package in matched if matched[package] * 2 >= total[package]}
    names = sorted(name for name in sources if _get_package(name) in packages)
    masks = _count_agreements(
        repository, history, homes, hashes, {name: 1 << bit for bit, name in enumerate(names)}
    )
    agree = max((mask.bit_count() for mask in masks.values()), default=0)
    if agree * 2 < len(names) or not agree:
        return None
    best = {change.sha: change.time for change in history if masks[change.sha].bit_count() == agree}
    sha = tagged if tagged in best else _choose_newest(repository, best)
    others = (name for bit, name in enumerate(names) if not masks[sha] >> bit & 1)
    known = set(homes.values())
    exact = all(name not in known or PurePosixPath(name).name in VERSION_FILES for name in others)
    native = any(
        _get_package(name) in packages and PurePosixPath(name).suffix in _NATIVE for name in installed
    )
    return ContentMatch(sha, agree, len(names), exact, not native)


def _read_history(repository: "Repo") -> list[_Change]:
    """Read every commit of branches and tags, parents first."""
    options = (
        "--topo-order",
        "--reverse",
        f"--max-count={_MOST_COMMITS}",
        "--raw",
        "--no-abbrev",
        "--no-renames",
    )
    listed = repository.git.log(
        *options,
        "--diff-merges=first-parent",
        "--format=%x00%H %ct %P",
        "--branches",
        "--remotes",
        "--tags",
        "HEAD",
        kill_after_timeout=_SECONDS,
    )
    return [_read_change(entry) for entry in listed.split("\0")[1:]]


def _read_change(entry: str) -> _Change:
    """Parse one entry of `git log --raw`."""
    head, *lines = entry.splitlines()
    sha, time, *parents = head.split()
    files = []
    for line in lines:
        status, _, path = line.partition("\t")
        if path.endswith(".py"):
            _, _, old, new, _ = status.split()
            files.append((path, old, new))
    return _Change(sha, parents[0] if parents else "", int(time), tuple(files))


def _find_homes(paths: Iterable[str], sources: Mapping[str, Path]) -> dict[str, str]:
    """Map each path of the repository to the installed file whose name it ends with."""
    homes = {}
    for path in paths:
        parts = path.split("/")
        ends = ("/".join(parts[place:]) for place in range(len(parts)))
        home = next((end for end in ends if end in sources), "")
        if home:
            homes[path] = home
    return homes


def _count_agreements(
    repository: "Repo",
    history: Sequence[_Change],
    homes: Mapping[str, str],
    hashes: Mapping[str, frozenset[str]],
    bits: Mapping[str, int],
) -> dict[str, int]:
    """Return the installed files that agree at each commit, as the sum of their bits."""
    masks: dict[str, int] = {"": 0}
    for change in history:
        # The parent is older than the range that was read.
        if change.parent not in masks:
            listed = repository.git.ls_tree("-r", change.parent, with_exceptions=False).splitlines()
            entries = [(path, line.split()[2]) for line, _, path in (line.partition("\t") for line in listed)]
            masks[change.parent] = sum(
                {bits[homes[p]] for p, sha in entries if homes.get(p) in bits and sha in hashes[homes[p]]}
            )
        off = on = 0
        for path, old, new in change.files:
            name = homes.get(path, "")
            if name in bits:
                off |= bits[name] if old in hashes[name] else 0
                on |= bits[name] if new in hashes[name] else 0
        masks[change.sha] = masks[change.parent] & ~off | on
    return masks


def _choose_newest(repository: "Repo", commits: Mapping[str, int]) -> str:
    """Choose the newest commit on the default branch, else the newest by date."""
    trunk = repository.git.rev_list("--first-parent", find_default_branch(repository)).splitlines()
    return next((str(sha) for sha in trunk if sha in commits), "") or max(commits, key=commits.__getitem__)


def _hash_file(path: Path) -> frozenset[str]:
    """Return git's hashes of a file as it is and with either kind of line ending."""
    text = path.read_bytes()
    unix = text.replace(b"\r\n", b"\n")
    forms = {text, unix, unix.replace(b"\n", b"\r\n")}
    return frozenset(
        hashlib.sha1(b"blob %d\0" % len(form) + form, usedforsecurity=False).hexdigest() for form in forms
    )


def _get_package(name: str) -> str:
    return name.partition("/")[0]
