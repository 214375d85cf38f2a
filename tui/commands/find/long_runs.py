"""What a command that runs for days meets: signals to end, a terminal that goes away, a disk that is full for
a while.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from opsieve.tui.commands.text import say

_AGAIN = 5.0  # seconds between two tries to write
_ANOTHER = 120.0  # seconds after which a full disk is another one


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end what is within as Ctrl-C does; of a terminal that is gone nothing more is
    asked.
    """
    usual = {number: signal.signal(number, _interrupted) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if stream.isatty():
                os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    raise KeyboardInterrupt


class PauseWhileFull:
    """Waits for space on a full disk, and says so once each time; until `end` (of the monotonic clock)."""

    def __init__(self, end: float = float("inf"), again: float = _AGAIN):
        self._end, self._again, self._said = end, again, float("-inf")

    def __call__(self, error: Exception) -> bool:
        """Whether to try again, after a while."""
        now = time.monotonic()
        if now >= self._end:
            return False
        if now - self._said > _ANOTHER:
            say(
                f"{str(error).partition(';')[0]}: paused until there is space again; Ctrl-C ends it, and"
                " --resume goes on"
            )
        self._said = now
        time.sleep(self._again)
        return True
