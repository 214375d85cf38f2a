"""Find the folders of a repository that went into a release.

Binaries name their source files in assertions and logs; Python files are part of the release as they are. A
build for one kind of machine leaves out code for the others, and a commit that changes only such code cannot
have changed the release's behaviour. The release is only read, never imported or run.
"""

import mmap
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

# possessive: linear in the size of the binary
_PATH = re.compile(rb"[\w.+/-]{6,400}+")
_SUFFIXES = (b".cc", b".cpp", b".cxx", b".c", b".hpp", b".h", b".inc")
# With fewer named files, an unnamed file is not evidence.
_FEWEST = 50
_MOST_FILES = 20_000
_MOST_BYTES = 2 << 30


def find_built_folders(folders: Sequence[Path], tree: Iterable[str]) -> frozenset[str] | None:
    """Return the folders of `tree` (paths of a repository) that contributed a source file to the release.

    A folder counts if a binary in `folders` names one of its source files or if one of its Python files is
    there. Returns None if too few files are named to decide, as with stripped builds.
    """
    files = list_files(folders)
    named = {file.as_posix() for file in files if file.suffix == ".py"}
    for file in find_binaries(files):
        if file.stat().st_size >= _MOST_BYTES:
            continue
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            paths = (match[0] for match in _PATH.finditer(data))
            named.update(path.decode() for path in paths if path.endswith(_SUFFIXES) and b"/" in path)
    known = {path: path for path in tree}
    # Of the package below `python/` or `src/` the release has the package
    for path in list(known):
        if path.endswith(".py"):
            known.setdefault(path.partition("/")[2], path)
    found = {path for name in named if (path := _match_path(name, known))}
    return frozenset(str(PurePosixPath(path).parent) for path in found) if len(found) >= _FEWEST else None


def list_files(folders: Sequence[Path]) -> list[Path]:
    """List the files in the folders of a release, without links and up to a bound for each folder."""
    return [
        file
        for folder in folders
        for file in sorted(folder.rglob("*"))[:_MOST_FILES]
        if not file.is_symlink()
    ]


def find_binaries(files: Iterable[Path]) -> Iterable[Path]:
    """Find the shared libraries among files, without empty ones, which cannot be mapped."""
    return (file for file in files if ".so" in file.suffixes and file.is_file() and file.stat().st_size)


def _match_path(name: str, paths: Mapping[str, str]) -> str:
    """Return the repository's path that is a suffix of a path of another machine, or ''."""
    parts = name.split("/")
    ends = ("/".join(parts[place:]) for place in range(len(parts) - 1))
    return next((paths[end] for end in ends if end in paths), "")
