"""Temporary folders with a bounded life: the next process removes the leftovers of killed ones.

A folder holds a file that its owner keeps locked. The system releases the lock however a process ends, so a
folder whose file can be locked has no owner. Only folders of this user that hold such a file are removed, so
folders of other programs stay.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

PREFIX = "opsieve-"
OWNER = ".opsieve-owner"
# The folders in which this process has already swept.
_swept: set[str] = set()


class Scratch:
    """An empty folder `opsieve-NAME-...` beneath the system's temporary one, until `close` or the end of this
    process's life.
    """

    def __init__(self, name: str = "") -> None:
        parent = tempfile.gettempdir()
        if parent not in _swept:
            _swept.add(parent)
            sweep(Path(parent))
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-" if name else PREFIX))
        # The file is renamed only after it is locked: whoever finds it unlocked would remove the folder.
        making = self.path / f"{OWNER}-"
        self.lock = os.open(making, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        # On a file system without locks, leftovers stay.
        with contextlib.suppress(OSError):
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            making.rename(self.path / OWNER)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.leave()

    def leave(self) -> None:
        """Let go of the folder, which belongs to whoever has inherited the descriptor `lock`."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def sweep(parent: Path) -> None:
    """Remove the scratch folders in `parent` whose owners have ended; unreadable ones stay."""
    # Sweeping is a courtesy: a folder of another user, or one that vanishes, must not stop this process.
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _sweep(entry)


def _sweep(entry: "os.DirEntry[str]") -> None:
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    lock = os.open(os.path.join(entry.path, OWNER), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        held = os.fstat(lock)
        if stat.S_ISREG(held.st_mode) and held.st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)
