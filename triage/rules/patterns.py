r"""Match regular expressions from rules against hostile messages in bounded time.

`.*` at the top level cuts an expression into pieces that are searched one after another, so it never
backtracks. A piece may repeat a character or a class (not a group), once with backtracking and otherwise
possessively (`\\d++`), without back-references and look-around: the time is at most quadratic in a message of
`LONGEST` characters.
"""

import re
from dataclasses import dataclass

from opsieve.gen.errors import BadInput, shown

LONGEST = 2000  # characters of a message that are looked at
_MAX_PATTERN = 500
_MAX_OPTIONAL = 8  # `?` in a piece: each doubles the ways to match
_REPEAT = re.compile(r"([*+?]|\{\d{0,4}(?:,\d{0,4})?\})([+?]?)")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*+\]", re.DOTALL)
_ANY = re.compile(r"\.[*+]\??(?!\+)")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled expression: alternatives of pieces."""

    text: str
    alternatives: tuple[tuple[re.Pattern[str], ...], ...]

    def is_found_in(self, message: str) -> bool:
        """Whether it matches somewhere in the first `LONGEST` characters of a message."""
        message = message[:LONGEST]
        return any(_match_in_order(pieces, message) for pieces in self.alternatives)


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern.

    Raises:
        BadInput: If it is invalid or could take long; the message says what to change.
    """
    if len(text) > _MAX_PATTERN:
        raise BadInput(f"the expression has {len(text)} characters; the limit is {_MAX_PATTERN}")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(f"{shown(text, 80)} is no regular expression: {error}") from None
    folded = text.startswith("(?i)")
    pieces = _split_pieces(text.removeprefix("(?i)"), text)
    try:
        flags = re.DOTALL | (re.IGNORECASE if folded else re.NOFLAG)
        compiled = tuple(tuple(re.compile(piece, flags) for piece in each if piece) for each in pieces)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(
            f"{shown(text, 80)} cannot be cut at its `.*`: {error}; write them outside of groups"
        ) from None
    return Pattern(text, compiled)


def _match_in_order(pieces: tuple[re.Pattern[str], ...], message: str) -> bool:
    at = 0
    for piece in pieces:
        match = piece.search(message, at)
        if match is None:
            return False
        at = match.end()
    return True


def _split_pieces(text: str, whole: str) -> list[list[str]]:
    """Split an expression into alternatives, and each at its `.*`."""
    alternatives: list[list[str]] = [[""]]
    depth = repeats = optional = at = 0
    while at < len(text):
        taken, after_group = text[at], False
        if depth == 0 and (match := _ANY.match(text, at)):
            alternatives[-1].append("")
            repeats, optional, at = 0, 0, match.end()
            continue
        if taken == "\\":
            taken = text[at : at + 2]
            if taken[1:].isdigit():
                raise _make_refusal(whole, "a back-reference")
        elif taken == "[":
            match = _CLASS.match(text, at)
            taken = match[0] if match else taken
        elif taken == "(":
            if text[at + 1 : at + 2] == "?" and text[at + 2 : at + 3] != ":":
                raise _make_refusal(whole, "a group (?...) that is not (?:...)")
            taken = "(?:" if text.startswith("(?:", at) else taken
            depth += 1
        elif taken == ")":
            depth -= 1
            after_group = True
        elif taken == "|" and depth == 0:
            alternatives.append([""])
            repeats, optional, at = 0, 0, at + 1
            continue
        at += len(taken)
        repeat = _REPEAT.match(text, at) if taken not in ("(", "(?:", "|") else None
        if repeat:
            if repeat[1] == "?":
                optional += 1
            elif after_group:
                raise _make_refusal(whole, "a group that is repeated")
            elif repeat[2] != "+":
                repeats += 1
            taken, at = taken + repeat[0], repeat.end()
            if repeats > 1 or optional > _MAX_OPTIONAL:
                raise _make_refusal(
                    whole, "two repeats without .* between them (possessive ones, as in \\d++, are free)"
                )
        alternatives[-1][-1] += taken
    return alternatives


def _make_refusal(text: str, what: str) -> BadInput:
    return BadInput(
        f"{shown(text, 80)} could take too long on a hostile message: it has {what}; write it more plainly"
    )
