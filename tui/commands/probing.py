"""Finding out what targets have, with a bar that shows how far it is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsieve.backends.probing.operator_support import Support
    from opsieve.backends.target import Target
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.generation.random_graph import GenRequest


def supports(
    workers: "Workers", targets: "Sequence[str | Target]", request: "GenRequest | None" = None
) -> "list[Support]":
    """What the targets have of what a request allows, probed now where it is not known; BadInput when one is not there."""
    from opsieve.backends.probing.operator_support import probed
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.zygote import Unavailable
    from opsieve.gen.model.bad_input import BadInput

    only = None if request is None or request.only is None else sorted(request.only)
    dtypes = None if request is None or request.dtypes is None else sorted(request.dtypes)
    with _bar() as show:
        try:
            return probed(workers, [resolve(target) for target in targets], only, dtypes, show=show)
        except Unavailable as error:
            raise BadInput(f"{error}; leave that target out or install it (see opsieve doctor)") from None


@contextmanager
def _bar() -> Iterator[Any]:
    """A function that shows how far probing is, on stderr when that is a terminal; a line of it when it is none."""
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
                    click.echo(f"opsieve: probing what {target} has, {count} operators and types, once", err=True)
            bar.update(tasks[target], completed=done)

        yield show
