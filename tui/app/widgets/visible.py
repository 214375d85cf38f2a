"""Make text of models and compilers safe for a terminal: unprintable characters are shown as escapes."""

from datetime import UTC, datetime

# text, and its tone: "", dim, strong, good, bad, warn, accent
Part = tuple[str, str]
Line = tuple[Part, ...]


def escape_text(text: str) -> str:
    r"""Return text on one line: control codes, line ends, direction marks and lone surrogates as escapes
    (`\\x1b`).

    Tabs become spaces.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else "    " if c == "\t" else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def to_one_line(text: str, most: int = 400) -> str:
    """Return the beginning of a text on one line, with single spaces."""
    # Cut before splitting: the text may have megabytes.
    cut = " ".join(text[: 4 * most].split())
    return escape_text(cut if len(cut) <= most else f"{cut[: most - 1]}…")


def to_lines(text: str, tone: str = "", most: int = 5000, longest: int = 2000) -> list[Line]:
    """Return a text as lines; the last one says how many are left out."""
    whole = text.splitlines()
    found: list[Line] = [
        ((escape_text(line[:longest]) + ("…" if len(line) > longest else ""), tone),) for line in whole[:most]
    ]
    if len(whole) > most:
        found.append(((f"… {len(whole) - most:,} more lines are left out", "dim"),))
    return found


def format_age(seconds: float, now: float) -> str:
    """Return the age of a time in two characters and a unit: `5m`, `2d`; "" if unknown."""
    # Beyond that `datetime` raises; a store's times may be a stranger's.
    if not 0 < seconds < 1e11:
        return ""
    past = max(0.0, now - seconds)
    for unit, length in (("w", 604800), ("d", 86400), ("h", 3600), ("m", 60)):
        if past >= length:
            return f"{int(past // length)}{unit}"
    return f"{int(past)}s"


def format_time(seconds: float) -> str:
    """Return a time as a day and a minute of UTC; "" if unknown."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M") if 0 < seconds < 1e11 else ""
