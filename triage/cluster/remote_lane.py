"""What runs on a worker of a Dask cluster: a lane of it does what is asked, and is kept for the next question.

Questions and answers are the frames of `campaign/lane_messages.py`. A lane that nobody asks for a while ends.
"""

import platform
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from socket import socket

from opsieve.backends.registry import resolve
from opsieve.backends.target import BadTarget
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.generation.generator_version import generator_version
from opsieve.triage.campaign.lane_messages import Answered, Failed, Finished, decode, receive_frame, send_frame
from opsieve.triage.campaign.lane_spawn import LaneProcess, spawn

_PATIENCE = 120.0  # seconds that a lane waits for a question


class LaneDied(Exception):
    """A lane ended before it had answered; the message has its status."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What a worker has: the generator's version, Python's, and by target the compiler's or why there is none."""

    generator: str
    python: str
    versions: dict[str, str]
    missing: dict[str, str]


def installed(targets: Sequence[str]) -> Installed:
    """What this worker has of what a campaign on these targets needs."""
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    with Workers() as workers:
        for name in targets:
            try:
                versions[name] = workers.version(resolve(name))
            except (Unavailable, BadTarget) as error:
                missing[name] = str(error)
    return Installed(generator_version(), platform.python_version(), versions, missing)


def answers(campaign: str, begin: bytes, question: bytes) -> list[bytes]:
    """What a lane of this worker, begun with `begin` for a campaign of this id, answers to a question, frame by frame. LaneDied."""
    lane = _KEPT.take(campaign)
    if lane is None:
        lane = _KeptLane(*spawn(meeting=campaign))
        send_frame(lane.connection, begin)
    try:
        send_frame(lane.connection, question)
        found = [receive_frame(lane.connection)]
        while not _last(found[-1], question):
            found.append(receive_frame(lane.connection))
    except (EOFError, OSError):
        raise LaneDied(f"status {lane.end()}") from None
    except BaseException:
        lane.end()
        raise
    _KEPT.keep(campaign, lane)
    return found


def end_lanes(campaign: str) -> None:
    """End the lanes that are kept for a campaign."""
    while (lane := _KEPT.take(campaign)) is not None:
        lane.end()


def _last(frame: bytes, question: bytes) -> bool:
    message = decode(frame)
    if isinstance(message, Finished):
        return message.stopped or message.upto >= decode(question).stop  # type: ignore[union-attr]
    return isinstance(message, (Answered, Failed))


@dataclass(eq=False)
class _KeptLane:
    """A lane process of this worker, and what ends it when nobody asks."""

    process: LaneProcess
    connection: socket
    timer: threading.Timer | None = None

    def end(self) -> int:
        """End it; its status."""
        with suppress(OSError):
            self.connection.close()
        self.process.kill()
        return self.process.wait()


@dataclass
class _WaitingLanes:
    """Lanes that wait for a question, by campaign."""

    lanes: dict[str, list[_KeptLane]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, campaign: str) -> _KeptLane | None:
        """A lane that waits, no longer kept; None where there is none."""
        with self.lock:
            waiting = self.lanes.get(campaign)
            lane = waiting.pop() if waiting else None
        if lane is not None and lane.timer is not None:
            lane.timer.cancel()
        return lane

    def keep(self, campaign: str, lane: _KeptLane) -> None:
        """Have it wait for the next question, for a while."""
        lane.timer = threading.Timer(_PATIENCE, self._end, (campaign, lane))
        lane.timer.daemon = True
        with self.lock:
            self.lanes.setdefault(campaign, []).append(lane)
        lane.timer.start()

    def _end(self, campaign: str, lane: _KeptLane) -> None:
        with self.lock:
            waiting = self.lanes.get(campaign, [])
            if lane not in waiting:
                return
            waiting.remove(lane)
        lane.end()


_KEPT = _WaitingLanes()
