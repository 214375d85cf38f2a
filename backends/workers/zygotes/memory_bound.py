"""Bound the memory of a worker that no limit of one process bounds: of its children, and of memory files,
segments and files in memory, which stay when they are unmapped.

A control group counts all of them, where this process may make one (cgroup v2 with the controller `memory`).
Elsewhere the worker's filter refuses what can be refused (`system_calls.py`), and the rest is looked at every
50 ms.
"""

import atexit
import contextlib
import functools
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from opsieve.backends.workers.inside.namespaces import HOME

SLICE = 0.05  # seconds between two looks
EXCESS = 1.5  # times the limit, at which a worker ends that was looked at
_OWN = re.compile(r"opsieve-(\d{1,10})")
_IN_MEMORY = ("/tmp", "/dev/shm", HOME)  # of a zygote's file tree


class MemoryGroup:
    """The control group of one worker."""

    def __init__(self, folder: Path):
        self._folder = folder

    def has_overrun(self) -> bool:
        """Return whether the kernel has ended processes of the group for their memory."""
        with contextlib.suppress(OSError):
            return bool(re.search(r"^oom_kill [1-9]", (self._folder / "memory.events").read_text(), re.M))
        return False

    def remove(self) -> None:
        """Remove the group; its processes have ended, or end now."""
        with contextlib.suppress(OSError):
            (self._folder / "cgroup.kill").write_text("1")
        _remove_group(self._folder)


def make_group(pid: int, memory: int) -> MemoryGroup | None:
    """Put a process into a control group that holds `memory` bytes; None where there can be none."""
    parent = find_parent_group()
    if parent is None:
        return None
    folder = parent / str(pid)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in (
            ("memory.max", memory),
            ("memory.swap.max", 0),
            ("memory.oom.group", 1),
            ("cgroup.procs", pid),
        ):
            with contextlib.suppress(
                *(FileNotFoundError,) if "swap" in name else ()
            ):  # a kernel without swap
                (folder / name).write_text(str(value))
    except OSError:
        _remove_group(folder)
        return None
    return MemoryGroup(folder)


@functools.cache
def find_parent_group() -> Path | None:
    """Find or make the group below which this process may make groups with a limit on memory.

    It lies in the group of this process or above it, where no group between them has a limit of its own, so
    that workers leave none.
    """
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        root = Path(_find_mount(Path("/proc/self/mountinfo").read_text()))
        own = root / Path("/proc/self/cgroup").read_text().split("0::", 1)[1].split("\n")[0].lstrip("/")
        for folder in (own, *own.parents):
            if "memory" in (folder / "cgroup.subtree_control").read_text().split():
                return _make_parent(folder)
            limit = folder / "memory.max"
            if folder == root or (limit.exists() and limit.read_text().strip() != "max"):
                return None
    return None


def _find_mount(mounts: str) -> str:
    return next(line.split()[4] for line in mounts.splitlines() if " - cgroup2 " in line)


def _make_parent(folder: Path) -> Path:
    """Make the group of this process's workers, and remove those of processes that are dead."""
    for path in folder.glob("opsieve-*"):
        match = _OWN.fullmatch(path.name)
        if match and not Path("/proc", match[1]).exists():
            _remove_groups(path)
    made = folder / f"opsieve-{os.getpid()}"
    made.mkdir(exist_ok=True)
    atexit.register(_remove_groups, made)
    (made / "cgroup.subtree_control").write_text("+memory")
    return made


def _remove_groups(parent: Path) -> None:
    for each in (*parent.glob("*/"), parent):
        _remove_group(each)


def _remove_group(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def measure_shared(processes: Iterable[int], known: Collection[tuple[int, int]]) -> int:
    """Return the bytes of memory files, segments and files in memory that processes have, as far as they can
    be seen; `known` are the devices and numbers of files that are ours.
    """
    seen, taken, pids = set(known), 0, list(processes)
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):
                        status = os.stat(entry.path)
                        if (status.st_dev, status.st_ino) not in seen:
                            seen.add((status.st_dev, status.st_ino))
                            taken += 512 * status.st_blocks
    for place in _IN_MEMORY if pids else ():
        with contextlib.suppress(OSError):
            path = f"/proc/{pids[0]}/root{place}"
            if os.stat(path).st_dev != _get_device(place):
                there = os.statvfs(path)
                taken += (there.f_blocks - there.f_bfree) * there.f_frsize
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
            fields = line.split()
            taken += int(fields[-2]) * (int(fields[4]) in pids)  # in memory; the last is in swap
    return taken


def _get_device(place: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(place).st_dev
    return 0


def describe_bound(walls: Sequence[str]) -> str:
    """Describe in a few words what bounds the memory of workers with these walls."""
    if find_parent_group() is not None:
        return "a control group"
    looks = f"looks every {1000 * SLICE:.0f} ms"
    return f"the filter and {looks}" if "filter" in walls else looks
