"""Read commits of a local repository through git: names, ranges with merges, changed files. Nothing is
written.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import read_file

if TYPE_CHECKING:
    from git import Repo

_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?")
_PULL = re.compile(r"#(\d{1,9})(?!\w)")
_GITHUB = re.compile(r"(?:https://|git@|ssh://git@)github\.com[/:]([\w.-]{1,100}/[\w.-]{1,100}?)(?:\.git)?/?")
# Any key that may name an included file
_INCLUDED = re.compile(r"(?im)^(?:[^\S\n]*\[[^\]\n]*\])?[^\S\n]*path[^\S\n]*=[^\S\n]*(.+)$")
_FILES = 200


@dataclass(frozen=True, slots=True)
class Range:
    """Commits that `new` has and `old` lacks, every one after its parents, so that the last is `new`.

    `parents` are places in `commits`; parents outside the range are left out. `closed` means that `new`
    touches no requested path and is included only to close the range.
    """

    commits: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as reports show it; `pull_request` is the number in its subject, `link` its page if known."""

    sha: str
    subject: str
    author: str
    date: str
    parents: tuple[str, ...]
    files: tuple[str, ...]
    diffstat: str
    pull_request: str
    link: str


def open_repository(path: Path) -> "Repo":
    """Open the repository at `path`.

    Raises:
        BadInput: If it is missing.
    """
    import git

    _check_config([path / ".git" / "config", path / "config"])
    try:
        repository = git.Repo(path)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        raise BadInput(f"{shown(path, 200)} is not a git repository") from None
    # A clone may be a stranger's, and its .git/config names programs that git would start while it reads.
    repository.git.set_persistent_git_options(
        c=["core.fsmonitor=false", "core.askPass=", "credential.helper=", "log.showSignature=false"]
    )
    # A partial clone fetches what it lacks; the other protocols start programs that a clone can name.
    repository.git.update_environment(GIT_ALLOW_PROTOCOL="http:https")
    top = repository.working_tree_dir
    if top is not None and not (Path(top) / ".git").exists():
        # A mirror without a config does not say that it is bare.
        repository.git.update_environment(GIT_DIR=str(repository.git_dir))
    return repository


def _check_config(waiting: list[Path]) -> None:
    """Raise BadInput unless the configuration and what it includes are small regular files: GitPython reads
    all of each, and a device has no end.
    """
    for place in waiting:
        if os.path.exists(place) and not os.path.isdir(place):
            text = read_file(place, 1 << 20).decode("utf-8", "replace").replace("\\\n", "").replace("\0", "")
            # Links to folders give one file any number of names.
            waiting += sorted(
                {
                    Path(os.path.normpath(place.parent / os.path.expanduser(name.strip('"\r '))))
                    for name in _INCLUDED.findall(text)
                }.difference(waiting)
            )[: max(0, 100 - len(waiting))]


@contextmanager
def explain_git_errors(path: Path) -> Iterator[None]:
    """Raise BadInput with git's own words if git fails on the repository at `path`."""
    import git

    try:
        yield
    except git.GitCommandError as error:
        said = " ".join(str(error.stderr).split()).removeprefix("stderr: ").strip("'")[:200]
        raise BadInput(f"git cannot read {shown(path, 200)}: {said}") from None


def check_readable(path: Path) -> None:
    """Raise BadInput if `path` is not a repository, has no commit, or cannot be read by git."""
    with open_repository(path) as repository, explain_git_errors(path):
        if not repository.git.log("-1", "--all", "--format=%H", "--name-only"):
            raise BadInput(f"the repository {shown(path, 200)} has no commits")


def resolve_commit(repository: "Repo", name: str) -> str:
    """Resolve a tag, a branch, a hash or a date (the last commit of HEAD before it) to a commit hash."""
    import git

    try:
        # Git would take it for an option.
        if name.startswith("-"):
            raise ValueError
        if _DATE.fullmatch(name):
            # First parents only: the date of a merged commit says nothing about when it reached the branch.
            found = repository.git.rev_list("-1", "--first-parent", f"--before={name}", "HEAD")
        else:
            # An annotated tag is an object of its own; the suffix leads to its commit.
            found = repository.git.rev_parse("--verify", "--quiet", f"{name}^{{commit}}")
        if not found:
            raise ValueError
    except (git.GitCommandError, ValueError):
        raise BadInput(
            f"the repository has no commit {shown(name)}: name a tag, a branch, a hash or a date"
            + " (the clone is shallow: git fetch --unshallow gets the rest of it)" * is_shallow(repository)
        ) from None
    return str(found)


