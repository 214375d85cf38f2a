"""How long a process tree has had to work: CPU time, and the time in which nothing of it wanted to run.

A wall clock makes a busy machine a hang. Here the time in which a process waits for a CPU (or for the disk)
is not counted; the time in which all of it sleeps is, since nothing will wake it. A distant wall is behind
both.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

BACKSTOP = 30.0  # times the limit, in wall seconds
_FIRST = 0.25  # seconds until a process is looked at for the first time; most answers come before
_SLICE = 0.1  # seconds between two looks
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_WANTS = frozenset("RD")  # running, waiting for a CPU, or for the disk


@dataclass(frozen=True, slots=True)
class Load:
    """What a process tree has used, in CPU seconds, whether any thread of it wants to run, its processes, and
    their resident bytes summed.
    """

    cpu: float
    wants: bool
    processes: int = 1
    resident: int = 0  # what processes share counts for each of them


class WorkClock:
    """Counts the time that the process `pid` and its children have had; `expired` tells when it is `seconds`
    or more.

    `look` gives the load of a process tree, None when it cannot be read: then wall time counts.
    """

    def __init__(
        self,
        pid: int,
        seconds: float,
        look: Callable[[int], Load | None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid, self._seconds, self._look, self._now = pid, seconds, look or load_of, now
        self._begun = self._then = now()
        self.seen: Load | None = None
        self._had = 0.0

    def slice(self) -> float:
        """Seconds to wait until the next look."""
        return min(_FIRST if self._then == self._begun else _SLICE, max(self._seconds / 4, 0.01))

    def expired(self) -> bool:
        """Look, count what came since, and tell whether the time is over."""
        then, now = self._then, self._now()
        before, load = self.seen, self._look(self._pid)
        self._then, self.seen = now, load
        if load is None or before is None or not (load.wants or before.wants):
            spent = load.cpu - before.cpu if load is not None and before is not None else 0.0
            self._had += max(now - then, spent)
        else:
            self._had += load.cpu - before.cpu
        return self._had >= self._seconds or now - self._begun >= BACKSTOP * self._seconds


def load_of(pid: int) -> Load | None:
    """The load of a process and its descendants, from /proc; None for a process that is gone."""
    cpu, wants, left, found, resident = 0.0, False, [pid], 0, 0
    while left:
        process = left.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _fields(f"/proc/{process}/stat")
            cpu += sum(map(int, fields[11:15])) / _TICK  # with the children that it has waited for
            resident += int(fields[21]) * _PAGE
            found += 1
            for task in os.listdir(f"/proc/{process}/task"):
                place = f"/proc/{process}/task/{task}"
                with contextlib.suppress(OSError, ValueError, IndexError):
                    wants = wants or _fields(f"{place}/stat")[0] in _WANTS
                    left.extend(map(int, _text(f"{place}/children").split()))
    return Load(cpu, wants, found, resident) if found else None


def memory_of(pid: int) -> int:
    """The bytes that a process and its descendants keep in memory, what they share counted once; 0 where that
    cannot be read.
    """
    found, left = 0, [pid]
    while left:
        process = left.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            shares = re.findall(r"^Pss:\s+(\d+) kB", _text(f"/proc/{process}/smaps_rollup"), re.M)
            found += int(shares[0]) << 10
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{process}/task"):
                left.extend(map(int, _text(f"/proc/{process}/task/{task}/children").split()))
    return found


def _fields(path: str) -> list[str]:
    """The fields of a `stat` file from the state on; the name before it may hold anything."""
    return _text(path).rpartition(")")[2].split()


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 16)


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory so far, on this machine and in this
    container.
    """
    found = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        with contextlib.suppress(OSError, ValueError):
            found += sum(
                int(line.split()[1]) for line in _text(path).splitlines() if line.startswith("oom_kill ")
            )
    return found
