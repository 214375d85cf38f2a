"""Reading files that may be hostile: regular files only, bounded, inside their folder.

`BUDGET` holds all limits on reading one untrusted model in the main process. Code that walks, unfolds or
expands the data counts against them and reports the exceeded limit in a sentence. TVM graphs have additional
limits (`gen/irs/tvm/nodes.py`). All work is linear in bytes, nodes and elements.
"""

import functools
import io
import os
import resource
import signal
import stat
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from opsieve.gen.errors import BadInput, shown


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """The limits. `bytes` is the largest message that protobuf can hold; it bounds a file, and a model with
    its external data.
    """

    bytes: int = 2**31 - 1
    # Nodes of all graphs and functions: opening more takes longer than a person waits.
    nodes: int = 500_000
    # Nested graphs; protobuf's parser itself stops at about 32.
    depth: int = 24
    # Nested calls of functions.
    calls: int = 100
    # Nodes visited to derive facts about inputs; those of a function count at every call.
    visits: int = 200_000
    rank: int = 64
    # The limit on the declared elements of one tensor.
    elements: int = 1 << 40
    # Elements of inputs that are drawn, over all inputs: a model may declare inputs of any size.
    made_elements: int = 1 << 26
    # Entries of an archive of values.
    entries: int = 10_000
    # The ratio of external data to the disk usage of its files. A sparse file, or one that is named many
    # times, would expand without limit.
    repeated: int = 4
    # Bytes that are allowed in addition, so that small models may repeat data.
    repeated_bytes: int = 64 << 20


BUDGET = ReadingBudget()


LIMIT = BUDGET.bytes


def get_size(path: Path) -> int:
    """Return the size in bytes of a regular file. Raises BadInput, without opening it, for a folder, FIFO,
    device or socket.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {shown(path, 200)}: {reason(error)}") from None
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"{shown(path, 200)} is {kind_of(status.st_mode)}, not a regular file")
    return status.st_size


def get_disk_usage(path: Path) -> int:
    """Return the disk usage of a regular file in bytes, below its size for sparse files. Raises OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not status.st_size or os.lseek(file.fileno(), 0, os.SEEK_HOLE) == status.st_size:
            return status.st_size
        return min(status.st_size, 512 * status.st_blocks)


def is_folder(path: Path) -> bool:
    """Return whether there is a folder at `path`; False, too, for a path that the system does not take."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_file(path: Path, limit: int = LIMIT) -> bytes:
    """Return the bytes of a regular file; BadInput when it is none, or longer than `limit` bytes."""
    return read_part(path, 0, None, limit)


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises BadInput for a folder, FIFO, device or socket, without waiting
    for it.
    """
    get_size(path)
    try:
        # O_NONBLOCK: were the file swapped for a FIFO since it was looked at, opening it must still not wait
        #     for a writer.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise BadInput(f"cannot read {shown(path, 200)}: {reason(error)}") from None
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise BadInput(f"{shown(path, 200)} is {kind_of(mode)}, not a regular file")
    return file


def read_part(path: Path, offset: int, length: int | None, limit: int = LIMIT) -> bytes:
    """`length` bytes of a regular file from `offset` on (all the rest for None); BadInput when they are not
    there.
    """
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            wanted = size - offset if length is None else length
            if offset < 0 or wanted < 0 or offset + wanted > size:
                raise BadInput(f"{shown(path, 200)} holds {size} bytes, fewer than the model says")
            if wanted > limit:
                raise BadInput(f"{shown(path, 200)} holds {wanted} bytes; the limit is {limit}")
            file.seek(offset)
            return file.read(wanted)
    except OSError as error:
        raise BadInput(f"cannot read {shown(path, 200)}: {reason(error)}") from None


def resolve_inside(folder: Path, location: str) -> Path:
    """Resolve `location`, a path relative to a model, inside `folder`. Raises BadInput if it leads
    elsewhere.
    """
    parts = location.split("/")
    if (
        not location
        or "\0" in location
        or location.startswith(("/", "\\", "~"))
        or ".." in parts
        or len(location) > 4000
    ):
        raise BadInput(f"external data {shown(location)} is not a path inside the model's folder")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, *parts))
    if os.path.commonpath([root, path]) != root:
        raise BadInput(
            f"external data {shown(location)} is a link out of the model's folder; put the file itself there"
        )
    return Path(path)


