"""Texts of models, compilers and files made harmless: for a terminal or a picture, for Markdown and for HTML.

What HTML shows is escaped, made printable and cut. Counts are written with their nouns.
"""

import html
import os
import shlex
from collections.abc import Iterable, Sequence

_MARKDOWN = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "\\`*_{}[]()#+!|~@:"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def printable(text: str, instead: str = " ") -> str:
    """Text with `instead` of each sign that is not printable: control codes, line ends, changes of direction.
    Bytes of a file's name that are not text are escaped.
    """
    return (
        text
        if text.isprintable()
        else "".join(sign if sign.isprintable() else instead for sign in escape_surrogates(text))
    )


def escape_surrogates(name: object) -> str:
    """Return the name of a file as text that UTF-8 can hold: bytes that are not text are escaped."""
    return str(name).encode("utf-8", "backslashreplace").decode()


def quote_argument(text: str) -> str:
    """Quote text as one word of a shell's command line that can be printed: `$'...'` of bash and zsh for a
    name with a line end or another sign that cannot.
    """
    return shlex.quote(text) if text.isprintable() else "$'" + "".join(map(_escape_sign, text)) + "'"


def _escape_sign(sign: str) -> str:
    if sign.isprintable() and sign not in "'\\":
        return sign
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(sign))


def single_line(text: str) -> str:
    """Return the same on one line, runs of spaces as one."""
    return " ".join(printable(text).split())


def markdown(text: str) -> str:
    """One line without a meaning in Markdown or HTML, and no mention or link."""
    return single_line(text).translate(_MARKDOWN)


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: `1 cluster`, `1,200 clusters`, `2 mismatches`, `3 categories`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "sh", "ch", "x")):
        return f"{count:,} {noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}s"


# A message of a compiler can have megabytes. These limits keep pages and terminals usable, and bound the time
# of escaping.
_CUT = 4000
_LINE = 400
_LINES = 200


def escape_markup(text: str) -> str:
    """Return text on one line with markup escaped and unprintable characters as spaces."""
    return html.escape(" ".join("".join(c if c.isprintable() else " " for c in text[:_CUT]).split()))


def escaped_lines(text: str) -> str:
    """Lines with their spaces kept, for `<pre>`."""
    lines = text.expandtabs(4).split("\n")
    return html.escape(
        "\n".join("".join(c if c.isprintable() else " " for c in line[:_LINE]) for line in lines)
    )


def facts_table(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values as a table, those without a value left out."""
    rows = (
        f"<tr><th>{escape_markup(name)}</th><td>{escape_markup(value)}</td></tr>"
        for name, value in facts
        if value.strip()
    )
    return f"<table>{''.join(rows)}</table>"


def rows_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under heads as a table."""
    top = "".join(f"<th>{escape_markup(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape_markup(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def drawing(lines: Sequence[tuple[str, str]]) -> str:
    """Return a drawn graph (rails and labels) as `<pre>`, with at most 200 lines."""
    text = [f"{rails}{' ' if rails else ''}{label}" for rails, label in lines[:_LINES]]
    more = [f"... {len(lines) - _LINES:,} more lines"] if len(lines) > _LINES else []
    return f"<pre>{escaped_lines(chr(10).join(text + more))}</pre>"
