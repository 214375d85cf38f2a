"""What a command has started, as /proc tells it: the processes below it by what they are, their memory and
their descriptors.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["main", "lane", "worker"]  # workers are the zygotes and what they forked
_LANE, _TICKS = b"lane_process", os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessSample:
    """A process: CPU seconds with those of children that it waited for, proportional memory in MB, open
    descriptors.

    Of what runs a compiler, `compiler` names it: the backend's attribute, or its file where that has one
    backend.
    """

    pid: int
    role: Role
    compiler: str
    cpu: float
    memory: float
    descriptors: int


def below(root: int) -> list[tuple[int, Role]]:
    """A process and everything below it, with their roles."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it ended meanwhile
            continue
        children.setdefault(parent, []).append(int(name))
    found: list[tuple[int, Role]] = []
    todo: list[tuple[int, Role]] = [(root, "main")]
    while todo:
        pid, role = todo.pop()
        found.append((pid, role))
        todo += [(child, _role(child, role)) for child in children.get(pid, ())]
    return found


def cpu_seconds(root: int) -> float:
    """CPU seconds of a process and all below it, those of dead children that were waited for included."""
    total = 0.0
    for pid, _ in below(root):
        with suppress(OSError):  # it ended meanwhile
            total += _cpu(pid)
    return total


def cpu_by_compiler(root: int) -> dict[str, float]:
    """The same by compiler, of other processes by role, without the cost of looking at memory."""
    found: dict[str, float] = {}
    for pid, role in below(root):
        with suppress(OSError):
            name = compiler_of(Path("/proc", str(pid), "cmdline").read_bytes()) or role
            found[name] = found.get(name, 0.0) + _cpu(pid)
    return found


def samples(root: int) -> Iterator[ProcessSample]:
    """What each of them has now; those that end meanwhile are left out."""
    for pid, role in below(root):
        place = Path("/proc", str(pid))
        try:
            cpu = _cpu(pid)
            shared = next(
                line for line in (place / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:")
            )
            memory, descriptors = int(shared.split()[1]) / 1024, len(os.listdir(place / "fd"))
            yield ProcessSample(
                pid, role, compiler_of((place / "cmdline").read_bytes()), cpu, memory, descriptors
            )
        except (OSError, StopIteration, IndexError):
            continue


def compiler_of(command: bytes) -> str:
    """The compiler of a command line, as `child.py` is started and what it forks keeps it; "" for any
    other.
    """
    for word in command.split(b"\0"):
        if word.startswith(b"{") and b'"backend"' in word:
            return name_of(json.loads(word)["backend"])
    return ""


def name_of(location: Sequence[str]) -> str:
    """How the compiler of a backend is called here."""
    module, _, attribute = location
    return module.rpartition(".")[2] if attribute == "BACKEND" else attribute.lower()


def _cpu(pid: int) -> float:
    return (
        sum(map(int, Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[11:15])) / _TICKS
    )


def _role(pid: int, parent: Role) -> Role:
    if parent != "main":
        return "worker"
    try:
        return "lane" if _LANE in Path("/proc", str(pid), "cmdline").read_bytes() else "worker"
    except OSError:
        return "worker"
