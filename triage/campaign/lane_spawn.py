"""How the process of a lane is started. It imports next to nothing, so that a command can start one before it
does anything else.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol


class LaneProcess(Protocol):
    """What a pool asks of a lane's process; `subprocess.Popen` has it."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self) -> int:
        """Wait for its end; its status."""


MEETING = f"{os.getpid()}-{os.urandom(8).hex()}"  # where lanes of this process share what they have imported
Spawn = Callable[[], tuple[LaneProcess, socket.socket]]


def spawn(targets: Sequence[str] = (), meeting: str = MEETING) -> tuple[LaneProcess, socket.socket]:
    """A new lane process, and the socket by which it is spoken to. It starts on `targets`, as far as they are
    targets, before it is asked to.

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
    return process, ours


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
        for process, connection in begun:
            connection.close()
            process.kill()
            process.wait()
