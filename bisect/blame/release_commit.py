"""Find the commit that a release was built from, without importing or running it.

Statements in the release's files come first, then its contents: a release of Python sources has the files of
its commit. Without files to hash, a tag counts, then a branch of the release, then the commit that raised the
version number on the default branch: the last commit before it is near the place where the release was cut.
"""

import contextlib
import mmap
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opsieve.bisect.blame.built_sources import find_binaries, list_files
from opsieve.bisect.blame.commit_range import find_default_branch
from opsieve.bisect.blame.release_content import VERSION_FILES, match_content
from opsieve.bisect.sources.git_history import find_tag, open_repository, resolve_commit
from opsieve.gen.errors import BadInput, shown

if TYPE_CHECKING:
    from git import Repo


# onnxruntime writes `git-commit-id=<hash>` into its shared library (1.17 and later); others a line of Python.
_BINARY = re.compile(rb"git-commit-id=([0-9a-f]{7,40})")
_PYTHON = re.compile(
    r"""^\s*(?:__git_version__|git_version|__commit__|commit_id|__commit_id__|git_commit)\s*(?::\s*\w+\s*)?=\s*['"]g?([0-9a-f]{7,40})['"]""",
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
    if stated and not stated[1].isdigit():
        with contextlib.suppress(BadInput):
            return ReleaseCommit(resolve_commit(repository, stated[1]), number)
    day = re.search(r"(?:\.dev|^)(20\d\d)([01]\d)([0-3]\d)", number)
    if day is None:
        return None
    date = f"{day[1]}-{day[2]}-{day[3]}"
    moment = f"{date}T00:00:00" if before else f"{date}T23:59:59"
    last = repository.git.rev_list(
        "-1", "--first-parent", f"--before={moment}", find_default_branch(repository), with_exceptions=False
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
    for number in (release, ".".join(release.split(".")[:2])):
        pattern = re.compile(rf"/(?:rel|release|releases)[-/_]v?{re.escape(number)}$")
        branch = next((ref for ref in refs if pattern.search(ref)), "")
        if branch:
            return ReleaseCommit(
                resolve_commit(repository, branch), branch.removeprefix("refs/"), exact=False
            )
    trunk = find_default_branch(repository)
    # 0.1.9 is no part of 0.1.98
    number = rf"(^|[^0-9.]){re.escape(release)}($|[^0-9.])"
    changed = repository.git.log(
        "--format=%H", "-1", "--extended-regexp", f"-G{number}", trunk, "--", *_NUMBER_FILES
    )
    if not changed:
        return None
    held = repository.git.grep("-l", "-E", "-e", number, changed, "--", *_NUMBER_FILES, with_exceptions=False)
    last = trunk if held else repository.git.rev_parse("--verify", f"{changed}^")
    return ReleaseCommit(str(last), f"the last commit of version {release}", exact=False)


def _read_stated_commits(folders: Sequence[Path]) -> Iterable[tuple[str, str]]:
    """Yield the commit hashes stated in files of a release, text files before binaries."""
    files = list_files(folders)
    for file in files:
        if file.name in VERSION_FILES and file.is_file():
            with file.open("rb") as stream:
                text = stream.read(_MOST_TEXT).decode("utf-8", "replace")
            yield from ((file.name, match) for match in _PYTHON.findall(text))
    for file in find_binaries(files):
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
