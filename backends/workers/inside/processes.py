"""Find and kill processes below this one. Loaded by `child.py`: standard library only, Python 3.8 and
newer.
"""

import contextlib
import os
import signal
from typing import List


def kill_group(pid: int) -> None:
    """Send SIGKILL to a process and to the group that it leads."""
    for send in (os.killpg, os.kill):
        # It has ended, or leads no group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def list_children() -> List[int]:
    """List this process's children quickly from the kernel's list, which may miss one while another ends."""
    found: List[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task) as listed:
                found += map(int, listed.read().split())
    except OSError:
        # The kernel does not keep such a list.
        return find_children()
    return found


def find_children() -> List[int]:
    """Find this process's children, adopted ones too, among all processes of the machine."""
    me, found = os.getpid(), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry, "rb") as stat:
                # The second field is the name of the process, which may hold spaces and brackets.
                parent = int(stat.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            # It ended while we looked
            continue
        if parent == me:
            found.append(int(entry))
    return found
