"""Replace files and folders atomically, so that a crash leaves the old or the new one; append to journals.

A file is written beside its place, flushed to the disk, renamed over the old one, and the rename is flushed
with the folder. A folder that replaces another is exchanged with it in one step where the system can (Linux:
renameat2), so there is always one in place. Leftovers of killed processes begin with `.saving-` and a process
number; the next process that saves there removes them.

A record of a journal is on the disk when `add` returns. A writer that is killed loses at most its last line.

All functions raise OSError, except `check_output` and `write_output`, which write files that users name.
"""

import contextlib
import ctypes
import errno
import functools
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import kind_of, read_file, reason

SAVING = ".saving-"
_LEFT = re.compile(r"\.saving-(\d{1,10})-\w{1,32}")
# RENAME_EXCHANGE of linux/fs.h, and AT_FDCWD of fcntl.h: paths are relative to the working folder.
_EXCHANGE = 2
_AT_FDCWD = -100


def step(what: str) -> None:
    """Mark the moment before a system call that changes something. Tests end the process here."""


def write_file(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file, whole or not at all, and on the disk when this returns. A link at `path` is replaced, not
    followed. `data` may come in pieces.
    """
    sweep(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{SAVING}{os.getpid()}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            step("write")
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            # `mkstemp` makes files that only their owner can read.
            os.fchmod(file.fileno(), 0o644)
            step("fsync")
            os.fsync(file.fileno())
        step("rename")
        os.replace(name, path)
    except BaseException as error:
        # Also after Ctrl-C: a partial file beside its place would look like the leftover of a killed process.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        # The system names no file when the disk is full.
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder, unless it is there. Raises OSError for a link, which may lead outside the folder that
    the user named.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, f"{folder.name} is a link")


def check_output(path: Path) -> None:
    """Check that a file can be written at a path: a new one, or in place of a regular file.

    In a foreign folder the path may be a link, which must not be followed, or a FIFO, on which opening would
    block.

    Raises:
        BadInput: If it cannot be written.
    """
    try:
        mode = path.lstat().st_mode
        what = "" if stat.S_ISREG(mode) else f"it is {kind_of(mode)}; name a regular file or a new one"
    except FileNotFoundError:
        what = "" if path.parent.is_dir() else "its folder is not there"
    except (OSError, ValueError) as error:
        what = reason(error)
    if what or not os.access(path.parent, os.W_OK):
        raise BadInput(f"cannot write {shown(path, 200)}: {what or 'its folder cannot be written'}")


def write_output(path: Path, data: bytes | str | Iterable[bytes | memoryview]) -> None:
    """Write a file whole or not at all; BadInput when it cannot be. Text is UTF-8; what that cannot hold is
    escaped.
    """
    check_output(path)
    try:
        write_file(path, data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)
    except OSError as error:
        # With its cause: a campaign waits for a full disk.
        raise BadInput(f"cannot write {shown(path, 200)}: {reason(error)}") from error


def append(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Append to a file, which is created if missing; with `sync` the data is on disk on return. A newline
    ends a half line that a killed writer left.

    Raises OSError for a link at `path` and for anything but a regular file.
    """
    step("open")
    descriptor = open_own(path, os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        step("write")
        rest = data if whole else b"\n" + data
        # The system writes only a part when the disk is nearly full, and refuses the rest.
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            step("fsync")
            os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
    if sync and size == 0:
        sync_folder(path.parent)


def open_own(path: Path, flags: int = 0) -> int:
    """Open a file that this process writes, creating it if missing. Raises OSError for a link and for
    anything but a regular file.
    """
    descriptor = os.open(
        path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o644
    )
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file")
    return descriptor


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder; a file system that cannot is left alone."""
    step("fsync folder")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some file systems (network, FUSE) refuse to flush folders; the rename is atomic all the same.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Flush all files and folders below one; links are not followed."""
    for path, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(
                os.path.join(path, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(path))


def put_folder(fresh: Path, folder: Path) -> bool:
    """Move a finished folder to its place; returns whether it replaced one, which then lies at `fresh`."""
    if not os.path.lexists(folder):
        step("rename")
        fresh.rename(folder)
        return False
    exchange = _renameat2()
    step("exchange")
    if exchange is not None and exchange(os.fsencode(fresh), os.fsencode(folder)):
        return True
    # A name that `sweep` does not remove: until the next rename it is the only complete copy.
    old = folder.with_name(f"{folder.name}.old-{os.getpid()}")
    folder.rename(old)
    step("rename")
    try:
        fresh.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    old.rename(fresh)
    return True


@functools.lru_cache(maxsize=256)
def sweep(folder: Path) -> None:
    """Remove the leftovers of dead processes in a folder; once for each folder."""
    for entry in os.scandir(folder):
        match = _LEFT.fullmatch(entry.name)
        if match is None or int(match[1]) == os.getpid() or _lives(int(match[1])):
            continue
        # Another process may remove the same leftover at the same time.
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        # EPERM: the process exists and belongs to another user.
        return True
    return process > 0


@functools.cache
def _renameat2() -> Callable[[bytes, bytes], bool] | None:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        # The system is not Linux, or its C library is older than 2.28.
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return lambda one, other: call(_AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE) == 0


# Append-only journals: files of records, one JSON value a line.


_T = TypeVar("_T")


class Journal(Generic[_T]):
    """The records of one kind in the file at `path`, which need not be there; at most `limit` bytes are
    read.
    """

    def __init__(self, path: Path, kind: type[_T], limit: int = 64 << 20):
        # Not above: commands that only write a file start without msgspec.
        import msgspec

        self.path = path
        self._limit = limit
        self._decoder = msgspec.json.Decoder(kind)
        self._encode = msgspec.json.encode

    def read(self) -> list[_T]:
        """Return the records, oldest first; an empty list for an unreadable or oversized file."""
        try:
            lines = read_file(self.path, self._limit).splitlines() if self.path.exists() else []
        except BadInput:
            return []
        records = []
        for line in lines:
            try:
                records.append(self._decoder.decode(line))
            except (ValueError, RecursionError):
                # A process that was killed while it appended leaves half a line; the lines before it are
                # good.
                continue
        return records

    def add(self, records: Iterable[_T], *, sync: bool = True) -> None:
        """Append records in one piece; without `sync` the system writes them when it likes. OSError."""
        append(self.path, b"".join(self._encode(record) + b"\n" for record in records), sync=sync)
