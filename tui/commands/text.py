"""Text for the terminal: made safe, and sent to the right stream."""

import click

from opsieve.gen.model.printable import printable


def print_message(sentence: str) -> None:
    """Print a diagnostic on stderr."""
    click.echo(f"opsieve: {printable(sentence)}", err=True)
