"""The worker's side of a Dask cluster: lanes that do tests, kept for the next question, and the files of a
case as they travel.

Questions and answers are the frames of `campaign/lane_messages.py`. A lane that is not asked for a while
ends.
"""

import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from opsieve.backends.registry import resolve
from opsieve.backends.target import BadTarget
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.generation.generator_version import generator_version
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import read_file
from opsieve.triage.campaign.lane_messages import decode, encode
from opsieve.triage.campaign.lane_spawn import LaneClient, spawn

T = TypeVar("T")
_PATIENCE = 120.0  # seconds that a thing waits for a task


class Kept(Generic[T]):
    """Things that wait, by the campaign or reduction that they serve; `end` ends one. Thread-safe."""

    def __init__(self, end: Callable[[T], object]):
        self._end = end
        self._waiting: dict[str, list[tuple[T, threading.Timer]]] = {}
        self._lock = threading.Lock()

    def take(self, owner: str) -> T | None:
        """A thing that waits, no longer kept; None where there is none."""
        with self._lock:
            waiting = self._waiting.get(owner)
            if not waiting:
                return None
            thing, timer = waiting.pop()
        timer.cancel()
        return thing

    def keep(self, owner: str, thing: T) -> None:
        """Have it wait for the next task, for a while."""
        timer = threading.Timer(_PATIENCE, self._give_up, (owner, thing))
        timer.daemon = True
        with self._lock:
            self._waiting.setdefault(owner, []).append((thing, timer))
        timer.start()

    def end(self, owner: str) -> None:
        """End all that waits for an owner."""
        while (thing := self.take(owner)) is not None:
            self._end(thing)

    def _give_up(self, owner: str, thing: T) -> None:
        with self._lock:
            waiting = self._waiting.get(owner, [])
            left = [item for item in waiting if item[0] is not thing]
            if len(left) == len(waiting):
                return  # it was taken at that moment
            self._waiting[owner] = left
        self._end(thing)


class LaneDied(Exception):
    """A lane ended before it had answered; the message has its status."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What a worker has: the generator's version, Python's, and by target the compiler's or why there is
    none.
    """

    generator: str
    python: str
    versions: dict[str, str]
    missing: dict[str, str]


def installed(targets: Sequence[str], offline: bool = False) -> Installed:
    """What this worker has of what tests on these targets need; `offline`, a release that is not installed is
    missing.
    """
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    with Workers(offline=offline) as workers:
        for name in targets:
            try:
                versions[name] = workers.version(resolve(name))
            except (Unavailable, BadTarget) as error:
                missing[name] = str(error)
    return Installed(generator_version(), platform.python_version(), versions, missing)


def answers(campaign: str, begin: bytes, question: bytes) -> list[bytes]:
    """What a lane of this worker, begun with `begin` for a campaign of this id, answers to a question, frame
    by frame. LaneDied.
    """
    lane = _KEPT.take(campaign)
    try:
        if lane is None:
            lane = spawn(meeting=campaign)
            lane.begin(decode(begin))  # type: ignore[arg-type]  # what the pool sends
        found = list(map(encode, lane.ask(decode(question))))  # type: ignore[arg-type]
    except (EOFError, OSError):
        raise LaneDied(f"status {lane.end() if lane else None}") from None
    except BaseException:
        if lane is not None:
            lane.end()
        raise
    _KEPT.keep(campaign, lane)
    return found


def end_lanes(campaign: str) -> None:
    """End the lanes that are kept for a campaign."""
    _KEPT.end(campaign)


_KEPT: Kept[LaneClient] = Kept(lambda lane: lane.end())


_MOST = 256 << 20  # bytes of the files of a case

Files = Mapping[str, bytes]


def files_of(folder: Path, but: str = "") -> dict[str, bytes]:
    """The files of a case by their path in it, without links and folders called `but`. BadInput where they
    are too large to be sent.
    """
    found: dict[str, bytes] = {}
    room = _MOST
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != but]
        for path in (Path(place) / name for name in names):
            if path.is_symlink() or not path.is_file():
                continue
            data = found[path.relative_to(folder).as_posix()] = read_file(path, room)
            room -= len(data)
            if room <= 0:
                raise BadInput(f"{shown(folder, 200)} is too large to be sent to a cluster")
    return found


def write_files(files: Files, folder: Path) -> None:
    """Write files into a folder. BadInput for a path that leaves it."""
    for name, data in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BadInput("the other side sent a path that leaves the folder")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / name, data)