def reason(error: Exception) -> str:
    """What went wrong, in the system's words, without the path."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__


def kind_of(mode: int) -> str:
    """Name the kind of a path that is not a regular file, by its mode."""
    for test, name in (
        (stat.S_ISLNK, "a link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return name
    return "something else"


READING_SECONDS = 10.0  # of CPU, and one more for each MiB of the file
READING_MEMORY = 256 << 20  # bytes of addresses, besides those for the file
# More of them in a process of several threads: the limit is one for all, each new thread reserves 136
# MB for its stack and its heap, and OpenBLAS ends the whole process if it gets no memory.
READING_THREADS = 1 << 30
# A text with one emoji takes four times its bytes, and its values as much again.
READING_FACTOR = 8
_Read = TypeVar("_Read", bound=Callable[..., Any])
# The file that is read, its seconds and addresses at most, and the limit of the user's on addresses.
_bounds: list[tuple[Path, float, int, int]] = []


class _TooLongError(BaseException):
    """A reader took too long; one that goes on after bad items must not catch this."""


def bound_reading(read: _Read) -> _Read:
    """Bound what a reader, which takes a path, may use in the main thread: BadInput where it is more.

    The kernel's timer of CPU time asks every tenth of a second, and its limit on addresses makes allocations
    fail, also within a call of C. Only the main thread gets signals, so the others (of the terminal app) have
    no bound. A reader that a bounded one calls counts with it.
    """

    @functools.wraps(read)
    def read_within(*arguments: Any, **named: Any) -> Any:
        path = next(each for each in (*arguments, *named.values()) if isinstance(each, Path))
        if _bounds or threading.current_thread() is not threading.main_thread():
            return read(*arguments, **named)
        try:
            size = sum(each.stat().st_size for each in (path, *path.glob("*")) if each.is_file())
        except OSError:
            # A name that is too long, or an unreadable folder: the reader reports it.
            size = 0
        addresses = measure_addresses() + READING_THREADS * (threading.active_count() > 1)
        users, hard = resource.getrlimit(resource.RLIMIT_AS)
        _bounds.append((path, time.process_time() + READING_SECONDS, addresses + READING_MEMORY, users))
        signal.signal(signal.SIGPROF, _check_time)
        try:
            allow_reading(size)
            signal.setitimer(signal.ITIMER_PROF, 0.1, 0.1)
            return read(*arguments, **named)
        except _TooLongError:
            raise _exceed(path, "time") from None
        except MemoryError:
            if resource.getrlimit(resource.RLIMIT_AS)[0] == users:
                raise
            raise _exceed(path, "memory") from None
        finally:
            _bounds.clear()
            signal.setitimer(signal.ITIMER_PROF, 0)
            resource.setrlimit(resource.RLIMIT_AS, (users, hard))

    return cast(_Read, read_within)


@bound_reading
def read_toml(path: Path, most: int) -> dict[str, Any]:
    """Read a TOML file of at most `most` bytes. Raises BadInput if it is none, or takes too long to read."""
    try:
        return tomllib.loads(read_file(path, most).decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{shown(path, 160)} is not TOML: {shown(error, 160)}") from None


def allow_reading(size: int) -> None:
    """Raise the bounds of the file that is read by those of `size` more bytes, which lie beside it."""
    for path, seconds, addresses, users in _bounds[:1]:
        most = addresses + READING_FACTOR * min(size, LIMIT)
        _bounds[0] = path, seconds + size / 2**20, most, users
        if users == resource.RLIM_INFINITY or most < users:
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _check_time(*_: object) -> None:
    """End the reader if the file takes too long; a late signal finds none."""
    if any(time.process_time() > seconds for _path, seconds, *_rest in _bounds):
        raise _TooLongError


def _exceed(path: Path, what: str) -> BadInput:
    return BadInput(f"{shown(path, 200)} takes more {what} to read than a file of its size may")


def measure_addresses() -> int:
    """Return the bytes of addresses that this process takes; without /proc, more than any limit."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 1 << 62
