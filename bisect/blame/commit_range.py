"""The commits that a newer release has and an older one has not, read from a local clone: nothing is checked
out or written.

Releases are cut on branches of their own, into which commits of the default branch are copied, singly
(cherry-picked) or many in one (squashed). A copy hides who made the change, so that each is traced back to
the commits of the default branch that it carries: by the number of the pull request, else by the lines. What
the older release carries already is no suspect.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git import Repo
if TYPE_CHECKING:
    from git import Repo


_MOST_PATCH = 32 << 20  # characters


@dataclass(frozen=True, slots=True)
class Patch:
    """`lines` are those added and removed, as (file, line with its sign), without blank ones; `places` the
    functions and classes that git names above its hunks, as (file, heading).
    """

    lines: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: frozenset[tuple[str, str]] = frozenset()


def read_patches(repository: "Repo", shas: Sequence[str]) -> dict[str, Patch]:
    """The patches of many commits by one call of git; an empty one where a partial clone lacks the
    contents.
    """
    found = dict.fromkeys(shas, Patch())
    if found:
        shown = repository.git.show("--format=%x00%H", "-U0", "--find-copies", *found, with_exceptions=False)
        for text in shown.split("\0")[1:]:
            sha, _, patch = text.partition("\n")
            found[sha] = _parsed(patch[:_MOST_PATCH])
    return found


def _parsed(patch: str) -> Patch:
    lines: Counter[tuple[str, str]] = Counter()
    places: set[tuple[str, str]] = set()
    file, head = "", True
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            file, head = line.rpartition(" b/")[2], True
        elif line.startswith("@@"):
            head = False
            places.add((file, line.split("@@", 2)[2].strip()))
        elif not head and line[:1] in ("+", "-") and line[1:].strip():
            lines[file, line[0] + line[1:].strip()] += 1
    return Patch(lines, frozenset(place for place in places if place[1]))


_MOST_COMMITS = 20_000
_MOST_COPIES = 60  # commits of a release branch that are traced back
_MOST_TEXT = 6_000  # characters of a description
_CARRIED = 0.9  # of the lines of a change stand in the copy
# seconds by which a change may be younger than its copy: clocks differ, and a copy keeps its first date
_LATER = 86_400
_PULL = re.compile(r"\(#(\d{1,9})\)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit as `git log` lists it; `time` is when it was committed, in seconds since 1970, `description`
    what its message says below the subject.
    """

    sha: str
    subject: str
    time: int
    files: tuple[str, ...]
    description: str = ""

    @property
    def pulls(self) -> frozenset[str]:
        """Numbers of pull requests in the subject."""
        return frozenset(_PULL.findall(self.subject))


@dataclass(frozen=True, slots=True)
class Between:
    """The suspects between `old` and `new`, oldest first.

    `parts` are copies on the newer release's branch, each with the commits that it carries, which are
    suspects in its place.
    """

    old: str
    new: str
    entries: Mapping[str, Entry]
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dropped: int = 0  # that the older release carries already

    @property
    def commits(self) -> list[str]:
        """The hashes of the suspects."""
        return list(self.entries)


def read_between(repository: "Repo", old: str, new: str) -> Between:
    """The range of two commits, with copies on the branch of either release traced back to what they
    carry.
    """
    trunk = default_branch(repository)
    entries = _log(repository, new, f"^{old}")
    own = _log(repository, old, f"^{new}")
    here, there = _Copies(repository, trunk, new), _Copies(repository, trunk, old)
    branched = set(repository.git.rev_list("--no-merges", new, f"^{old}", f"^{trunk}").splitlines())
    copies = [entry for sha, entry in entries.items() if sha in branched][-_MOST_COPIES:]
    parts = {entry.sha: carried for entry in copies if (carried := here.carried(entry))}
    picked = {number for entry in own.values() for number in entry.pulls}
    had = {entry.sha for sha in list(own)[-_MOST_COPIES:] for entry in there.carried(own[sha])}
    suspects: dict[str, Entry] = {}
    for sha, entry in entries.items():
        for part in parts.get(sha, ()):
            suspects.setdefault(part.sha, part)
        if sha not in parts or not here.explained(entry, parts[sha]):
            suspects.setdefault(sha, entry)
    kept = {sha: entry for sha, entry in suspects.items() if sha not in had and not picked & entry.pulls}
    names = {sha: tuple(entry.sha for entry in found) for sha, found in parts.items()}
    return Between(old, new, kept, names, len(suspects) - len(kept))


