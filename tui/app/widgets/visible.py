"""Text of models and compilers made harmless for a terminal: what is not printable is shown as an escape."""

from datetime import UTC, datetime

Part = tuple[str, str]  # text, and its tone: "", dim, strong, good, bad, warn, accent
Line = tuple[Part, ...]


def visible(text: str) -> str:
    """Text on one line: control codes, line ends, changes of direction and lone surrogates as escapes
    (`\\x1b`), tabs as spaces.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "    " if c == "\t" else _escape(c) for c in text)


def one_line(text: str, most: int = 400) -> str:
    """The beginning of a text as a sentence on one line, runs of white space as one space."""
    cut = " ".join(text[: 4 * most].split())
    return visible(cut if len(cut) <= most else f"{cut[: most - 1]}…")


def lines_of(text: str, tone: str = "", most: int = 5000, longest: int = 2000) -> list[Line]:
    """A text of many lines; how much is left out is said in the last."""
    whole = text.splitlines()
    found: list[Line] = [
        ((visible(line[:longest]) + ("…" if len(line) > longest else ""), tone),) for line in whole[:most]
    ]
    if len(whole) > most:
        found.append(((f"… {len(whole) - most:,} more lines are left out", "dim"),))
    return found


def ago(seconds: float, now: float) -> str:
    """How long ago a time was, in two characters and a unit: `5m`, `2d`; "" when nobody knows."""
    if not 0 < seconds < 1e11:
        return ""
    past = max(0.0, now - seconds)
    for unit, length in (("w", 604800), ("d", 86400), ("h", 3600), ("m", 60)):
        if past >= length:
            return f"{int(past // length)}{unit}"
    return f"{int(past)}s"


def moment(seconds: float) -> str:
    """A time as a day and a minute of UTC; "" when nobody knows."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M") if 0 < seconds < 1e11 else ""


def _escape(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii")
