"""Processes below this one, and their end. Loaded by `child.py`: the standard library only, on Python 3.8 and
newer.
"""

import contextlib
import os
import signal
from typing import List


def kill(pid: int) -> None:
    """SIGKILL for a process and for the group that it leads."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or leads no group
            send(pid, signal.SIGKILL)


def listed_children() -> List[int]:
    """The pids of this process's children as the kernel lists them: at once, but one may be missing while
    another ends.
    """
    found: List[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task) as listed:
                found += map(int, listed.read().split())
    except OSError:  # a kernel that keeps no such list
        return children()
    return found


def children() -> List[int]:
    """The pids of this process's children, adopted ones too, found among all processes of the machine."""
    me, found = os.getpid(), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry, "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it ended while we looked
        if parent == me:
            found.append(int(entry))
    return found