def default_branch(repository: "Repo") -> str:
    """What the clone's origin calls its main line, else what is checked out."""
    try:
        return str(repository.git.rev_parse("--verify", "--quiet", "refs/remotes/origin/HEAD"))
    except _failures():
        return str(repository.git.rev_parse("HEAD"))


def _log(repository: "Repo", *revisions: str) -> dict[str, Entry]:
    """Commits but merges, parents first, the newest if there are too many."""
    # Without looking for renames no contents are read: a partial clone need not ask for any.
    options = (
        "--no-merges",
        "--reverse",
        "--topo-order",
        "--name-only",
        "--no-renames",
        "--format=%x00%H%x00%ct%x00%s%x00%b%x00",
    )
    fields = iter(repository.git.log(*options, *revisions).split("\0")[1:])
    found = [
        Entry(
            sha,
            subject,
            int(time),
            tuple(name for name in names.splitlines() if name),
            description[:_MOST_TEXT],
        )
        for sha, time, subject, description, names in zip(*[fields] * 5, strict=True)
    ]
    return {entry.sha: entry for entry in found[-_MOST_COMMITS:]}


class _Copies:
    """Traces the commits of a release's branch back to those of the default branch made since it was cut."""

    def __init__(self, repository: "Repo", trunk: str, branch: str):
        self._repository = repository
        bases = repository.git.merge_base(branch, trunk, with_exceptions=False).split()
        self._later = list(_log(repository, trunk, f"^{bases[0]}").values()) if bases else []
        self._patches: dict[str, Patch] = {}

    def carried(self, copy: Entry) -> tuple[Entry, ...]:
        """The commits that `copy` carries, () when it is a change of its own."""
        same = tuple(entry for entry in self._later if entry.pulls & copy.pulls)
        if same or not copy.files:
            return same
        files, until = set(copy.files), copy.time + _LATER
        near = [
            entry
            for entry in self._later
            if entry.files and entry.time <= until and files.issuperset(entry.files)
        ]
        self._read([copy, *near] if near else [])
        return tuple(entry for entry in near if _share(self.lines(entry), self.lines(copy)) >= _CARRIED)

    def explained(self, copy: Entry, parts: tuple[Entry, ...]) -> bool:
        """Whether a copy changes hardly a line that its parts do not."""
        if copy.pulls & frozenset[str]().union(*(entry.pulls for entry in parts)):
            return True
        changed: Counter[tuple[str, str]] = Counter()
        for entry in parts:
            changed += self.lines(entry)
        return _share(self.lines(copy), changed) >= _CARRIED

    def lines(self, entry: Entry) -> Counter[tuple[str, str]]:
        """The lines that a commit adds and removes, as (file, line with its sign), without blank ones."""
        self._read([entry])
        return self._patches[entry.sha].lines

    def _read(self, entries: Sequence[Entry]) -> None:
        """The lines of many commits by one call of git."""
        missing = [entry.sha for entry in entries if entry.sha not in self._patches]
        self._patches |= read_patches(self._repository, missing)


def _share(part: Counter[tuple[str, str]], whole: Counter[tuple[str, str]]) -> float:
    """How much of `part` stands in `whole`, 0 for nothing."""
    return (part & whole).total() / part.total() if part else 0.0


def _failures() -> type[Exception]:
    import git

    return git.GitCommandError
