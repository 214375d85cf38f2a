"""How far a command is, on stderr: a bar on a terminal, a line at most elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opsieve.tui.commands.text import say


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
def counting_bar(total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Shows how many of `total` are done, with a few words; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, words: bar.update(task, completed=done, description=words)
