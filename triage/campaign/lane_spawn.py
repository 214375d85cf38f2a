"""The interface of lanes for their pool, and the start of lane processes.

Imports almost nothing, so that a command can start a lane before anything else.
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
        """Kill the process."""

    def wait(self) -> int:
        """Wait for its end and return its status."""


class LaneClient(Protocol):
    """A lane used by one thread. `send_begin` and `iter_answers` raise EOFError or OSError if it has died."""

    def send_begin(self, message: "Begin") -> None:
        """Send the campaign of its tests."""

    def iter_answers(self, question: "Question") -> Iterator["Answer"]:
        """Yield its answers to a question, piece by piece."""

    def send_stop(self) -> None:
        """Tell it to end with the current piece. Any thread may call this."""

    def end_lane(self) -> int:
        """End it at once and return its status. Any thread may call this, also repeatedly."""


# The place where lanes of this process share their zygotes.
MEETING = f"{os.getpid()}-{os.urandom(8).hex()}"
Spawn = Callable[[], LaneClient]


class ProcessLane:
    """A lane that is a process of this machine, at the other end of a socket."""

    def __init__(self, process: LaneProcess, connection: socket.socket):
        self.process, self._connection = process, connection
        self._lock = threading.Lock()
        self._is_asked = self._is_stopped = False

    def send_begin(self, message: "Begin") -> None:
        """Send the campaign of its tests."""
        from opsieve.triage.campaign.lane_messages import send_message

        send_message(self._connection, message)

    def iter_answers(self, question: "Question") -> Iterator["Answer"]:
        """Yield its answers to a question, piece by piece."""
        from opsieve.triage.campaign.lane_messages import is_last, receive_message, send_message

        with self._lock:
            send_message(self._connection, question)
            self._is_asked = True
            if self._is_stopped:
                self._send_stop_message()
        while True:
            answer = receive_message(self._connection)
            last = is_last(answer, question)
            self._is_asked = not last
            # A lane sends answers only
            yield answer  # type: ignore[misc]
            if last:
                return

    def send_stop(self) -> None:
        """Tell it to end with the current piece; without a question, with its next one."""
        # If it is dead, `iter_answers` reports that.
        with self._lock, suppress(OSError):
            # A message without a question would be read as the answer to none, so it waits for the next one.
            if self._is_asked and not self._is_stopped:
                self._send_stop_message()
            self._is_stopped = True

    def _send_stop_message(self) -> None:
        from opsieve.triage.campaign.lane_messages import Stop, send_message

        send_message(self._connection, Stop())

    def end_lane(self) -> int:
        """End it at once and return its status; its workers notice and end too."""
        self.process.kill()
        # Closing alone does not wake the thread that waits for an answer
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        return self.process.wait()


def spawn_lane(targets: Sequence[str] = (), meeting: str = MEETING) -> LaneClient:
    """Start a lane process, which begins importing the compilers of `targets` at once.

    Lanes of one `meeting` on a machine share imports; by default these are the lanes of one process.
    """
    ours, theirs = socket.socketpair()
    # -P: the current folder, which may be a stranger's, supplies no modules.
    command = [sys.executable, "-P", "-m", "opsieve.triage.campaign.lane_process", str(theirs.fileno())]
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
def start_first_lane(first: Spawn, others: Spawn = spawn_lane) -> Iterator[Spawn]:
    """Yield a function that starts lanes; the `first` is started at once and imports while its campaign is
    opened.

    An unused lane ends with the context.
    """
    begun = [first()]
    try:
        yield lambda: begun.pop() if begun else others()
    finally:
        for lane in begun:
            lane.end_lane()
