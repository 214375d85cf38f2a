"""Evidence for commits, read from a local clone: nothing is checked out, built or written. A blobless clone is enough.

The file of a pass is the one that holds its name in quotes, found in the repository itself. Of the lines of such a file that differ
between the two releases each is blamed to the commit that wrote it; what was cherry-picked into the older release drops out by
itself, for its lines are in both.
"""

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from opsieve.bisect.blame.ranking import Clue

if TYPE_CHECKING:
    from git import Repo

_MOST_COMMITS = 20_000
_MOST_FILES = 12  # that hold the name of a pass, or are named like an operator
_MOST_HUNKS = 200
_LARGE = 40  # files of a commit
_CODE = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py", ".rs", ".td"])
_DOCUMENTS = frozenset([".md", ".rst", ".txt", ".ipynb", ".yml", ".yaml"])
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.M)
_FILE = re.compile(r"[\w./\\-]*?([\w-]+(?:/[\w-]+)*\.(?:cc|cpp|cu|h|hpp|py|rs))\b")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_PULL = re.compile(r"\(#(\d{1,9})\)")
_WORDS = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
_SHORTEST = 16  # characters of a text that is looked for in the history


@dataclass(frozen=True, slots=True)
class Clues:
    """What is known of a failure: guilty passes, operators of the reduced case, what the compiler said."""

    passes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    message: str = ""


@dataclass(slots=True)
class Between:
    """The commits that the newer release has and the older has not, oldest first, with subject and files."""

    old: str
    new: str
    commits: list[str] = field(default_factory=list)
    subjects: dict[str, str] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    dropped: int = 0  # that were cherry-picked into the older release


def read_between(repository: "Repo", old: str, new: str) -> Between:
    """The range. Commits of a pull request that a commit of the older release's own branch carries as well are left out."""
    found = Between(old, new)
    own = repository.git.log("--format=%s", "--no-merges", f"--max-count={_MOST_COMMITS}", old, f"^{new}").splitlines()
    picked = {number for subject in own for number in _PULL.findall(subject)}
    options = ("--no-merges", "--reverse", "--topo-order", "--name-only", "--format=%x00%H%x01%s")
    text = repository.git.log(*options, new, f"^{old}")
    for entry in text.split("\0")[1:][-_MOST_COMMITS:]:
        head, _, names = entry.partition("\n")
        sha, _, subject = head.partition("\x01")
        if picked & set(_PULL.findall(subject)):
            found.dropped += 1
            continue
        found.commits.append(sha)
        found.subjects[sha] = subject
        found.files[sha] = [name for name in names.splitlines() if name]
    return found


def gather(repository: "Repo", between: Between, clues: Clues) -> dict[str, dict[Clue, str]]:
    """The evidence for each commit of a range, by kind, with what it is about."""
    reader = _HistoryReader(repository, between)
    for name in clues.passes:
        reader.pass_named(name)
    for path in dict.fromkeys(_FILE.findall(clues.message)):
        reader.file_named(path)
    for text in constant_texts(clues.message):
        reader.text(text)
    for name in clues.operators:
        reader.operator(name)
    reader.shape()
    return reader.found


def constant_texts(message: str) -> list[str]:
    """The parts of a message that a source is likely to hold as they are: without quoted names, numbers and paths; the longest first."""
    parts = [part for line in message.splitlines() for part in re.split(_QUOTED, line)]
    pieces = [piece.strip(" .,:;()[]{}=") for part in parts for piece in re.split(r"[\d/\\<>{}\[\]]+|\s{2,}|: ", part)]
    return sorted({piece for piece in pieces if len(piece) >= _SHORTEST and " " in piece}, key=len, reverse=True)[:3]


