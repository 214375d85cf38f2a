"""The folder of a store, which may come from a stranger: nothing is written, moved or removed outside of it.

What is in a store is no link where we expect a file or a folder of ours: a link `staging`, `cases/KEY` or
`decisions.jsonl` would lead what we write or remove elsewhere. Rows of the index name case folders; a name
that is not `cases/KEY/N` is none of ours.
"""

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import step, sync_folder

CASES, STAGING, LOCK = "cases", "staging", "lock"
_FOLDERS = (CASES, STAGING, "known", "coverage", "support")
_FILES = (
    "index.sqlite",
    "index.sqlite-wal",
    "index.sqlite-shm",
    "index.sqlite-journal",
    LOCK,
    "decisions.jsonl",
)
_PLACE = re.compile(r"cases/([^/\0]{1,255})/([^/\0]{1,255})")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check_folder(folder: Path) -> None:
    """BadInput when a part of the store is a link, or a folder where a file should be (or the other way
    round).
    """
    for names, is_right, what in ((_FOLDERS, stat.S_ISDIR, "folder"), (_FILES, stat.S_ISREG, "file")):
        for name in names:
            try:
                status = os.lstat(folder / name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                raise BadInput(
                    f"{shown(folder / name, 200)} has another name elsewhere (a hard link), where a change"
                    " would show, too; put a copy there"
                )
            if not is_right(status.st_mode):
                found = "a link" if stat.S_ISLNK(status.st_mode) else f"no {what}"
                raise BadInput(
                    f"{shown(folder / name, 200)} is {found}: a store that leads elsewhere is not opened; put"
                    f" the {what} itself there"
                )


def is_place(place: str) -> bool:
    """Whether a text names a case folder of a store: `cases/KEY/N`."""
    match = _PLACE.fullmatch(place)
    return match is not None and not {match[1], match[2]} & {".", ".."}


def case_folder(folder: Path, place: str) -> Path:
    """The case folder of a store at `place`, a text of the index; BadInput when it leads elsewhere. It need
    not be there.
    """
    if is_place(place):
        path = folder / place
        if not any(part.is_symlink() for part in (path, path.parent, path.parent.parent)):
            return path
    raise BadInput(
        f"the index of the store {shown(folder, 160)} names {shown(place, 100)}, which is no case folder of"
        " it; `opsieve index` builds it anew from the case folders when index.sqlite is removed"
    )


class Staging:
    """The folder in which cases are made, opened without following links. A context manager; OSError where
    the system refuses.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._staging = os.open(STAGING, _FOLDER, dir_fd=self._root)
        except BaseException:
            os.close(self._root)
            raise

    def __enter__(self) -> "Staging":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._staging)
        os.close(self._root)

    def names(self) -> list[str]:
        """What lies in it, by name."""
        return sorted(os.listdir(self._staging))

    def move(self, name: str, place: str) -> bool:
        """Move a staged case to its place in the store, durably; False when something is there, or it is no
        place for it.
        """
        match = _PLACE.fullmatch(place)
        if match is None or not is_place(place):
            return False
        with self._opened(self._root, CASES) as cases:
            with contextlib.suppress(FileExistsError):
                step("mkdir")
                os.mkdir(match[1], dir_fd=cases)
            with self._opened(cases, match[1]) as key:
                with contextlib.suppress(FileNotFoundError):
                    os.stat(match[2], dir_fd=key, follow_symlinks=False)
                    return False
                step("rename")
                os.rename(name, match[2], src_dir_fd=self._staging, dst_dir_fd=key)
                os.fsync(key)
            os.fsync(cases)
        return True

    def remove(self, name: str) -> None:
        """Remove what lies in it under a name; of a link only the link."""
        step("remove")
        try:
            shutil.rmtree(name, dir_fd=self._staging)
        except OSError:  # no folder
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._staging)

    @contextlib.contextmanager
    def _opened(self, parent: int, name: str) -> Iterator[int]:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def made(folder: Path) -> None:
    """Make the folders of a store that are missing, and refuse links. BadInput or OSError."""
    check_folder(folder)
    for name in (STAGING, CASES):
        if not os.path.lexists(folder / name):
            os.mkdir(folder / name)
    sync_folder(folder)


def unmade(folder: Path) -> None:
    """Remove a store that holds nothing; whatever somebody put there stays, and the folder with it."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for name in (STAGING, CASES):
            os.rmdir(folder / name)
        os.rmdir(folder)