def find_tag(path: Path, release: str) -> str:
    """Find the tag of a release: `v1.20.0`, `1.20.0` or one that ends so.

    Raises:
        BadInput: If there is no such tag.
    """
    with open_repository(path) as repository:
        tags = [tag.name for tag in repository.tags]
    for wanted in (f"v{release}", release):
        if wanted in tags:
            return wanted
    # No digit before it, or 1.2.0 would be found in v11.2.0.
    ends = [tag for tag in tags if re.search(rf"(?<![\d.]){re.escape(release)}$", tag)]
    if not ends:
        raise BadInput(f"the repository {shown(path, 200)} has no tag for release {shown(release)}")
    # The shortest has the fewest additions, such as a name of a candidate.
    return min(ends, key=len)


def is_ancestor(repository: "Repo", old: str, new: str) -> bool:
    """Whether `old` is `new` or one of its ancestors."""
    return repository.is_ancestor(repository.commit(old), repository.commit(new))


def find_merge_base(repository: "Repo", a: str, b: str) -> str:
    """Return the newest common commit.

    Raises:
        BadInput: If the two have no common history.
    """
    found = repository.merge_base(repository.commit(a), repository.commit(b))
    if not found:
        raise BadInput(
            "the good and the bad end share no history"
            + ": the clone is shallow; git fetch --unshallow gets the rest of it" * is_shallow(repository)
        )
    return str(found[0])


def list_first_parents(repository: "Repo", old: str, new: str, most: int = 10_000) -> list[str]:
    """List the row of first parents that leads to `new` and is outside `old`'s history, oldest first."""
    lines = repository.git.rev_list("--first-parent", f"--max-count={most}", new, f"^{old}").splitlines()
    return [str(line) for line in reversed(lines)]


def read_range(
    repository: "Repo", old: str, new: str, paths: tuple[str, ...] = (), first_parent: bool = False
) -> Range:
    """Read the commits to search.

    With `paths`, only commits that touch one of them count, with their remaining parents, and `new`.
    """
    # Parents before their children, which the numbering of the graph needs.
    options = ["--topo-order", "--reverse", "--parents"] + ["--first-parent"] * first_parent
    commits: list[str] = []
    above: list[list[str]] = []
    for line in repository.git.rev_list(*options, new, f"^{old}", "--", *paths).splitlines():
        sha, *ancestors = line.split()
        commits.append(sha)
        above.append(ancestors[:1] if first_parent else ancestors)
    closed = bool(paths) and new not in commits
    if closed:
        inner = {parent for ancestors in above for parent in ancestors}
        # Its parents are the last commits of every line, so that it closes all of them.
        above.append([sha for sha in commits if sha not in inner])
        commits.append(new)
    where = {sha: place for place, sha in enumerate(commits)}
    return Range(
        tuple(commits),
        tuple(tuple(where[sha] for sha in ancestors if sha in where) for ancestors in above),
        closed,
    )


def check_paths(repository: "Repo", new: str, paths: tuple[str, ...]) -> None:
    """Check that each path occurs in the history up to `new`.

    Raises:
        BadInput: For a path that every commit leaves alone: it is mistyped.
    """
    for path in paths:
        if not repository.git.rev_list("-1", new, "--", path):
            raise BadInput(
                f"no commit up to {new[:12]} touches {shown(path, 200)}: give --paths as they are named in"
                " the repository"
            )


def is_shallow(repository: "Repo") -> bool:
    """Whether the repository lacks the older part of its history."""
    return str(repository.git.rev_parse("--is-shallow-repository")) == "true"


def get_tree(repository: "Repo", sha: str) -> str:
    """Return the hash of a commit's files: equal trees build equally."""
    return str(repository.git.rev_parse(f"{sha}^{{tree}}"))


def describe_commit(repository: "Repo", sha: str) -> Commit:
    """Describe a commit for a report; file names are bounded in number, the text is as the author wrote
    it.
    """
    commit = repository.commit(sha)
    text = commit.message if isinstance(commit.message, str) else commit.message.decode("utf-8", "replace")
    subject = text.splitlines()[0][:300] if text.strip() else ""
    # What a merge brought is what differs from its first parent: diff-tree of a merge alone prints one list
    # for each parent.
    ends = (commit.parents[0].hexsha, sha) if commit.parents else ("--root", "--no-commit-id", sha)
    files = repository.git.diff_tree("-r", "--name-only", *ends).splitlines()
    page = _GITHUB.fullmatch(next((each.url for each in repository.remotes if each.name == "origin"), ""))
    return Commit(
        str(sha),
        subject,
        str(commit.author.name or "")[:100],
        commit.authored_datetime.isoformat(),
        tuple(parent.hexsha for parent in commit.parents),
        tuple(files[:_FILES]),
        # A partial clone may lack contents.
        repository.git.diff_tree("-r", "--shortstat", *ends, with_exceptions=False).strip(),
        # The last: an issue may be named before
        next(reversed(_PULL.findall(subject)), ""),
        f"https://github.com/{page[1]}/commit/{sha}" if page else "",
    )
