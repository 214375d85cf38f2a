"""Which folders of a repository went into a release: its binaries name their source files in assertions and
logs, its Python files lie there.

A build for one kind of machine leaves out the code for the others; commits that change only what is not in
the release cannot have changed its behaviour. Nothing is imported or run.
"""

import mmap
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

_PATH = re.compile(rb"[\w.+/-]{6,400}+")  # possessive: linear in the size of the binary
_SUFFIXES = (b".cc", b".cpp", b".cxx", b".c", b".hpp", b".h", b".inc")
_FEWEST = 50  # files named; fewer say nothing about what is not named
_MOST_FILES = 20_000
_MOST_BYTES = 2 << 30


def built_folders(folders: Sequence[Path], tree: Iterable[str]) -> frozenset[str] | None:
    """The folders of `tree` (paths of a repository) that hold a source file which a binary in `folders`
    names, or a Python file that lies there.

    None when these are too few to tell, as with stripped builds.
    """
    files = files_of(folders)
    named = {file.as_posix() for file in files if file.suffix == ".py"}
    for file in binaries(files):
        if file.stat().st_size >= _MOST_BYTES:
            continue
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            paths = (match[0] for match in _PATH.finditer(data))
            named.update(path.decode() for path in paths if path.endswith(_SUFFIXES) and b"/" in path)
    known = {path: path for path in tree}
    for path in list(known):  # of the package below `python/` or `src/` the release has the package
        if path.endswith(".py"):
            known.setdefault(path.partition("/")[2], path)
    found = {path for name in named if (path := _in_tree(name, known))}
    return frozenset(str(PurePosixPath(path).parent) for path in found) if len(found) >= _FEWEST else None


def files_of(folders: Sequence[Path]) -> list[Path]:
    """What lies in the folders of a release, links left out; of each folder a bounded number."""
    return [
        file
        for folder in folders
        for file in sorted(folder.rglob("*"))[:_MOST_FILES]
        if not file.is_symlink()
    ]


def binaries(files: Iterable[Path]) -> Iterable[Path]:
    """The shared libraries among files, without empty ones, which cannot be mapped."""
    return (file for file in files if ".so" in file.suffixes and file.is_file() and file.stat().st_size)


def _in_tree(name: str, paths: Mapping[str, str]) -> str:
    """The path of the repository that a path of another machine ends with, '' for none."""
    parts = name.split("/")
    ends = ("/".join(parts[place:]) for place in range(len(parts) - 1))
    return next((paths[end] for end in ends if end in paths), "")
