"""Events in the life of long-running commands: signals, a closed terminal, a full disk."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from opsieve.tui.commands.text import print_message

# Seconds between two tries to write
_AGAIN = 5.0
# Seconds after which a full disk is another one
_ANOTHER = 120.0


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the block as Ctrl-C does; a closed terminal gets no more output."""
    usual = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if stream.isatty():
                os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    raise KeyboardInterrupt


class PauseWhileFull:
    """Waits for space on a full disk until `end` (of the monotonic clock), with one message each time."""

    def __init__(self, end: float = float("inf"), again: float = _AGAIN):
        self._end, self._again, self._said = end, again, float("-inf")

    def __call__(self, error: Exception) -> bool:
        """Wait, and return whether to try again."""
        now = time.monotonic()
        if now >= self._end:
            return False
        if now - self._said > _ANOTHER:
            print_message(
                f"{str(error).partition(';')[0]}: paused until there is space again; Ctrl-C ends it, and"
                " --resume goes on"
            )
        self._said = now
        time.sleep(self._again)
        return True
