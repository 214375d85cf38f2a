"""Text for the terminal: made harmless, and sent to the right stream."""

import click

from opsieve.gen.model.printable import printable


def say(sentence: str) -> None:
    """A diagnostic, on stderr."""
    click.echo(f"opsieve: {printable(sentence)}", err=True)
