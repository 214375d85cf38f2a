"""What runs on a worker of a Dask cluster: a lane of it does what is asked, and is kept for the next
question.

Questions and answers are the frames of `campaign/lane_messages.py`. A lane that nobody asks for a while ends.
"""

import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import socket

from opsieve.backends.registry import resolve
from opsieve.backends.target import BadTarget
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.generation.generator_version import generator_version
from opsieve.triage.campaign.lane_messages import (
    Answered,
    Failed,
    Finished,
    decode,
    receive_frame,
    send_frame,
)
from opsieve.triage.campaign.lane_spawn import LaneProcess, spawn
from opsieve.triage.distributed.kept import Kept


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
    _KEPT.end(campaign)


def _last(frame: bytes, question: bytes) -> bool:
    message = decode(frame)
    if isinstance(message, Finished):
        return message.stopped or message.upto >= decode(question).stop  # type: ignore[union-attr]
    return isinstance(message, (Answered, Failed))


@dataclass(eq=False)
class _KeptLane:
    """A lane process of this worker."""

    process: LaneProcess
    connection: socket

    def end(self) -> int:
        """End it; its status."""
        with suppress(OSError):
            self.connection.close()
        self.process.kill()
        return self.process.wait()


_KEPT: Kept[_KeptLane] = Kept(_KeptLane.end)
