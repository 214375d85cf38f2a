"""Text for the terminal: made harmless, counted, and sent to the right stream."""

import click

from opsieve.gen.model.printable import printable


def counted(count: int, noun: str) -> str:
    """`1 cluster`, `1,200 clusters`, `2 mismatches`, `3 categories`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "sh", "ch", "x")):
        return f"{count:,} {noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}s"


def say(sentence: str) -> None:
    """A diagnostic, on stderr."""
    click.echo(f"opsieve: {printable(sentence)}", err=True)
