"""Progress of a command on stderr (a bar on a terminal, occasional lines elsewhere), and events in the life of
long-running commands: signals, a closed terminal, a full disk.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from opsieve.tui.commands.output import print_message

# Seconds until the first line where there is no terminal, and between two lines
FIRST, EVERY = 20.0, 60.0


@dataclass(slots=True)
class Pulse:
    """Tells when a line is due: after `first` seconds, then every `every`. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    first: float = FIRST
    every: float = EVERY
    _due: float = 0.0

    def __post_init__(self) -> None:
        self._due = self.clock() + self.first

    def is_due(self) -> bool:
        """Whether a line is due now; it counts as printed."""
        now = self.clock()
        if now < self._due:
            return False
        self._due = now + self.every
        return True


@contextmanager
def open_probing_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of probing each target."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("probing {task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show_probing(target: str, done: int, count: int) -> None:
            if target not in tasks:
                tasks[target] = bar.add_task(target, total=count)
                if not console.is_terminal:
                    print_message(
                        f"probing {target}: {count:,} operator and type combinations (once per version)"
                    )
            bar.update(tasks[target], completed=done)

        yield show_probing


@contextmanager
def open_counting_bar(
    total: int | None, noun: str = "done", quiet: bool = False
) -> Iterator[Callable[[int, str], None]]:
    """Show how many of `total` are done, with a few words.

    Without a terminal it prints occasional lines; with `quiet` it is silent.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    pulse = Pulse()
    of = "" if total is None else f" of {total:,}"
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total)

        def show_count(done: int, words: str) -> None:
            bar.update(task, completed=done, description=words)
            if not quiet and not console.is_terminal and pulse.is_due():
                print_message(f"{done:,}{of} {noun}, {words}")

        yield show_count


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
