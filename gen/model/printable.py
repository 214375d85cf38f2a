"""Texts of models, compilers and files made harmless: for a terminal or a picture, and for Markdown; and
counts with their nouns.
"""

_MARKDOWN = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "\\`*_{}[]()#+!|~@:"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def printable(text: str, instead: str = " ") -> str:
    """Text of the same length; `instead` of each sign that is not printable: control codes, line ends,
    changes of direction.
    """
    return text if text.isprintable() else "".join(sign if sign.isprintable() else instead for sign in text)


def single_line(text: str) -> str:
    """The same on one line, runs of spaces as one."""
    return " ".join(printable(text).split())


def markdown(text: str) -> str:
    """One line without a meaning in Markdown or HTML, and no mention or link."""
    return single_line(text).translate(_MARKDOWN)


def counted(count: int, noun: str) -> str:
    """`1 cluster`, `1,200 clusters`, `2 mismatches`, `3 categories`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "sh", "ch", "x")):
        return f"{count:,} {noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}s"
