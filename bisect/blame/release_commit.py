"""Find the commit that a release was built from, without importing or running it.

Statements in the release's files come first, then its contents: a release of Python sources has the files
of its commit. Without files to hash, a tag counts, then a branch of the release, then the commit that
raised the version number on the default branch: the last commit before it is near the place where the
release was cut.

Contents are compared by hashes: the installed `.py` files are hashed as git does it and compared with the
trees of every commit of the clone's branches and tags. Git lists what each commit changed against its first
parent, so one pass over the history counts the agreeing files at every commit, and a blobless clone is
enough.
"""

import contextlib
import hashlib
import mmap
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from opsieve.bisect.blame import built_sources, commit_range
from opsieve.bisect.sources.git_history import find_tag, open_repository, resolve_commit
from opsieve.gen.errors import BadInput, shown

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
        path.relative_to(folder).as_posix(): path
        for folder in folders
        for path in built_sources.list_files([folder])
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
    # Only files with a home in the repository: the others have nothing to agree with.
    hashes = {name: _hash_file(sources[name]) for name in set(homes.values())}
    seen = {
        homes[p] for change in history for p, _, new in change.files if p in homes and new in hashes[homes[p]]
    }
    total, matched = (Counter(name.partition("/")[0] for name in names) for names in (sources, seen))
    # A top folder of which less than half is known here is another project's.
    packages = {package for package in matched if matched[package] * 2 >= total[package]}
    names = sorted(name for name in sources if name.partition("/")[0] in packages)
    masks = _count_agreements(
        repository, history, homes, hashes, {name: 1 << bit for bit, name in enumerate(names)}
    )
    agree = max((mask.bit_count() for mask in masks.values()), default=0)
    # Fewer would agree with some commit of any fork by chance.
    if agree * 2 < len(names) or not agree:
        return None
    best = {change.sha: change.time for change in history if masks[change.sha].bit_count() == agree}
    sha = tagged if tagged in best else _choose_newest(repository, best)
    others = (name for bit, name in enumerate(names) if not masks[sha] >> bit & 1)
    known = set(homes.values())
    exact = all(name not in known or PurePosixPath(name).name in VERSION_FILES for name in others)
    native = any(
        name.partition("/")[0] in packages and PurePosixPath(name).suffix in _NATIVE for name in installed
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
        # A rename is then a removal and an addition, which need no contents in a blobless clone.
        "--no-renames",
    )
    listed = repository.git.log(
        *options,
        # Without it git lists no changes of merges.
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
    trunk = repository.git.rev_list(
        "--first-parent", commit_range.find_default_branch(repository)
    ).splitlines()
    return next((str(sha) for sha in trunk if sha in commits), "") or max(commits, key=commits.__getitem__)


def _hash_file(path: Path) -> frozenset[str]:
    """Return git's hashes of a file as it is and with either kind of line ending."""
    text = path.read_bytes()
    unix = text.replace(b"\r\n", b"\n")
    # A wheel that was built on Windows, or from a checkout there, has other line ends than git.
    forms = {text, unix, unix.replace(b"\n", b"\r\n")}
    return frozenset(
        hashlib.sha1(b"blob %d\0" % len(form) + form, usedforsecurity=False).hexdigest() for form in forms
    )


# onnxruntime writes `git-commit-id=<hash>` into its shared library (1.17 and later); others a line of Python.
_BINARY = re.compile(rb"git-commit-id=([0-9a-f]{7,40})")
_PYTHON = re.compile(
    r"""^\s*(?:__git_version__|git_version|__commit__|commit_id|__commit_id__|git_commit)"""
    r"""\s*(?::\s*\w+\s*)?=\s*['"]g?([0-9a-f]{7,40})['"]""",
    re.M,
)
_MOST_TEXT = 1 << 16
_NUMBER_FILES = (
    "VERSION",
    "VERSION_NUMBER",
    "VERSION.txt",
    "version.txt",
    "pyproject.toml",
    "setup.py",
    ":(glob)*/version.py",
)


@dataclass(frozen=True, slots=True)
class ReleaseCommit:
    """A commit of the repository and its source: the name of a release file, a tag or a version file.

    If not `exact`, the commit is near the place where the release left the default branch.
    """

    sha: str
    source: str
    exact: bool = True


@dataclass(frozen=True, slots=True)
class ReleaseEnd:
    """A release or build at one end of a range.

    `number` is "" if unknown, `folders` are where it is unpacked, `commit` is the commit stated by its name.
    """

    name: str
    number: str = ""
    folders: Sequence[Path] = ()
    commit: str = ""


def find_release_commit(repository: Path, built: ReleaseEnd, *, before: bool = False) -> ReleaseCommit:
    """Find the commit that was built, from its name, its files or a tag of the repository.

    A nightly that states only its day may be of any commit of that day: the last one is taken, or, for an end
    `before` a change, the last one of the day before.

    Raises:
        BadInput: If the name, the files and the tags all lack the commit.
    """
    import git

    with open_repository(repository) as found:
        if built.commit:
            return ReleaseCommit(resolve_commit(found, built.commit), built.name)
        for name, written in _read_stated_commits(built.folders):
            try:
                return ReleaseCommit(resolve_commit(found, written), name)
            except BadInput:
                # A commit that this clone does not have: a tag may be there all the same
                continue
        near = _find_nightly_commit(found, built.number, before)
        if near is not None and near.exact:
            return near
        tag = _find_tag_commit(found, repository, built.number)
        content = None
        # A history that is too long, or damaged, may still have a readable tag.
        with contextlib.suppress(git.GitCommandError):
            content = match_content(found, built.folders, tag.sha if tag else "")
        if content is not None and (content.pure or not (tag or near)):
            said = f"{content.agree} of {content.files} Python files agree"
            return ReleaseCommit(content.sha, said, exact=content.exact and content.pure)
        near = near or tag or _find_branch_point(found, built.number)
        if near is None and not built.number:
            raise BadInput(f"{shown(built.name, 200)} states no commit: name it by its commit or its version")
        if near is None:
            raise BadInput(
                f"the repository {shown(repository, 200)} has no tag for release {shown(built.number)}, no"
                " commit with its files, and no branch or version file names it"
            )
        return near


def _find_tag_commit(repository: "Repo", path: Path, release: str) -> ReleaseCommit | None:
    """Return the commit of a release's tag, or None if there is no tag or this clone lacks the commit."""
    # A clone may be shallow, or of a fork without tags; other evidence follows.
    with contextlib.suppress(BadInput):
        tag = find_tag(path, release) if release else ""
        return ReleaseCommit(resolve_commit(repository, tag), tag)
    return None


def _find_nightly_commit(repository: "Repo", number: str, before: bool) -> ReleaseCommit | None:
    """Find the commit of a development version.

    It is in the local part (`0.20.dev12+g1a2b3c4`), or else the last one of the stated day, or the last
    before it.
    """
    stated = re.search(r"\+(?:.*\.)?g?([0-9a-f]{7,40})(?:\.|$)", number)
    # Only digits are more likely a date.
    if stated and not stated[1].isdigit():
        # The commit that a wheel states may be missing from this clone.
        with contextlib.suppress(BadInput):
            return ReleaseCommit(resolve_commit(repository, stated[1]), number)
    day = re.search(r"(?:\.dev|^)(20\d\d)([01]\d)([0-3]\d)", number)
    if day is None:
        return None
    date = f"{day[1]}-{day[2]}-{day[3]}"
    moment = f"{date}T00:00:00" if before else f"{date}T23:59:59"
    last = repository.git.rev_list(
        "-1",
        "--first-parent",
        f"--before={moment}",
        commit_range.find_default_branch(repository),
        with_exceptions=False,
    )
    said = f"the last commit {'before' if before else 'of'} {date}"
    return ReleaseCommit(str(last), said, exact=False) if last else None


def _find_branch_point(repository: "Repo", release: str) -> ReleaseCommit | None:
    """Find a commit near a release without a tag.

    It is the tip of the release's branch or of its series, else the last commit with its version number.
    """
    if not release:
        return None
    refs = repository.git.for_each_ref("--format=%(refname)", "refs/heads", "refs/remotes").splitlines()
    # `rel-1.20.1` first, then the branch of the series.
    for number in (release, ".".join(release.split(".")[:2])):
        pattern = re.compile(rf"/(?:rel|release|releases)[-/_]v?{re.escape(number)}$")
        branch = next((ref for ref in refs if pattern.search(ref)), "")
        if branch:
            return ReleaseCommit(
                resolve_commit(repository, branch), branch.removeprefix("refs/"), exact=False
            )
    trunk = commit_range.find_default_branch(repository)
    # 0.1.9 is no part of 0.1.98
    number = rf"(^|[^0-9.]){re.escape(release)}($|[^0-9.])"
    changed = repository.git.log(
        "--format=%H",
        *commit_range.NO_PROGRAMS,
        "-1",
        "--extended-regexp",
        f"-G{number}",
        trunk,
        "--",
        *_NUMBER_FILES,
    )
    if not changed:
        return None
    held = repository.git.grep("-l", "-E", "-e", number, changed, "--", *_NUMBER_FILES, with_exceptions=False)
    # If the commit took the number away, the one before it is the last that had it.
    last = trunk if held else repository.git.rev_parse("--verify", f"{changed}^")
    return ReleaseCommit(str(last), f"the last commit of version {release}", exact=False)


def _read_stated_commits(folders: Sequence[Path]) -> Iterable[tuple[str, str]]:
    """Yield the commit hashes stated in files of a release, text files before binaries."""
    files = built_sources.list_files(folders)
    for file in files:
        if file.name in VERSION_FILES and file.is_file():
            with file.open("rb") as stream:
                text = stream.read(_MOST_TEXT).decode("utf-8", "replace")
            yield from ((file.name, match) for match in _PYTHON.findall(text))
    for file in built_sources.find_binaries(files):
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = _BINARY.search(data)
            written = match[1].decode() if match else ""
        if written:
            yield file.name, written


def sort_by_history(repository: Path, commits: Sequence[str], old: str = "", new: str = "") -> list[int]:
    """Sort the places in `commits` so that every commit comes after its ancestors.

    With ends, keep only the commits that `new` has and `old` lacks, without the ends themselves.
    """
    with open_repository(repository) as found:
        heads = [new] if new else sorted(set(commits))
        rows = found.git.rev_list("--topo-order", "--reverse", *heads, *[f"^{old}"] * bool(old)).splitlines()
    order = {sha: place for place, sha in enumerate(rows) if sha not in (old, new)}
    return sorted(
        (place for place, sha in enumerate(commits) if sha in order), key=lambda place: order[commits[place]]
    )
