"""A lane in a thread of the tests, with the compilers that are there: a process of its own would import all
of it again.
"""

import contextlib
import socket
import threading
from collections.abc import Sequence

from opsieve.triage.campaign import lane_process, lane_spawn
from opsieve.triage.campaign.lane_spawn import LaneClient, ProcessLane

_process = lane_spawn.spawn_lane
_at_work: list["ThreadLane"] = []


class ThreadLane:
    """Ends with the piece that it is at when its connection is closed."""

    def __init__(self, connection: socket.socket, targets: Sequence[str]) -> None:
        self._connection = connection
        self._thread = threading.Thread(target=self._serve, args=(targets,), daemon=True)
        self._thread.start()

    def _serve(self, targets: Sequence[str]) -> None:
        with self._connection, contextlib.suppress(OSError):
            lane_process.serve_connection(self._connection, targets, lambda: None)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def wait(self) -> int:
        self._thread.join()
        return 0


def spawn(targets: Sequence[str] = (), meeting: str = lane_spawn.MEETING) -> LaneClient:
    """In place of `lane_spawn.spawn_lane`: programs are made by one thread at a time, so a lane beside another is
    a process.
    """
    _at_work[:] = [lane for lane in _at_work if lane.alive]
    if _at_work:
        return _process(targets, meeting)
    ours, theirs = socket.socketpair()
    _at_work.append(ThreadLane(theirs, targets))
    return ProcessLane(_at_work[0], ours)
