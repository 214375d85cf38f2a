"""The commits that a newer release has and an older one lacks, read from a local clone without a checkout.

Releases are cut on branches of their own, into which commits of the default branch are copied, singly
(cherry-picked) or many in one (squashed). A copy hides the author of the change, so each copy is traced back
to the original commits: by the number of the pull request, else by the changed lines. A change that the older
release already has is excluded.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git import Repo


# Characters
_MOST_PATCH = 32 << 20
# A clone's configuration may name programs that compare files; git has no setting that switches them off.
NO_PROGRAMS = ("--no-ext-diff", "--no-textconv")


@dataclass(frozen=True, slots=True)
class Patch:
    """The changed lines of a commit and where they are.

    `lines` are the added and removed lines as (file, line with its sign), without blank ones; `places` are
    the functions and classes in git's hunk headings, as (file, heading).
    """

    lines: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: frozenset[tuple[str, str]] = frozenset()


def read_patches(repository: "Repo", shas: Sequence[str]) -> dict[str, Patch]:
    """Read the patches of many commits with one call of git.

    A patch is empty if a partial clone lacks the contents.
    """
    found = dict.fromkeys(shas, Patch())
    if found:
        # A zero byte cannot stand in a message, so that no text is taken for the next commit.
        shown = repository.git.show(
            "--format=%x00%H", "-U0", "--find-copies", *NO_PROGRAMS, *found, with_exceptions=False
        )
        for text in shown.split("\0")[1:]:
            sha, _, patch = text.partition("\n")
            found[sha] = _parse_patch(patch[:_MOST_PATCH])
    return found


def _parse_patch(patch: str) -> Patch:
    """Parse the output of `git show -U0` for one commit."""
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
# Commits of a release branch that are traced back
_MOST_COPIES = 60
# Characters of a description
_MOST_TEXT = 6_000
# The share of a change's lines that the copy must contain.
_CARRIED = 0.9
# seconds by which a change may be younger than its copy: clocks differ, and a copy keeps its first date
_LATER = 86_400
_PULL = re.compile(r"\(#(\d{1,9})\)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit as `git log` lists it; `time` is the commit time in seconds since 1970.

    `description` is the message below the subject.
    """

    sha: str
    subject: str
    time: int
    files: tuple[str, ...]
    description: str = ""

    @property
    def pulls(self) -> frozenset[str]:
        """Return the numbers of pull requests in the subject."""
        return frozenset(_PULL.findall(self.subject))


@dataclass(frozen=True, slots=True)
class Between:
    """The suspects between `old` and `new`, oldest first.

    `parts` maps a copy on the newer release's branch to the original commits, which are suspects in its
    place. `dropped` counts the commits that the older release already has.
    """

    old: str
    new: str
    entries: Mapping[str, Entry]
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # That the older release carries already
    dropped: int = 0

    @property
    def commits(self) -> list[str]:
        """The hashes of the suspects."""
        return list(self.entries)


def read_between(repository: "Repo", old: str, new: str) -> Between:
    """Read the range between two commits and trace copies on either release branch back to their
    originals.
    """
    trunk = find_default_branch(repository)
    entries = _read_log(repository, new, f"^{old}")
    own = _read_log(repository, old, f"^{new}")
    here, there = _Copies(repository, trunk, new), _Copies(repository, trunk, old)
    branched = set(repository.git.rev_list("--no-merges", new, f"^{old}", f"^{trunk}").splitlines())
    # The newest ones: each copy is compared with every commit since the branch was cut.
    copies = [entry for sha, entry in entries.items() if sha in branched][-_MOST_COPIES:]
    parts = {entry.sha: carried for entry in copies if (carried := here.trace_copy(entry))}
    picked = {number for entry in own.values() for number in entry.pulls}
    had = {entry.sha for sha in list(own)[-_MOST_COPIES:] for entry in there.trace_copy(own[sha])}
    suspects: dict[str, Entry] = {}
    for sha, entry in entries.items():
        for part in parts.get(sha, ()):
            suspects.setdefault(part.sha, part)
        if sha not in parts or not here.is_explained(entry, parts[sha]):
            suspects.setdefault(sha, entry)
    # What the older release carries too cannot make it behave differently.
    kept = {sha: entry for sha, entry in suspects.items() if sha not in had and not picked & entry.pulls}
    names = {sha: tuple(entry.sha for entry in found) for sha, found in parts.items()}
    return Between(old, new, kept, names, len(suspects) - len(kept))


def find_default_branch(repository: "Repo") -> str:
    """Return the commit of the clone's origin/HEAD, or of the checkout if there is no such reference."""
    head = "refs/remotes/origin/HEAD"
    found = repository.git.rev_parse("--verify", "--quiet", head, with_exceptions=False)
    return str(found or repository.git.rev_parse("HEAD"))


def _read_log(repository: "Repo", *revisions: str) -> dict[str, Entry]:
    """Read the newest commits without merges, parents first."""
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
    """Traces the commits of a release branch back to commits of the default branch made since it was cut."""

    def __init__(self, repository: "Repo", trunk: str, branch: str):
        self._repository = repository
        bases = repository.git.merge_base(branch, trunk, with_exceptions=False).split()
        self._later = list(_read_log(repository, trunk, f"^{bases[0]}").values()) if bases else []
        self._patches: dict[str, Patch] = {}

    def trace_copy(self, copy: Entry) -> tuple[Entry, ...]:
        """Return the commits that `copy` contains, or () if it is an original change."""
        # The number of the pull request is exact and costs no patches.
        same = tuple(entry for entry in self._later if entry.pulls & copy.pulls)
        if same or not copy.files:
            return same
        files, until = set(copy.files), copy.time + _LATER
        near = [
            entry
            for entry in self._later
            # A squashed copy has the files of each of its parts.
            if entry.files and entry.time <= until and files.issuperset(entry.files)
        ]
        self._load_patches([copy, *near] if near else [])
        return tuple(
            entry
            for entry in near
            if _compute_share(self.read_lines(entry), self.read_lines(copy)) >= _CARRIED
        )

    def is_explained(self, copy: Entry, parts: tuple[Entry, ...]) -> bool:
        """Return whether the parts account for nearly all lines of the copy."""
        if copy.pulls & frozenset[str]().union(*(entry.pulls for entry in parts)):
            return True
        changed: Counter[tuple[str, str]] = Counter()
        for entry in parts:
            changed += self.read_lines(entry)
        return _compute_share(self.read_lines(copy), changed) >= _CARRIED

    def read_lines(self, entry: Entry) -> Counter[tuple[str, str]]:
        """Return the added and removed lines of a commit as (file, line with its sign), without blank
        ones.
        """
        self._load_patches([entry])
        return self._patches[entry.sha].lines

    def _load_patches(self, entries: Sequence[Entry]) -> None:
        """Load the patches of many commits with one call of git."""
        missing = [entry.sha for entry in entries if entry.sha not in self._patches]
        self._patches |= read_patches(self._repository, missing)


def _compute_share(part: Counter[tuple[str, str]], whole: Counter[tuple[str, str]]) -> float:
    """Return the share of `part` that is in `whole`, or 0 if `part` is empty."""
    return (part & whole).total() / part.total() if part else 0.0
