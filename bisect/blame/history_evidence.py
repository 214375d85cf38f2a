"""Collect evidence about commits from a local clone without a checkout or build; a blobless clone is enough.

The source file of a pass is the one that holds its name in quotes, found in the repository itself. Each line
of such a file that differs between the two releases is blamed to the commit that wrote it. Cherry-picked
changes drop out by themselves, since both releases have their lines.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from opsieve.bisect.blame import built_sources, commit_range, wording
from opsieve.bisect.blame.ranking import WEIGHTS, Clue

if TYPE_CHECKING:
    from git import Repo

# That hold the name of a pass, or register an operator
_MOST_FILES = 12
_MOST_HUNKS = 200
# The limit on commits whose lines are read.
_MOST_PATCHES = 100
# Files that hold a text
_RARE = 5
# Files of a commit
_LARGE, _HUGE = 40, 150
# Characters of a line that is looked for in the history
_SHORTEST = 16
_DOCUMENTS = frozenset([".md", ".rst", ".txt", ".ipynb", ".yml", ".yaml"])
_SOURCES = tuple(f"*{suffix}" for suffix in sorted(wording.CODE))
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.M)
_FILE = re.compile(r"[\w./\\-]*?([\w-]+(?:/[\w-]+)*\.(?:cc|cpp|cu|h|hpp|py|rs))\b")


def gather_evidence(
    repository: "Repo", between: commit_range.Between, clues: wording.Clues, release: Sequence[Path] = ()
) -> dict[str, dict[Clue, str]]:
    """Gather the evidence for each commit of a range, by kind, with its subject.

    `release` lists the folders of the newer release, unpacked.
    """
    reader = _HistoryReader(repository, between, release)
    for name in clues.passes:
        reader.add_pass(name)
    for path in dict.fromkeys(_FILE.findall(clues.message)):
        reader.add_file(path)
    for text in wording.extract_constant_texts(clues.message):
        reader.add_text(text)
    reader.add_operators(clues.distinctive_operators)
    reader.add_commit_traits()
    for sha, entry in between.entries.items():
        reader.add_clues(sha, wording.find_message_clues(entry, clues))
    for sha, clue in wording.find_rare_words(between.entries, clues).items():
        reader.add_clues(sha, clue)
    # Last, since it reads patches only of the commits that the other clues rank highest.
    reader.add_line_clues(clues)
    return reader.found


class _HistoryReader:
    """Collects evidence; each method is one kind of clue."""

    def __init__(self, repository: "Repo", between: commit_range.Between, release: Sequence[Path]):
        self._repository, self._git, self._between = repository, repository.git, between
        self._files = self._git.ls_tree("-r", "--name-only", between.new).splitlines()
        self._built = built_sources.find_built_folders(release, self._files)
        # Every suspect has an entry, so that a commit without any clue keeps its share of the probability.
        self.found: dict[str, dict[Clue, str]] = {sha: {} for sha in between.commits}

    def add_pass(self, name: str) -> None:
        """Add clues from the source files of a pass, their changed lines, and its tests."""
        for file in self._find_pass_files(name):
            self._add_touching_commits(file, Clue.PASS_FILE)
            self._add_changed_lines(file)
        plain = re.sub(r"[_-]", "", wording.strip_pass_prefix(name).lower())
        for sha, entry in self._between.entries.items():
            if any(wording.is_test(file) and plain in wording.normalise_stem(file) for file in entry.files):
                self._add_clue(sha, Clue.TEST, name)

    def _find_pass_files(self, name: str) -> list[str]:
        """Find the files that define the name or hold it in quotes, with the sources of headers.

        Files named like the pass win if there are any.
        """
        # In a regular expression of any dialect
        exact = re.sub(r"[^\w]", ".", wording.strip_pass_prefix(name))
        # A prefix may differ between the releases.
        pattern = f'"([a-z_]+[.])?{exact}"|(class|struct|def) +{exact}([^A-Za-z0-9_]|$)'
        lines = self._run_git("grep", "-l", "-E", "-e", pattern, self._between.new, "--", *_SOURCES)
        quoted = [line.partition(":")[2] for line in lines.splitlines()]
        code = [
            file
            for file in quoted
            if PurePosixPath(file).suffix in wording.CODE and not wording.is_test(file)
        ]
        plain = re.sub(r"[_-]", "", wording.strip_pass_prefix(name).lower())
        homes = [
            file
            for file in code
            if wording.normalise_stem(file) in plain or plain in wording.normalise_stem(file)
        ] or code
        stems = {_strip_suffix(file) for file in homes[:_MOST_FILES]}
        return [
            file
            for file in self._files
            if PurePosixPath(file).suffix in wording.CODE and _strip_suffix(file) in stems
        ]

    def add_file(self, path: str) -> None:
        """Add clues for a file that the message names; on the build machine it may be below another
        folder.
        """
        parts = path.split("/")
        ends = (["/".join(parts[place:])] for place in range(len(parts)))
        found = next(
            (files for end in ends if (files := [f for f in self._files if f"/{f}".endswith(f"/{end[0]}")])),
            [],
        )
        # The name of a common file, such as utils.cc, points nowhere.
        for file in found if len(found) <= _RARE else []:
            self._add_touching_commits(file, Clue.NAMED_FILE)
            self._add_changed_lines(file)

    def add_text(self, text: str) -> None:
        """Add clues for commits that changed how often a text occurs (git's pickaxe).

        A text that occurs in many files is ignored.
        """
        old, new = self._between.old, self._between.new
        found = [
            self._run_git("grep", "-l", "-F", "-e", text, end, "--", *_SOURCES).splitlines()
            for end in (old, new)
        ]
        files = {line.partition(":")[2] for lines in found for line in lines}
        if not files or max(map(len, found)) > _RARE:
            return
        for sha in self._run_git(
            "log", "--format=%H", f"-S{text}", new, f"^{old}", "--", *sorted(files)
        ).splitlines():
            parts = self._between.parts.get(sha, ())
            held = (
                self._run_git("log", "--no-walk", "--format=%H", f"-S{text}", *parts).split()
                if parts
                else [sha]
            )
            for one in held:
                self._add_clue(one, Clue.MESSAGE, f'"{text[:80]}"')

    def add_operators(self, names: Sequence[str]) -> None:
        """Add clues for files named like an operator or beside its registration, and for its tests."""
        registering = self._find_registrations(names)
        for sha, entry in self._between.entries.items():
            code = [file for file in entry.files if PurePosixPath(file).suffix in wording.CODE]
            for name in names:
                near = [file for file in code if name.lower() in wording.normalise_stem(file)]
                tests = [file for file in near if wording.is_test(file)]
                built = [file for file in near if self._is_built(file) and not wording.is_test(file)]
                own = [file for file in built if wording.normalise_stem(file) == name.lower()]
                if own:
                    self._add_clue(sha, Clue.KERNEL, own[0])
                elif built:
                    self._add_clue(sha, Clue.NEAR_KERNEL, built[0])
                if tests:
                    self._add_clue(sha, Clue.TEST, name)
            beside = [
                file for file in code if any(_strip_suffix(file).startswith(place) for place in registering)
            ]
            if beside:
                self._add_clue(sha, Clue.REGISTERS, beside[0])

    def _find_registrations(self, names: Sequence[str]) -> set[str]:
        """Find the files, without suffix, that register a kernel of an operator.

        The operator's name is then an argument at the start of a line.
        """
        if not names:
            return set()
        wanted = "|".join(re.sub(r"[^\w]", ".", name) for name in names)
        pattern = rf"(^|\() *({wanted}),"
        lines = self._run_git("grep", "-l", "-E", "-e", pattern, self._between.new, "--", *_SOURCES)
        files = [line.partition(":")[2] for line in lines.splitlines()]
        found = {_strip_suffix(file) for file in files if self._is_built(file) and not wording.is_test(file)}
        return found if len(found) <= _MOST_FILES else set()

    def add_line_clues(self, clues: wording.Clues) -> None:
        """Add clues from identifiers in the lines changed by the top-ranked commits."""
        likely = sorted(self.found, key=lambda sha: -sum(WEIGHTS[kind] for kind in self.found[sha]))[
            :_MOST_PATCHES
        ]
        for sha, patch in commit_range.read_patches(self._repository, likely).items():
            clue = wording.find_code_clues(patch, clues)
            if Clue.CODE_OPERATOR in clue and Clue.LINES in self.found[sha]:
                clue[Clue.LINE_OPERATOR] = clue.pop(Clue.CODE_OPERATOR)
            if Clue.PASS_FILE in self.found[sha]:
                # The file names it itself
                clue.pop(Clue.CODE_PASS, None)
            self.add_clues(sha, clue)

    def add_commit_traits(self) -> None:
        """Add clues from commit size, docs-only changes, reverts and unreleased files."""
        for sha, entry in self._between.entries.items():
            files = entry.files
            if len(files) > _LARGE:
                self._add_clue(sha, Clue.HUGE if len(files) > _HUGE else Clue.LARGE, str(len(files)))
            if files and all(PurePosixPath(file).suffix in _DOCUMENTS for file in files):
                self._add_clue(sha, Clue.DOCUMENTS, "")
            elif not any(self._is_built(file) and not wording.is_test(file) for file in files):
                self._add_clue(sha, Clue.ELSEWHERE, "")
            if self.found[sha] and entry.subject.lower().startswith("revert"):
                self._add_clue(sha, Clue.REVERT, "")

    def _run_git(self, command: str, *arguments: str) -> str:
        """Return the output of a git command, possibly cut short where a partial clone lacks contents."""
        # One clue that cannot be read must not cost the others. `grep` starts no program that compares.
        return str(
            getattr(self._git, command)(
                *(() if command == "grep" else commit_range.NO_PROGRAMS), *arguments, with_exceptions=False
            )
        )

    def _is_built(self, file: str) -> bool:
        """Whether the file belongs to a folder that went into the release."""
        return self._built is None or str(PurePosixPath(file).parent) in self._built

    def _add_touching_commits(self, file: str, kind: Clue) -> None:
        """Add a clue to the commits that touch a file, also under its earlier names."""
        shas = self._run_git(
            "log", "--follow", "--format=%H", f"{self._between.old}..{self._between.new}", "--", file
        )
        for sha in shas.splitlines():
            self._add_for_file(sha, kind, file)

    def _add_changed_lines(self, file: str) -> None:
        """Add clues for the authors of the lines that differ between the releases.

        New lines are found with git blame, removed ones through the commit that removed them.
        """
        old, new = self._between.old, self._between.new
        diff = self._run_git("diff", "-U0", "--find-renames", old, new, "--", file)
        new_lines = [
            (start, count or "1") for start, count in _HUNK.findall(diff)[:_MOST_HUNKS] if count != "0"
        ]
        if new_lines:
            where = [f"-L{start},+{count}" for start, count in new_lines]
            blamed = self._run_git("blame", "-l", "-s", *where, f"{old}..{new}", "--", file)
            # A line that is older than the range begins with ^
            for line in blamed.splitlines():
                self._add_for_file(line.split(" ", 1)[0], Clue.LINES, file)
        gone = {
            line[1:].strip()
            for line in diff.splitlines()
            if line.startswith("-") and not line.startswith("---")
        }
        # The longest lines are the rarest; each costs a walk through the range.
        for text in sorted((text for text in gone if len(text) >= _SHORTEST), key=len, reverse=True)[:3]:
            for sha in self._run_git(
                "log", "--format=%H", f"-S{text}", f"{old}..{new}", "--", file
            ).splitlines():
                self._add_for_file(sha, Clue.LINES, file)

    def _add_for_file(self, sha: str, kind: Clue, file: str) -> None:
        """Add a clue about a file; of a copy's parts, only those that change the file get it."""
        entries = self._between.entries
        parts = [
            part
            for part in self._between.parts.get(sha, ())
            if part in entries and file in entries[part].files
        ]
        for one in parts or [sha]:
            self._add_clue(one, kind, file)

    def add_clues(self, sha: str, clues: Mapping[Clue, str]) -> None:
        """Add clues about a commit; the first of a kind wins."""
        for kind, about in clues.items():
            self._add_clue(sha, kind, about)

    def _add_clue(self, sha: str, kind: Clue, about: str) -> None:
        """Add one clue to a commit of the range, unless the commit already has one of its kind."""
        if sha in self.found:
            self.found[sha].setdefault(kind, about)


def _strip_suffix(file: str) -> str:
    return str(PurePosixPath(file).with_suffix(""))
