"""Evidence for commits, read from a local clone: nothing is checked out, built or written. A blobless clone
is enough.

The file of a pass is the one that holds its name in quotes, found in the repository itself. Of the lines of
such a file that differ between the two releases each is blamed to the commit that wrote it; what was
cherry-picked into the older release drops out by itself, for its lines are in both.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from opsieve.bisect.blame.built_sources import built_folders
from opsieve.bisect.blame.commit_range import Between, read_patches
from opsieve.bisect.blame.ranking import Clue, weight
from opsieve.bisect.blame.wording import (
    CODE,
    Clues,
    changed,
    constant_texts,
    is_test,
    last_name,
    rare_words,
    said,
    stem,
)

if TYPE_CHECKING:
    from git import Repo

_MOST_FILES = 12  # that hold the name of a pass, or register an operator
_MOST_HUNKS = 200
_MOST_PATCHES = 100  # commits whose lines are read
_RARE = 5  # files that hold a text
_LARGE, _HUGE = 40, 150  # files of a commit
_SHORTEST = 16  # characters of a line that is looked for in the history
_DOCUMENTS = frozenset([".md", ".rst", ".txt", ".ipynb", ".yml", ".yaml"])
_SOURCES = tuple(f"*{suffix}" for suffix in sorted(CODE))
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.M)
_FILE = re.compile(r"[\w./\\-]*?([\w-]+(?:/[\w-]+)*\.(?:cc|cpp|cu|h|hpp|py|rs))\b")


def gather(
    repository: "Repo", between: Between, clues: Clues, release: Sequence[Path] = ()
) -> dict[str, dict[Clue, str]]:
    """The evidence for each commit of a range, by kind, with what it is about; `release` is where the newer
    one is unpacked.
    """
    reader = _HistoryReader(repository, between, release)
    for name in clues.passes:
        reader.pass_named(name)
    for path in dict.fromkeys(_FILE.findall(clues.message)):
        reader.file_named(path)
    for text in constant_texts(clues.message):
        reader.text(text)
    reader.operators(clues.telling)
    reader.shape()
    for sha, entry in between.entries.items():
        reader.add(sha, said(entry, clues))
    for sha, clue in rare_words(between.entries, clues).items():
        reader.add(sha, clue)
    reader.lines(clues)
    return reader.found


class _HistoryReader:
    """Collects evidence; each method is one kind of clue."""

    def __init__(self, repository: "Repo", between: Between, release: Sequence[Path]):
        self._repository, self._git, self._between = repository, repository.git, between
        self._files = self._git.ls_tree("-r", "--name-only", between.new).splitlines()
        self._built = built_folders(release, self._files)
        self.found: dict[str, dict[Clue, str]] = {sha: {} for sha in between.commits}

    def pass_named(self, name: str) -> None:
        """The files of the pass with their changed lines, and its tests."""
        for file in self._homes(name):
            self._touches(file, Clue.PASS_FILE)
            self._lines(file)
        plain = re.sub(r"[_-]", "", last_name(name).lower())
        for sha, entry in self._between.entries.items():
            if any(is_test(file) and plain in stem(file) for file in entry.files):
                self._add(sha, Clue.TEST, name)

    def _homes(self, name: str) -> list[str]:
        """The files that define the name or hold it in quotes, with the sources of headers; those named like
        the pass alone where there are any.
        """
        exact = re.sub(r"[^\w]", ".", last_name(name))  # in a regular expression of any dialect
        # A prefix may differ between the releases.
        pattern = f'"([a-z_]+[.])?{exact}"|(class|struct|def) +{exact}([^A-Za-z0-9_]|$)'
        lines = self._read("grep", "-l", "-E", "-e", pattern, self._between.new, "--", *_SOURCES)
        quoted = [line.partition(":")[2] for line in lines.splitlines()]
        code = [file for file in quoted if PurePosixPath(file).suffix in CODE and not is_test(file)]
        plain = re.sub(r"[_-]", "", last_name(name).lower())
        homes = [file for file in code if stem(file) in plain or plain in stem(file)] or code
        stems = {_bare(file) for file in homes[:_MOST_FILES]}
        return [file for file in self._files if PurePosixPath(file).suffix in CODE and _bare(file) in stems]

    def file_named(self, path: str) -> None:
        """A file that the message names: where it was built it may stand below another folder."""
        parts = path.split("/")
        ends = (["/".join(parts[place:])] for place in range(len(parts)))
        found = next(
            (files for end in ends if (files := [f for f in self._files if f"/{f}".endswith(f"/{end[0]}")])),
            [],
        )
        for file in found if len(found) <= _RARE else []:
            self._touches(file, Clue.NAMED_FILE)
            self._lines(file)

    def text(self, text: str) -> None:
        """Commits that changed how often a text occurs (git's pickaxe); a text that stands in many files says
        nothing.
        """
        old, new = self._between.old, self._between.new
        found = [
            self._read("grep", "-l", "-F", "-e", text, end, "--", *_SOURCES).splitlines()
            for end in (old, new)
        ]
        files = {line.partition(":")[2] for lines in found for line in lines}
        if not files or max(map(len, found)) > _RARE:
            return
        for sha in self._read(
            "log", "--format=%H", f"-S{text}", new, f"^{old}", "--", *sorted(files)
        ).splitlines():
            parts = self._between.parts.get(sha, ())
            held = (
                self._read("log", "--no-walk", "--format=%H", f"-S{text}", *parts).split() if parts else [sha]
            )
            for one in held:
                self._add(one, Clue.MESSAGE, f'"{text[:80]}"')

    def operators(self, names: Sequence[str]) -> None:
        """Files named like an operator, or beside the one that registers it, and tests named so."""
        registering = self._registering(names)
        for sha, entry in self._between.entries.items():
            code = [file for file in entry.files if PurePosixPath(file).suffix in CODE]
            for name in names:
                near = [file for file in code if name.lower() in stem(file)]
                tests = [file for file in near if is_test(file)]
                built = [file for file in near if self._is_built(file) and not is_test(file)]
                own = [file for file in built if stem(file) == name.lower()]
                if own:
                    self._add(sha, Clue.KERNEL, own[0])
                elif built:
                    self._add(sha, Clue.NEAR_KERNEL, built[0])
                if tests:
                    self._add(sha, Clue.TEST, name)
            beside = [file for file in code if any(_bare(file).startswith(place) for place in registering)]
            if beside:
                self._add(sha, Clue.REGISTERS, beside[0])

    def _registering(self, names: Sequence[str]) -> set[str]:
        """The files, without their suffix, in which a kernel of an operator is registered: its name is an
        argument at the head of a line.
        """
        if not names:
            return set()
        wanted = "|".join(re.sub(r"[^\w]", ".", name) for name in names)
        pattern = rf"(^|\() *({wanted}),"
        lines = self._read("grep", "-l", "-E", "-e", pattern, self._between.new, "--", *_SOURCES)
        files = [line.partition(":")[2] for line in lines.splitlines()]
        found = {_bare(file) for file in files if self._is_built(file) and not is_test(file)}
        return found if len(found) <= _MOST_FILES else set()

    def lines(self, clues: Clues) -> None:
        """What the lines name that the likeliest commits change."""
        likely = sorted(self.found, key=lambda sha: -weight(self.found[sha]))[:_MOST_PATCHES]
        for sha, patch in read_patches(self._repository, likely).items():
            clue = changed(patch, clues)
            if Clue.CODE_OPERATOR in clue and Clue.LINES in self.found[sha]:
                clue[Clue.LINE_OPERATOR] = clue.pop(Clue.CODE_OPERATOR)
            if Clue.PASS_FILE in self.found[sha]:
                clue.pop(Clue.CODE_PASS, None)  # the file names it itself
            self.add(sha, clue)

    def shape(self) -> None:
        """Size, documents, reverts, and what is no part of the release."""
        for sha, entry in self._between.entries.items():
            files = entry.files
            if len(files) > _LARGE:
                self._add(sha, Clue.HUGE if len(files) > _HUGE else Clue.LARGE, str(len(files)))
            if files and all(PurePosixPath(file).suffix in _DOCUMENTS for file in files):
                self._add(sha, Clue.DOCUMENTS, "")
            elif not any(self._is_built(file) and not is_test(file) for file in files):
                self._add(sha, Clue.ELSEWHERE, "")
            if self.found[sha] and entry.subject.lower().startswith("revert"):
                self._add(sha, Clue.REVERT, "")

    def _read(self, command: str, *arguments: str) -> str:
        """What git prints; as far as it came where the clone lacks contents (a partial clone that cannot ask
        for them now).
        """
        return str(getattr(self._git, command)(*arguments, with_exceptions=False))

    def _is_built(self, file: str) -> bool:
        return self._built is None or str(PurePosixPath(file).parent) in self._built

    def _touches(self, file: str, kind: Clue) -> None:
        """The commits that touch a file, under its earlier names too."""
        shas = self._read(
            "log", "--follow", "--format=%H", f"{self._between.old}..{self._between.new}", "--", file
        )
        for sha in shas.splitlines():
            self._add_for_file(sha, kind, file)

    def _lines(self, file: str) -> None:
        """Who wrote the lines that differ: those that are new by blame, those that are gone by who took them
        out.
        """
        old, new = self._between.old, self._between.new
        diff = self._read("diff", "-U0", "--find-renames", old, new, "--", file)
        new_lines = [
            (start, count or "1") for start, count in _HUNK.findall(diff)[:_MOST_HUNKS] if count != "0"
        ]
        if new_lines:
            where = [f"-L{start},+{count}" for start, count in new_lines]
            blamed = self._read("blame", "-l", "-s", *where, f"{old}..{new}", "--", file)
            for line in blamed.splitlines():  # a line that is older than the range begins with ^
                self._add_for_file(line.split(" ", 1)[0], Clue.LINES, file)
        gone = {
            line[1:].strip()
            for line in diff.splitlines()
            if line.startswith("-") and not line.startswith("---")
        }
        for text in sorted((text for text in gone if len(text) >= _SHORTEST), key=len, reverse=True)[:3]:
            for sha in self._read(
                "log", "--format=%H", f"-S{text}", f"{old}..{new}", "--", file
            ).splitlines():
                self._add_for_file(sha, Clue.LINES, file)

    def _add_for_file(self, sha: str, kind: Clue, file: str) -> None:
        """A clue about a file, given to those commits of a copy that change it."""
        entries = self._between.entries
        parts = [
            part
            for part in self._between.parts.get(sha, ())
            if part in entries and file in entries[part].files
        ]
        for one in parts or [sha]:
            self._add(one, kind, file)

    def add(self, sha: str, clues: Mapping[Clue, str]) -> None:
        """More clues about a commit; of one kind the first is kept."""
        for kind, about in clues.items():
            self._add(sha, kind, about)

    def _add(self, sha: str, kind: Clue, about: str) -> None:
        if sha in self.found:
            self.found[sha].setdefault(kind, about)


def _bare(file: str) -> str:
    return str(PurePosixPath(file).with_suffix(""))
