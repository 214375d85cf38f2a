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
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from opsieve.backends.workers.inside.namespaces import HOME

# Seconds between two looks
SLICE = 0.05
# Times the limit, at which a worker ends that was looked at
EXCESS = 1.5
_OWN = re.compile(r"opsieve-(\d{1,10})")
# Of a zygote's file tree
_IN_MEMORY = ("/tmp", "/dev/shm", HOME)


def has_overrun(group: Path) -> bool:
    """Return whether the kernel has ended processes of a group for their memory."""
    with contextlib.suppress(OSError):
        return re.search(r"^oom_kill [1-9]", (group / "memory.events").read_text(), re.M) is not None
    return False


def make_group(pid: int, memory: int) -> Path | None:
    """Put a process into a control group that holds `memory` bytes, and return its folder; None if that is
    not allowed.
    """
    parent = find_parent_group()
    if parent is None:
        return None
    folder = parent / str(pid)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # `oom.group` kills all processes of the worker at once: otherwise the kernel picks one, and the rest
        # goes on.
        values = {"memory.max": memory, "memory.oom.group": 1, "cgroup.procs": pid}
        # A kernel without swap has none
        if (folder / "memory.swap.max").exists():
            # Otherwise a worker would fill the swap of the machine before its limit holds.
            values["memory.swap.max"] = 0
        for name, value in values.items():
            (folder / name).write_text(str(value))
    except OSError:
        remove_group(folder)
        return None
    return folder


@functools.cache
def find_parent_group() -> Path | None:
    """Find or make the group below which this process may make groups with a limit on memory.

    It lies in the group of this process or above it, where no group between them has a limit of its own, so
    that workers leave none.
    """
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        root = Path(next(line.split()[4] for line in mounts if " - cgroup2 " in line))
        own = root / Path("/proc/self/cgroup").read_text().split("0::", 1)[1].split("\n")[0].lstrip("/")
        for folder in (own, *own.parents):
            if "memory" in (folder / "cgroup.subtree_control").read_text().split():
                return _make_parent(folder)
            # Leaving a group with a limit would let workers exceed what the machine's owner set.
            limit = folder / "memory.max"
            if folder == root or (limit.exists() and limit.read_text().strip() != "max"):
                return None
    return None


def _make_parent(folder: Path) -> Path:
    """Make the group of this process's workers, and remove those of processes that are dead."""
    for path in folder.glob("opsieve-*"):
        match = _OWN.fullmatch(path.name)
        # A killed process removes no groups of its own.
        if match and not Path("/proc", match[1]).exists():
            _remove_groups(path)
    made = folder / f"opsieve-{os.getpid()}"
    made.mkdir(exist_ok=True)
    atexit.register(_remove_groups, made)
    (made / "cgroup.subtree_control").write_text("+memory")
    return made


def _remove_groups(parent: Path) -> None:
    for each in (*parent.glob("*/"), parent):
        remove_group(each)


def remove_group(folder: Path) -> None:
    """Remove a group whose processes have ended; one that still has some goes with its parent."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def measure_shared(processes: Iterable[int], known: Collection[tuple[int, int]]) -> int:
    """Return the bytes of memory files, segments and files in memory that processes have, as far as they can
    be seen; `known` are the devices and numbers of files that are ours.
    """
    seen, taken, pids = set(known), 0, list(processes)
    for status in _iter_memory_files(pids):
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            # Blocks and not the size: a file with holes may claim far more than it takes.
            taken += 512 * status.st_blocks
    with contextlib.suppress(OSError, IndexError):
        tree = f"/proc/{pids[0]}/root"
        # Only in a tree of its own; in the machine's, these folders belong to all.
        for place in _IN_MEMORY if os.stat(tree).st_dev != os.stat("/").st_dev else ():
            there = os.statvfs(tree + place)
            taken += (there.f_blocks - there.f_bfree) * there.f_frsize
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
            # The last but one is in memory, the last in swap
            fields = line.split()
            taken += int(fields[-2]) * (int(fields[4]) in pids)
    return taken


def _iter_memory_files(processes: Iterable[int]) -> Iterator[os.stat_result]:
    """Yield the status of each open memory file of processes, as far as they can be seen."""
    for pid in processes:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):
                        yield os.stat(entry.path)


def describe_bound(walls: Sequence[str]) -> str:
    """Describe in a few words what bounds the memory of workers with these walls."""
    looks = f"looks every {1000 * SLICE:.0f} ms"
    elsewhere = f"the filter and {looks}" if "filter" in walls else looks
    return elsewhere if find_parent_group() is None else "a control group"
