"""Measure the working time of a process tree: CPU time, and time in which all of it sleeps.

A wall clock would mistake a busy machine for a hang. Time spent waiting for a CPU (or the disk) does not
count; time in which every process sleeps does, since nothing may wake them. A distant wall-clock limit is
behind both.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

# Times the limit in wall seconds: a process that waits forever uses no CPU time, and must end as well.
BACKSTOP = 30.0
# Seconds until a process is looked at for the first time; most answers come before
_FIRST = 0.25
# Seconds between two looks
_SLICE = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
# running, waiting for a CPU, or for the disk
_WANTS = frozenset("RD")


@dataclass(frozen=True, slots=True)
class Load:
    """The usage of a process tree: CPU seconds, whether any thread wants to run, processes, and summed
    resident bytes.

    Shared memory counts once for each process.
    """

    cpu: float
    wants: bool
    processes: int = 1
    # Shared memory counts for each process.
    resident: int = 0


class WorkClock:
    """Measures the working time of the process `pid` and its children; `is_expired` compares it with
    `seconds`.

    `look` gives the load of a process tree, None if it is unreadable: then wall time counts.
    """

    def __init__(
        self,
        pid: int,
        seconds: float,
        look: Callable[[int], Load | None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid, self._seconds, self._look, self._now = pid, seconds, look or read_load, now
        self._begun = self._then = now()
        self.seen: Load | None = None
        self._had = 0.0

    def get_wait(self) -> float:
        """Return the seconds to wait until the next look."""
        return min(_FIRST if self._then == self._begun else _SLICE, max(self._seconds / 4, 0.01))

    def is_due(self) -> bool:
        """Return whether it is time for the next look."""
        return self._now() - self._then >= self.get_wait()

    def is_expired(self) -> bool:
        """Update the time, and return whether it is over."""
        then, now = self._then, self._now()
        before, load = self.seen, self._look(self._pid)
        self._then, self.seen = now, load
        if load is None or before is None or not (load.wants or before.wants):
            spent = load.cpu - before.cpu if load is not None and before is not None else 0.0
            # All of it slept at both looks, so wall time counts, or CPU time that threads used in between.
            self._had += max(now - then, spent)
        else:
            self._had += load.cpu - before.cpu
        return self._had >= self._seconds or now - self._begun >= BACKSTOP * self._seconds


def read_load(pid: int) -> Load | None:
    """Read the load of a process and its descendants from /proc; None if the process is gone."""
    cpu, wants, left, found, resident = 0.0, False, [pid], 0, 0
    while left:
        process = left.pop()
        # Processes end while /proc is read.
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _read_fields(f"/proc/{process}/stat")
            # With the children that it has waited for
            cpu += sum(map(int, fields[11:15])) / _TICK
            resident += int(fields[21]) * _PAGE
            found += 1
            for task in os.listdir(f"/proc/{process}/task"):
                place = f"/proc/{process}/task/{task}"
                with contextlib.suppress(OSError, ValueError, IndexError):
                    wants = wants or _read_fields(f"{place}/stat")[0] in _WANTS
                    left.extend(map(int, _read_text(f"{place}/children").split()))
    return Load(cpu, wants, found, resident) if found else None


def read_memory(pid: int) -> int:
    """Return the resident bytes of a process and its descendants, shared ones once; 0 if unreadable."""
    found = 0
    for process in list_family(pid):
        # A process may end, or the kernel may hide its memory; what can be read still counts.
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The proportional size, so that pages shared with the zygote are not counted for each process.
            shares = re.findall(r"^Pss:\s+(\d+) kB", _read_text(f"/proc/{process}/smaps_rollup"), re.M)
            found += int(shares[0]) << 10
    return found


def list_family(pid: int) -> list[int]:
    """List a process and its descendants, as far as they can be seen."""
    family = [pid]
    # The list grows while it is walked: children are appended behind their parents.
    for process in family:
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{process}/task"):
                family.extend(map(int, _read_text(f"/proc/{process}/task/{task}/children").split()))
    return family


def _read_fields(path: str) -> list[str]:
    """Read the fields of a `stat` file after the name, which may hold any text."""
    return _read_text(path).rpartition(")")[2].split()


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 16)


def count_oom_kills() -> int:
    """Count the processes that the kernel has killed for lack of memory, on this machine and in this
    container.
    """
    found = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        with contextlib.suppress(OSError, ValueError):
            found += sum(
                int(line.split()[1]) for line in _read_text(path).splitlines() if line.startswith("oom_kill ")
            )
    return found
