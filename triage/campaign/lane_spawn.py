"""Lanes as their pool sees them, and how the process of one is started.

It imports next to nothing, so that a command can start a lane before it does anything else.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opsieve.triage.campaign.lane_messages import Answer, Begin, Question


class LaneProcess(Protocol):
    """The process of a lane; `subprocess.Popen` is one."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self) -> int:
        """Wait for its end; its status."""


class LaneClient(Protocol):
    """A lane that one thread asks questions. EOFError or OSError from `begin` and `ask` where it has died."""

    def begin(self, message: "Begin") -> None:
        """Say whose tests it will do."""

    def ask(self, question: "Question") -> Iterator["Answer"]:
        """Its answers to a question, piece by piece."""

    def stop(self) -> None:
        """Have it end with the piece that it is at. Any thread may call this."""

    def end(self) -> int:
        """End it at once; its status. Any thread may call this, and more than once."""


MEETING = f"{os.getpid()}-{os.urandom(8).hex()}"  # where lanes of this process share what they have imported
Spawn = Callable[[], LaneClient]


class ProcessLane:
    """A lane that is a process of this machine, at the other end of a socket."""

    def __init__(self, process: LaneProcess, connection: socket.socket):
        self.process, self._connection = process, connection
        self._lock = threading.Lock()
        self._is_asked = self._is_stopped = False

    def begin(self, message: "Begin") -> None:
        """Say whose tests it will do."""
        from opsieve.triage.campaign.lane_messages import send

        send(self._connection, message)

    def ask(self, question: "Question") -> Iterator["Answer"]:
        """Its answers to a question, piece by piece."""
        from opsieve.triage.campaign.lane_messages import is_last, receive, send

        with self._lock:
            send(self._connection, question)
            self._is_asked = True
            if self._is_stopped:
                self._send_stop()
        while True:
            answer = receive(self._connection)
            last = is_last(answer, question)
            self._is_asked = not last
            yield answer  # type: ignore[misc]  # a lane sends answers only
            if last:
                return

    def stop(self) -> None:
        """Have it end with the piece that it is at; without a question it ends with its next one."""
        with self._lock, suppress(OSError):  # where it is dead, `ask` says so
            if self._is_asked and not self._is_stopped:
                self._send_stop()
            self._is_stopped = True

    def _send_stop(self) -> None:
        from opsieve.triage.campaign.lane_messages import Stop, send

        send(self._connection, Stop())

    def end(self) -> int:
        """End it at once; its status. Its workers see that it is gone, and end, too."""
        self.process.kill()
        with suppress(OSError):  # closing alone does not wake the thread that waits for an answer
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        return self.process.wait()


def spawn(targets: Sequence[str] = (), meeting: str = MEETING) -> LaneClient:
    """A new lane process. It starts on `targets`, as far as they are targets, before it is asked to.

    Lanes of one `meeting` on a machine share what they have imported: those that one process starts, unless
    it is said otherwise.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "opsieve.triage.campaign.lane_process", str(theirs.fileno())]
    command += [meeting, *targets]
    process = subprocess.Popen(
        command,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    return ProcessLane(process, ours)


@contextmanager
def first_begun(first: Spawn, others: Spawn = spawn) -> Iterator[Spawn]:
    """What starts lanes, the `first` of which is started at once: it imports what it needs while its campaign
    is being opened.

    One that nobody asked for ends with the context.
    """
    begun = [first()]
    try:
        yield lambda: begun.pop() if begun else others()
    finally:
        for lane in begun:
            lane.end()
