"""What a compiler may do to have more memory than its limit: acts of the backend `hoard`, and which succeed."""

import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

if TYPE_CHECKING:
    from opsieve.backends.observation import Observation

NAME = "hoard"
ENTRY = EntryPoint(NAME, "memory_drill:BACKEND", "opsieve.backends")
LIMIT, PIECE = 256 << 20, 32 << 20
PIECES = 3 * LIMIT // PIECE  # an act has succeeded with three times the limit
# What is left out of the walls, and what is allowed.
MODES: Sequence[tuple[tuple[str, ...], str]] = (
    ((), ""),
    ((), "shared-memory"),
    (("filter",), ""),
    (("namespaces",), ""),
    (("namespaces", "filter"), ""),
)
libc = ctypes.CDLL(None, use_errno=True)


def _fill(file: int) -> None:
    for _ in range(PIECE >> 20):
        os.write(file, b"x" * (1 << 20))


def memory_files() -> None:
    for _ in range(PIECES):
        _fill(os.memfd_create("hoard"))


def _let_children(act: Callable[[], object], count: int) -> None:
    """Have children act and keep what they have; returns once they have it."""
    ready, tell = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            kept = act()
            os.write(tell, b"x")
            time.sleep(30)
            os._exit(bool(kept) & 0)
    os.close(tell)
    for _ in range(count):
        if not os.read(ready, 1):
            raise OSError("a child has ended")


def memory_files_of_a_child() -> None:
    _let_children(memory_files, 1)


def mapped_memory_files() -> None:
    for _ in range(PIECES):
        file = os.memfd_create("hoard")
        os.ftruncate(file, PIECE)
        with mmap.mmap(file, PIECE) as room:
            room[:] = b"x" * PIECE


def segments() -> None:
    libc.shmat.restype = ctypes.c_void_p
    for _ in range(PIECES):
        number = libc.shmget(0, ctypes.c_size_t(PIECE), 0o1600)
        if number < 0:
            raise OSError(ctypes.get_errno(), "shmget")
        place = libc.shmat(number, None, 0)
        libc.shmctl(number, 0, None)  # goes with the last that has it
        ctypes.memset(place, 1, PIECE)
        _let_children(lambda: None, 1)  # who keep it
        libc.shmdt(ctypes.c_void_p(place))


def _files(folder: str) -> None:
    for number in range(PIECES):
        with open(os.path.join(folder, f"hoard{number}"), "wb", 0) as file:
            _fill(file.fileno())


def files_in_shared_memory() -> None:
    _files("/dev/shm")


def files_in_scratch() -> None:
    _files(tempfile.gettempdir())


def removed_files() -> None:
    for _ in range(PIECES):
        file = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR)
        _fill(file)


def shared_pages_of_children() -> None:
    def fill() -> mmap.mmap:
        room = mmap.mmap(-1, LIMIT * 9 // 10)
        for at in range(0, len(room), mmap.PAGESIZE):
            room[at] = 1
        return room

    _let_children(fill, 3)


ACTS: Mapping[str, Callable[[], None]] = {
    act.__name__: act
    for act in (
        memory_files,
        memory_files_of_a_child,
        mapped_memory_files,
        segments,
        files_in_shared_memory,
        files_in_scratch,
        removed_files,
        shared_pages_of_children,
    )
}


class Hoarder:
    """A backend whose option is an act; what it answers says whether all of the memory was there."""

    name = NAME
    package = extra = ""
    options: Mapping[str, tuple[str, ...]] = {"act": ()}
    main_option = "act"
    baseline: Mapping[str, str] = {}

    def base(self, python: tuple[int, int]) -> tuple[str, ...]:
        return ()

    def companions(self, release: str) -> tuple[str, ...]:
        return ()

    def load(self) -> str:
        return "1"

    def classify(self, stage: str, exception: str, message: str) -> str:
        return "error"

    @property
    def sandbox_allows(self) -> tuple[str, ...]:
        return tuple(filter(None, [os.environ.get("HOARD_ALLOWED", "")]))

    def prepare(self, request: Any) -> Callable[[Any], dict[str, Any]]:
        act = ACTS[request.options["act"]]

        def run(inputs: Any) -> dict[str, Any]:
            act()
            time.sleep(2)  # a look comes every 50 ms, a busy machine's later
            return {"y": np.array(True)}

        return run


BACKEND = Hoarder()


def hoard(act: str, without: Sequence[str] = (), allowed: str = "") -> "Observation":
    """What is seen of an act where these walls are left out and this is allowed."""
    # A worker, which loads this file, has none of these.
    from models import X, chain

    from opsieve.backends import registry
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.sandbox import policy
    from opsieve.backends.workers.workers import Workers
    from opsieve.backends.workers.zygotes.shared_zygotes import SharedZygotes
    from opsieve.backends.workers.zygotes.zygote import Limits

    with ExitStack() as stack:
        for mapping, values in (
            (registry._entries(), {NAME: {ENTRY.value: ENTRY}}),
            (policy._refused, dict.fromkeys(without, "left out")),
            (os.environ, {"HOARD_ALLOWED": allowed}),
        ):
            stack.enter_context(patch.dict(mapping, values))
        limits = Limits(seconds=30.0, memory=LIMIT)
        workers = stack.enter_context(Workers(limits, zygotes=SharedZygotes()))
        return workers.observe(resolve(f"{NAME}:act={act}"), chain("Relu"), X, fresh=True)


def is_disk(act: str, without: Sequence[str]) -> bool:
    """Whether an act fills a disk where these walls are left out, and takes no memory."""
    return act in ("files_in_scratch", "removed_files") and "namespaces" in without


if __name__ == "__main__":
    faults = 0
    for mode in MODES:
        for name in ACTS:
            found = hoard(name, *mode)
            fault = not is_disk(name, mode[0]) and found.outcome not in ("error", "out-of-memory")
            faults += fault
            print(
                f"{'FAULT' * fault:6}{mode!s:40} {name:28} {found.outcome:14} {found.message[:80]}",
                flush=True,
            )
    raise SystemExit(bool(faults))
