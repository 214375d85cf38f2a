"""The folder of a store, which may be untrusted: writes, moves and removals stay inside it.

A link `staging`, `cases/KEY` or `decisions.jsonl` would lead our writes elsewhere, so the expected files and
folders must not be links. Rows of the index name case folders; a name other than `cases/KEY/N` is refused.
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
    """Check the parts of the store.

    Raises:
        BadInput: If a part is a link, or a folder instead of a file (or vice versa).
    """
    for names, is_right, what in ((_FOLDERS, stat.S_ISDIR, "folder"), (_FILES, stat.S_ISREG, "file")):
        for name in names:
            try:
                status = os.lstat(folder / name)
            except (FileNotFoundError, NotADirectoryError):
                # Parts of a store are created when they are first needed.
                continue
            # A hard link is no link to lstat, and would let a store of a stranger change a file outside of
            # it.
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                raise BadInput(
                    f"{shown(folder / name, 200)} is a hard link, so a change would show elsewhere; put a"
                    " copy there"
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
    # The pattern lets dots through, since fingerprints hold them.
    return match is not None and not {match[1], match[2]} & {".", ".."}


def get_case_folder(folder: Path, place: str) -> Path:
    """Return the case folder at `place`, a text of the index; it may be missing.

    Raises:
        BadInput: If the place leads outside the store.
    """
    if is_place(place):
        path = folder / place
        if not any(part.is_symlink() for part in (path, path.parent, path.parent.parent)):
            return path
    raise BadInput(
        f"the index of the store {shown(folder, 160)} names {shown(place, 100)}, which is not a case folder"
        " of it; `opsieve index` builds it anew from the case folders when index.sqlite is removed"
    )


class Staging:
    """The folder in which cases are made, opened without following links. A context manager; may raise
    OSError.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By descriptor: names below it cannot be redirected by a link that somebody makes meanwhile.
            self._staging = os.open(STAGING, _FOLDER, dir_fd=self._root)
        except BaseException:
            os.close(self._root)
            raise

    def __enter__(self) -> "Staging":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._staging)
        os.close(self._root)

    def list_names(self) -> list[str]:
        """List its entries by name."""
        return sorted(os.listdir(self._staging))

    def move_case(self, name: str, place: str) -> bool:
        """Move a staged case to its place in the store durably; False if the place is taken or invalid."""
        match = _PLACE.fullmatch(place)
        if match is None or not is_place(place):
            return False
        with self._open_folder(self._root, CASES) as cases:
            # Another fingerprint's case may have created the folder.
            with contextlib.suppress(FileExistsError):
                step("mkdir")
                os.mkdir(match[1], dir_fd=cases)
            with self._open_folder(cases, match[1]) as key:
                with contextlib.suppress(FileNotFoundError):
                    os.stat(match[2], dir_fd=key, follow_symlinks=False)
                    return False
                step("rename")
                # A rename is atomic, so that a reader sees the whole case or none.
                os.rename(name, match[2], src_dir_fd=self._staging, dst_dir_fd=key)
                # The rename itself is on the disk only when its folders are.
                os.fsync(key)
            os.fsync(cases)
        return True

    def remove_entry(self, name: str) -> None:
        """Remove an entry; of a link only the link."""
        step("remove")
        try:
            shutil.rmtree(name, dir_fd=self._staging)
        except OSError:
            # No folder
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._staging)

    @contextlib.contextmanager
    def _open_folder(self, parent: int, name: str) -> Iterator[int]:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Make the missing folders of a store and refuse links; may raise BadInput or OSError."""
    check_folder(folder)
    for name in (STAGING, CASES):
        if not os.path.lexists(folder / name):
            os.mkdir(folder / name)
    sync_folder(folder)


def remove_empty_store(folder: Path) -> None:
    """Remove an empty store; other files in it stay, and the folder with them."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    # Folders that still hold cases stay.
    with contextlib.suppress(OSError):
        for name in (STAGING, CASES):
            os.rmdir(folder / name)
        os.rmdir(folder)
