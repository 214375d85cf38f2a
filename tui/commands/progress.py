"""How far a command is, on stderr: a bar on a terminal, a line at most elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opsieve.tui.commands.text import say

FIRST, EVERY = 20.0, 60.0  # seconds until the first line where there is no terminal, and between two lines


@dataclass(slots=True)
class Pulse:
    """Says when it is time for a line: after `first` seconds, then every `every`. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    first: float = FIRST
    every: float = EVERY
    _due: float = 0.0

    def __post_init__(self) -> None:
        self._due = self.clock() + self.first

    def beats(self) -> bool:
        """Whether a line is due now; it counts as given."""
        now = self.clock()
        if now < self._due:
            return False
        self._due = now + self.every
        return True


@contextmanager
def probing_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Shows how far the probing of each target is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("probing {task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(target: str, done: int, count: int) -> None:
            if target not in tasks:
                tasks[target] = bar.add_task(target, total=count)
                if not console.is_terminal:
                    say(f"probing {target}: {count:,} operator and type combinations (once per version)")
            bar.update(tasks[target], completed=done)

        yield show


@contextmanager
def counting_bar(
    total: int | None, noun: str = "done", quiet: bool = False
) -> Iterator[Callable[[int, str], None]]:
    """Shows how many of `total` are done, with a few words; a line now and then where stderr is no terminal,
    nothing when `quiet`.
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

        def show(done: int, words: str) -> None:
            bar.update(task, completed=done, description=words)
            if not quiet and not console.is_terminal and pulse.beats():
                say(f"{done:,}{of} {noun}, {words}")

        yield show
