"""The main process's side of hostile_acts.py: what the acts are after, and which of them succeeded."""

import ctypes
import json
import mmap
import os
import socket
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hostile_acts
from models import X, chain

from opsieve.backends import registry
from opsieve.backends.registry import resolve
from opsieve.backends.workers.sandbox import policy
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.shared_zygotes import SharedZygotes
from opsieve.backends.workers.zygotes.zygote import Limits

MEMORY = 1 << 30
# What is left out; None: --no-sandbox.
WALLS = {
    "none": None,
    "all": (),
    "namespaces": ("landlock", "filter"),
    "landlock and filter": ("namespaces",),
    "landlock": ("namespaces", "filter"),
    "filter": ("namespaces", "landlock"),
}


@contextmanager
def victim(folder: Path) -> Iterator[dict[str, Any]]:
    """What the acts are after, in `folder` and this process; their facts."""
    home, project = folder / "home", folder / "project"
    home.mkdir()
    project.mkdir()
    (home / "key").write_text("private")
    (project / "source.py").write_text("ours")
    (project / "victim").write_text("")
    mark = f"hostile-{os.getpid()}-{time.monotonic_ns()}"
    libc = ctypes.CDLL(None)
    with ExitStack() as stack:
        listening: list[socket.socket] = []
        for family, place in (
            (socket.AF_INET, ("127.0.0.1", 0)),
            (socket.AF_INET6, ("::1", 0)),
            (socket.AF_UNIX, str(folder / "socket")),
            (socket.AF_UNIX, "\0" + mark),
        ):
            listening.append(stack.enter_context(socket.socket(family)))
            with suppress(OSError):  # a machine without IPv6
                listening[-1].bind(place)
                listening[-1].listen()
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        opened = stack.enter_context(open(folder / "open", "w+"))
        opened.write("open")
        opened.flush()
        room = ctypes.create_string_buffer(b"memory")
        segment = int(libc.shmget(os.getpid(), mmap.PAGESIZE, 0o1600))
        shared = Path("/dev/shm", mark)
        shared.write_text("shared")
        try:
            yield {
                "main": os.getpid(),
                "command": Path("/proc/self/cmdline").read_text(),
                "tcp": listening[0].getsockname()[1],
                "tcp6": listening[1].getsockname()[1],
                "socket": str(folder / "socket"),
                "abstract": mark,
                "udp": udp.getsockname()[1],
                "key": str(home / "key"),
                "project": str(project),
                "descriptor": opened.fileno(),
                "address": ctypes.addressof(room),
                "shm": mark,
                "segment": os.getpid(),
                "packages": sysconfig.get_path("purelib"),
                "opsieve": registry.__file__,
                "mark": mark,
                "memory": MEMORY,
            }
        finally:
            libc.shmctl(segment, 0, None)
            shared.unlink(missing_ok=True)
            Path("/tmp", mark).unlink(missing_ok=True)


def succeeded(folder: Path, walls: str, acts: Sequence[str] = ()) -> tuple[set[str], dict[str, str]]:
    """The acts that succeed within the walls of that name, and what the others were told. `folder` is
    empty.
    """
    without = WALLS[walls]
    done: set[str] = set()
    notes: dict[str, str] = {}
    with ExitStack() as stack:
        facts = stack.enter_context(victim(folder))
        environment = {hostile_acts.FACTS: json.dumps(facts), hostile_acts.SECRET: "1"}
        stack.enter_context(patch.dict(os.environ, environment))
        stack.enter_context(patch.dict(os.environ, {policy.SWITCH: "off" if without is None else "on"}))
        stack.enter_context(patch.dict(policy._refused, dict.fromkeys(without or (), "left out")))
        stack.enter_context(
            patch.dict(
                registry._entries(), {hostile_acts.NAME: {hostile_acts.ENTRY.value: hostile_acts.ENTRY}}
            )
        )
        limits = Limits(seconds=20.0, memory=MEMORY)
        workers = stack.enter_context(Workers(limits, zygotes=SharedZygotes()))
        workers.observe(resolve("hostile:read_a_secret_variable"), chain("Relu"), X)  # a neighbour
        for name in acts or hostile_acts.ACTS:
            seen = workers.observe(resolve(f"hostile:{name}"), chain("Relu"), X, fresh=True)
            yes = seen.outcome == "ok" and bool(seen.outputs and seen.outputs["y"])
            notes[name] = f"{seen.outcome} {seen.message} {' '.join(seen.notes)}".strip()
            if after(name, facts, yes, workers):
                done.add(name)
    return done, notes


def after(name: str, facts: dict[str, Any], yes: bool, workers: Workers) -> bool:
    """Whether an act succeeded of which the worker itself said `yes` or not."""
    (zygote,) = workers._zygotes.values()
    if name == "write_into_the_shared_tmp":
        return Path("/tmp", facts["mark"]).exists()
    if name == "swap_the_scratch_folder_for_a_link":
        return not Path(facts["project"], "source.py").exists()
    if name == "leave_a_process_behind":
        return yes and not _gone(zygote._process.pid)
    if name == "kill_the_zygote":
        return not zygote.is_alive
    return yes


def _gone(zygote: int) -> bool:
    """Whether, soon, nothing is left below a zygote but workers, which have no children."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if _depth(zygote) <= 2 and len(_children(zygote)) <= 1:
            return True
        time.sleep(0.05)
    return False


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _depth(pid: int) -> int:
    return max((1 + _depth(child) for child in _children(pid)), default=0)


if __name__ == "__main__":
    import tempfile

    table = {}
    for walls in sys.argv[1:] or list(WALLS):
        with tempfile.TemporaryDirectory() as folder:
            table[walls], notes = succeeded(Path(folder), walls)
        print(walls, len(table[walls]), sorted(table[walls]))
        for name, note in notes.items():
            print("   ", name in table[walls], name, note[:150])
