"""Text for the terminal: made harmless, counted, and sent to the right stream."""

import click


def printable(text: str) -> str:
    """Text on one line, what is not printable as spaces: control codes, line ends, changes of direction."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def plain(text: str) -> str:
    """The same with its spaces kept, for text that is already laid out."""
    return "".join(c if c.isprintable() else " " for c in text)


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
    click.echo(f"opsieve: {plain(sentence)}", err=True)
