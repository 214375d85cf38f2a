"""The worker's side of a Dask cluster: lanes that do tests, kept between questions, and the files of a case
in transit.

Questions and answers are the frames of `campaign/lane_messages.py`. A lane without questions for a while
ends.
"""

import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from opsieve.backends import registry, target
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.generation.generator_version import compute_generator_version
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import read_file
from opsieve.triage.campaign import lane_messages, lane_spawn

T = TypeVar("T")
# Seconds that a thing waits for a task
_PATIENCE = 120.0


class Kept(Generic[T]):
    """Waiting objects by the campaign or reduction that they serve; `end` ends one. Thread-safe."""

    def __init__(self, end: Callable[[T], object]):
        self._end = end
        self._waiting: dict[str, list[tuple[T, threading.Timer]]] = {}
        self._lock = threading.Lock()

    def take_one(self, owner: str) -> T | None:
        """Take a waiting object of this owner, if any."""
        with self._lock:
            waiting = self._waiting.get(owner)
            if not waiting:
                return None
            # The latest one, whose caches are warm; the oldest ones then time out.
            thing, timer = waiting.pop()
        timer.cancel()
        return thing

    def keep_one(self, owner: str, thing: T) -> None:
        """Keep an object for the next task, for a while."""
        timer = threading.Timer(_PATIENCE, self._give_up, (owner, thing))
        # A waiting timer must not keep the worker's process from ending.
        timer.daemon = True
        with self._lock:
            self._waiting.setdefault(owner, []).append((thing, timer))
        timer.start()

    def end_all(self, owner: str) -> None:
        """End all waiting objects of an owner."""
        while (thing := self.take_one(owner)) is not None:
            self._end(thing)

    def _give_up(self, owner: str, thing: T) -> None:
        with self._lock:
            waiting = self._waiting.get(owner, [])
            left = [item for item in waiting if item[0] is not thing]
            if len(left) == len(waiting):
                # Another process took it meanwhile.
                return
            self._waiting[owner] = left
        self._end(thing)


class LaneDied(Exception):
    """A lane ended before it had answered; the message has its status."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A worker's installation: versions of the generator and Python, and by target the compiler's, or why it
    is missing.
    """

    generator: str
    python: str
    versions: dict[str, str]
    missing: dict[str, str]


def describe_installed(targets: Sequence[str], offline: bool = False) -> Installed:
    """Describe this worker's installation for tests on these targets; if `offline`, releases to download are
    missing.
    """
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    with Workers(offline=offline) as workers:
        for name in targets:
            try:
                versions[name] = workers.version(registry.resolve(name))
            except (Unavailable, target.BadTarget) as error:
                missing[name] = str(error)
    return Installed(compute_generator_version(), platform.python_version(), versions, missing)


def answer_question(campaign: str, begin: bytes, question: bytes) -> list[bytes]:
    """Let a lane of this worker answer a question, frame by frame; a new lane begins with `begin`.

    Raises:
        LaneDied: If the lane ends before that.
    """
    lane = _KEPT.take_one(campaign)
    try:
        if lane is None:
            lane = lane_spawn.spawn_lane(meeting=campaign)
            # What the pool sends
            lane.send_begin(lane_messages.decode_message(begin))  # type: ignore[arg-type]
        asked = lane_messages.decode_message(question)
        found = list(map(lane_messages.encode_message, lane.iter_answers(asked)))  # type: ignore[arg-type]
    except (EOFError, OSError):
        raise LaneDied(f"status {lane.end_lane() if lane else None}") from None
    except BaseException:
        if lane is not None:
            lane.end_lane()
        raise
    _KEPT.keep_one(campaign, lane)
    return found


def end_lanes(campaign: str) -> None:
    """End the lanes kept for a campaign."""
    _KEPT.end_all(campaign)


_KEPT: Kept[lane_spawn.LaneClient] = Kept(lambda lane: lane.end_lane())


# Bytes of the files of a case
_MOST = 256 << 20

Files = Mapping[str, bytes]


def pack_files(folder: Path, but: str = "") -> dict[str, bytes]:
    """Read the files of a case by path, without links and folders called `but`.

    Raises:
        BadInput: If they are too large to be sent.
    """
    found: dict[str, bytes] = {}
    room = _MOST
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != but]
        for path in (Path(place) / name for name in names):
            # A link would send a file from outside of the case.
            if path.is_symlink() or not path.is_file():
                continue
            data = found[path.relative_to(folder).as_posix()] = read_file(path, room)
            room -= len(data)
            if room <= 0:
                raise BadInput(f"{shown(folder, 200)} is too large to be sent to a cluster")
    return found


def write_files(files: Files, folder: Path) -> None:
    """Write files into a folder.

    Raises:
        BadInput: For a path that leaves it.
    """
    for name, data in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BadInput("the other side sent a path that leaves the folder")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / name, data)