class _HistoryReader:
    """Collects evidence; each method is one kind of clue."""

    def __init__(self, repository: "Repo", between: Between):
        self._git, self._between = repository.git, between
        self._tree: list[str] | None = None
        self.found: dict[str, dict[Clue, str]] = {sha: {} for sha in between.commits}

    def pass_named(self, name: str) -> None:
        """Files that hold the name in quotes, their changed lines, and subjects that have its words."""
        lines = self._git.grep("-l", "-F", "-e", f'"{name}"', self._between.new, "--", with_exceptions=False)
        files = [line.partition(":")[2] for line in lines.splitlines()]
        for file in [file for file in files if PurePosixPath(file).suffix in _CODE and not _is_test(file)][
            :_MOST_FILES
        ]:
            self._touches(file, Clue.PASS_FILE)
            self._lines(file)
        words = {word.lower() for word in _WORDS.findall(name)} - _COMMON
        for sha, subject in self._between.subjects.items():
            said = {word.lower() for word in _WORDS.findall(subject)}
            if name.lower() in re.sub(r"[\s_-]", "", subject.lower()) or (len(words) > 1 and words <= said):
                self._add(sha, Clue.PASS_WORD, name)

    def file_named(self, path: str) -> None:
        """A file that the message names, by the end of its path."""
        for file in [file for file in self._files() if f"/{file}".endswith(f"/{path}")][:_MOST_FILES]:
            self._touches(file, Clue.NAMED_FILE)
            self._lines(file)

    def text(self, text: str) -> None:
        """Commits that changed how often a text occurs (git's pickaxe)."""
        for sha in self._git.log("--format=%H", f"-S{text}", self._between.new, f"^{self._between.old}").splitlines():
            self._add(sha, Clue.MESSAGE, f'"{text[:80]}"')

    def operator(self, name: str) -> None:
        """Files named like an operator, and subjects that name it."""
        plain = name.lower()
        for sha, files in self._between.files.items():
            near = [file for file in files if plain in _stem(file) and PurePosixPath(file).suffix in _CODE]
            kernels, tests = [f for f in near if not _is_test(f)], [f for f in near if _is_test(f)]
            if kernels:
                self._add(sha, Clue.KERNEL, kernels[0])
            if tests:
                self._add(sha, Clue.TEST, name)
            if plain in {word.lower() for word in re.findall(r"[A-Za-z]\w+", self._between.subjects[sha])}:
                self._add(sha, Clue.OPERATOR_WORD, name)

    def shape(self) -> None:
        """Size, documents and reverts."""
        for sha, files in self._between.files.items():
            if len(files) > _LARGE:
                self._add(sha, Clue.LARGE, str(len(files)))
            if files and all(PurePosixPath(file).suffix in _DOCUMENTS for file in files):
                self._add(sha, Clue.DOCUMENTS, "")
            if self.found[sha] and self._between.subjects[sha].lower().startswith("revert"):
                self._add(sha, Clue.REVERT, "")

    def _files(self) -> list[str]:
        if self._tree is None:
            self._tree = self._git.ls_tree("-r", "--name-only", self._between.new).splitlines()
        return self._tree

    def _touches(self, file: str, kind: Clue) -> None:
        """The commits that touch a file, under its earlier names too."""
        shas = self._git.log("--follow", "--format=%H", f"{self._between.old}..{self._between.new}", "--", file)
        for sha in shas.splitlines():
            self._add(sha, kind, file)

    def _lines(self, file: str) -> None:
        """Who wrote the lines that differ: those that are new by blame, those that are gone by who took them out."""
        old, new = self._between.old, self._between.new
        diff = self._git.diff("-U0", "--find-renames", old, new, "--", file)
        for start, count in _HUNK.findall(diff)[:_MOST_HUNKS]:
            size = int(count) if count else 1
            if size:
                where = f"-L{start},+{size}"
                blamed = self._git.blame("-l", "-s", where, new, "--", file, with_exceptions=False)
                for line in blamed.splitlines():
                    self._add(line.split(" ", 1)[0].lstrip("^"), Clue.LINES, file)
        gone = {line[1:].strip() for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")}
        for text in sorted((text for text in gone if len(text) >= _SHORTEST), key=len, reverse=True)[:3]:
            for sha in self._git.log("--format=%H", f"-S{text}", f"{old}..{new}", "--", file).splitlines():
                self._add(sha, Clue.LINES, file)

    def _add(self, sha: str, kind: Clue, about: str) -> None:
        if sha in self.found:
            self.found[sha].setdefault(kind, about)


_COMMON = frozenset(
    ["fusion", "pass", "fuse", "op", "ops", "transformer", "elimination", "rule", "rewrite", "optimizer"]
)


def _is_test(file: str) -> bool:
    return any("test" in part.lower() for part in PurePosixPath(file).parts)


def _stem(file: str) -> str:
    return re.sub(r"[_-]", "", PurePosixPath(file).stem.lower())
