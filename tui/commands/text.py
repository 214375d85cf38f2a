"""Text for the terminal: made safe, and sent to the right stream."""

import re

import click

from opsieve.gen.model.printable import printable


def print_message(sentence: str) -> None:
    """Print a diagnostic on stderr."""
    click.echo(f"opsieve: {printable(sentence)}", err=True)


def name_oracles(reason: str, target: str) -> str:
    """Name oracles in words: the float64 reference, and a build of the target by its options alone."""
    reason = reason.replace("reference:float64", "the float64 reference")
    return re.sub(rf"(?<!\S){re.escape(target)}[:,](?=\w)", "", reason)
