"""Evidence for commits, read from a local clone: nothing is checked out, built or written. A blobless clone is enough.

The file of a pass is the one that holds its name in quotes, found in the repository itself. Of the lines of such a file that differ
between the two releases each is blamed to the commit that wrote it; what was cherry-picked into the older release drops out by
itself, for its lines are in both.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from opsieve.bisect.blame.built_sources import built_folders
from opsieve.bisect.blame.commit_range import Between
from opsieve.bisect.blame.ranking import Clue

if TYPE_CHECKING:
    from git import Repo

_MOST_FILES = 12  # that hold the name of a pass, or are named like an operator
_MOST_HUNKS = 200
_RARE = 5  # files that hold a text
_LARGE = 40  # files of a commit
_CODE = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py", ".rs", ".td"])
_DOCUMENTS = frozenset([".md", ".rst", ".txt", ".ipynb", ".yml", ".yaml"])
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.M)
_FILE = re.compile(r"[\w./\\-]*?([\w-]+(?:/[\w-]+)*\.(?:cc|cpp|cu|h|hpp|py|rs))\b")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_WORDS = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
_SHORTEST = 16  # characters of a text that is looked for in the history


@dataclass(frozen=True, slots=True)
class Clues:
    """What is known of a failure: guilty passes, operators of the reduced case, what the compiler said, and what one sees (`crash at run`)."""

    passes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    message: str = ""
    symptom: str = ""

    @property
    def telling(self) -> tuple[str, ...]:
        """The operators that the name of no guilty pass holds: what is in it says nothing more about a change of the pass."""
        passes = re.sub(r"[_-]", "", "".join(self.passes).lower())
        return tuple(name for name in self.operators if name.lower() not in passes)


def gather(
    repository: "Repo", between: Between, clues: Clues, release: Sequence[Path] = ()
) -> dict[str, dict[Clue, str]]:
    """The evidence for each commit of a range, by kind, with what it is about; `release` is where the newer one is unpacked."""
    reader = _HistoryReader(repository, between, release)
    for name in clues.passes:
        reader.pass_named(name)
    for path in dict.fromkeys(_FILE.findall(clues.message)):
        reader.file_named(path)
    for text in constant_texts(clues.message):
        reader.text(text)
    for name in clues.operators:
        reader.operator(name, telling=name in clues.telling)
    reader.symptom(clues.symptom)
    reader.lines_that_name(clues.telling)
    reader.shape()
    return reader.found


def constant_texts(message: str) -> list[str]:
    """The parts of a message that a source is likely to hold as they are: without quoted names, numbers and paths; the longest first."""
    parts = [part for line in message.splitlines() for part in re.split(_QUOTED, line)]
    pieces = [piece.strip(" .,:;()[]{}=") for part in parts for piece in re.split(r"[\d/\\<>{}\[\]]+|\s{2,}|: ", part)]
    return sorted({piece for piece in pieces if len(piece) >= _SHORTEST and " " in piece}, key=len, reverse=True)[:3]


class _HistoryReader:
    """Collects evidence; each method is one kind of clue."""

    def __init__(self, repository: "Repo", between: Between, release: Sequence[Path]):
        self._git, self._between = repository.git, between
        self._files = self._git.ls_tree("-r", "--name-only", between.new).splitlines()
        self._built = built_folders(release, self._files)
        self.found: dict[str, dict[Clue, str]] = {sha: {} for sha in between.commits}

    def pass_named(self, name: str) -> None:
        """The files of the pass, their changed lines, and subjects that have its words."""
        for file in self._homes(name):
            self._touches(file, Clue.PASS_FILE)
            self._lines(file)
        words = {word.lower() for word in _WORDS.findall(name)} - _COMMON
        for sha, subject in self._subjects():
            said = {word.lower() for word in _WORDS.findall(subject)}
            if name.lower() in re.sub(r"[\s_-]", "", subject.lower()) or (len(words) > 1 and words <= said):
                self._add(sha, Clue.PASS_WORD, name)

    def _homes(self, name: str) -> list[str]:
        """The files that define the name or hold it in quotes, with the sources of headers; those named like the pass alone where there are any."""
        exact = re.sub(r"[^\w]", ".", name)  # in a regular expression of any dialect
        lines = self._read(
            "grep", "-l", "-E", "-e", f'"{exact}"|(class|struct|def) +{exact}([^A-Za-z0-9_]|$)', self._between.new, "--"
        )
        quoted = [line.partition(":")[2] for line in lines.splitlines()]
        code = [file for file in quoted if PurePosixPath(file).suffix in _CODE and not _is_test(file)]
        plain = re.sub(r"[_-]", "", name.lower())
        homes = [file for file in code if _stem(file) in plain or plain in _stem(file)] or code
        stems = {_bare(file) for file in homes[:_MOST_FILES]}
        return [file for file in self._files if PurePosixPath(file).suffix in _CODE and _bare(file) in stems]

    def file_named(self, path: str) -> None:
        """A file that the message names: where it was built it may stand below another folder."""
        parts = path.split("/")
        ends = (["/".join(parts[place:])] for place in range(len(parts)))
        found = next(
            (files for end in ends if (files := [f for f in self._files if f"/{f}".endswith(f"/{end[0]}")])), []
        )
        for file in found if len(found) <= _RARE else []:
            self._touches(file, Clue.NAMED_FILE)
            self._lines(file)

    def text(self, text: str) -> None:
        """Commits that changed how often a text occurs (git's pickaxe); a text that stands in many files says nothing."""
        old, new = self._between.old, self._between.new
        found = [self._read("grep", "-l", "-F", "-e", text, end).splitlines() for end in (old, new)]
        files = {line.partition(":")[2] for lines in found for line in lines}
        if not files or max(map(len, found)) > _RARE:
            return
        for sha in self._read("log", "--format=%H", f"-S{text}", new, f"^{old}", "--", *sorted(files)).splitlines():
            parts = self._between.parts.get(sha, ())
            held = self._read("log", "--no-walk", "--format=%H", f"-S{text}", *parts).split() if parts else [sha]
            for one in held:
                self._add(one, Clue.MESSAGE, f'"{text[:80]}"')

    def operator(self, name: str, telling: bool) -> None:
        """Files named like an operator, and subjects that name a `telling` one."""
        plain = name.lower()
        for sha, files in self._changed():
            near = [file for file in files if plain in _stem(file) and PurePosixPath(file).suffix in _CODE]
            kernels, tests = [f for f in near if not _is_test(f)], [f for f in near if _is_test(f)]
            built = [file for file in kernels if self._is_built(file)]
            own = [file for file in built if _stem(file) == plain]
            if own:
                self._add(sha, Clue.KERNEL, own[0])
            elif built:
                self._add(sha, Clue.NEAR_KERNEL, built[0])
            elif kernels:
                self._add(sha, Clue.NOT_BUILT, kernels[0])
            if tests:
                self._add(sha, Clue.TEST, name)
            if telling and _names_operator(self._between.entries[sha].subject, name):
                self._add(sha, Clue.OPERATOR_WORD, name)

    def lines_that_name(self, names: Sequence[str]) -> None:
        """Of the commits that wrote lines of the suspected files, those whose lines name one of these operators."""
        for sha, kinds in self.found.items():
            if names and Clue.LINES in kinds:
                patch = self._read("show", "--format=", "-U0", sha, "--", kinds[Clue.LINES])
                changed = "\n".join(line for line in patch.splitlines() if line[:1] in ("+", "-"))
                named = [name for name in names if re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![a-z])", changed)]
                if named:
                    self._add(sha, Clue.LINE_OPERATOR, " and ".join(named))

    def symptom(self, symptom: str) -> None:
        """Subjects that speak of what one sees: a crash, an infinity, a shape."""
        words = frozenset().union(*(_SYMPTOMS.get(word, frozenset()) for word in symptom.split()))
        for sha, subject in self._subjects():
            spoken = [word for word in re.findall(r"[a-z]+", subject.lower()) if word in words]
            if spoken:
                self._add(sha, Clue.SYMPTOM_WORD, spoken[0])

    def shape(self) -> None:
        """Size, documents and reverts."""
        for sha, files in self._changed():
            if len(files) > _LARGE:
                self._add(sha, Clue.LARGE, str(len(files)))
            if files and all(PurePosixPath(file).suffix in _DOCUMENTS for file in files):
                self._add(sha, Clue.DOCUMENTS, "")
            if self.found[sha] and self._between.entries[sha].subject.lower().startswith("revert"):
                self._add(sha, Clue.REVERT, "")

    def _subjects(self) -> list[tuple[str, str]]:
        return [(sha, entry.subject) for sha, entry in self._between.entries.items()]

    def _changed(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(sha, entry.files) for sha, entry in self._between.entries.items()]

    def _read(self, command: str, *arguments: str) -> str:
        """What git prints; as far as it came where the clone lacks contents (a partial clone that cannot ask for them now)."""
        return str(getattr(self._git, command)(*arguments, with_exceptions=False))

    def _is_built(self, file: str) -> bool:
        return self._built is None or str(PurePosixPath(file).parent) in self._built

    def _touches(self, file: str, kind: Clue) -> None:
        """The commits that touch a file, under its earlier names too."""
        shas = self._read("log", "--follow", "--format=%H", f"{self._between.old}..{self._between.new}", "--", file)
        for sha in shas.splitlines():
            self._add_for_file(sha, kind, file)

    def _lines(self, file: str) -> None:
        """Who wrote the lines that differ: those that are new by blame, those that are gone by who took them out."""
        old, new = self._between.old, self._between.new
        diff = self._read("diff", "-U0", "--find-renames", old, new, "--", file)
        new_lines = [(start, count or "1") for start, count in _HUNK.findall(diff)[:_MOST_HUNKS] if count != "0"]
        if new_lines:
            where = [f"-L{start},+{count}" for start, count in new_lines]
            blamed = self._read("blame", "-l", "-s", *where, f"{old}..{new}", "--", file)
            for line in blamed.splitlines():  # a line that is older than the range begins with ^
                self._add_for_file(line.split(" ", 1)[0], Clue.LINES, file)
        gone = {line[1:].strip() for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")}
        for text in sorted((text for text in gone if len(text) >= _SHORTEST), key=len, reverse=True)[:3]:
            for sha in self._read("log", "--format=%H", f"-S{text}", f"{old}..{new}", "--", file).splitlines():
                self._add_for_file(sha, Clue.LINES, file)

    def _add_for_file(self, sha: str, kind: Clue, file: str) -> None:
        """A clue about a file, given to those commits of a copy that change it."""
        parts = [part for part in self._between.parts.get(sha, ()) if self._holds(part, file)]
        for one in parts or [sha]:
            self._add(one, kind, file)

    def _holds(self, sha: str, file: str) -> bool:
        return sha in self._between.entries and file in self._between.entries[sha].files

    def _add(self, sha: str, kind: Clue, about: str) -> None:
        if sha in self.found:
            self.found[sha].setdefault(kind, about)


_COMMON = frozenset(
    ["fusion", "pass", "fuse", "op", "ops", "transformer", "elimination", "rule", "rewrite", "optimizer"]
)


# What subjects of commits say of what one sees.
_SYMPTOMS: dict[str, frozenset[str]] = {
    "crash": frozenset(["crash", "crashes", "crashing", "segfault", "segv", "sigsegv", "overflow", "bounds", "abort"]),
    "hang": frozenset(["hang", "hangs", "deadlock", "loop", "infinite"]),
    "out-of-memory": frozenset(["memory", "leak", "oom"]),
    "inf": frozenset(["inf", "infinity", "infinite", "nan", "overflow"]),
    "nan": frozenset(["nan", "nans", "inf", "infinity", "division"]),
    "shape": frozenset(["shape", "shapes", "rank", "dim", "dims", "dimension", "dimensions"]),
    "dtype": frozenset(["type", "types", "dtype"]),
}


def _names_operator(subject: str, name: str) -> bool:
    """Whether a subject has the name as a word; not as its first, where "Add" and "Split" are what the commit does."""
    words = re.findall(r"[A-Za-z]\w*", re.sub(r"^\s*(?:\[[^\]]*\]|\w+:)\s*", "", subject))
    return name in words[1:] or (bool(re.search(r"[a-z][A-Z]", name)) and name.lower() in map(str.lower, words))


def _is_test(file: str) -> bool:
    return any("test" in part.lower() for part in PurePosixPath(file).parts)


def _bare(file: str) -> str:
    return str(PurePosixPath(file).with_suffix(""))


def _stem(file: str) -> str:
    return re.sub(r"[_-]", "", PurePosixPath(file).stem.lower())
