r"""Match regular expressions from rules against hostile messages in linear time.

The engine is RE2, which has no back-references and no look-around. A possessive repeat (`\d++`) is read as a
greedy one.
"""

import re
from dataclasses import dataclass
from typing import Any

import re2

from opsieve.gen.errors import BadInput, shown

LONGEST = 2000  # characters of a message that are looked at
_MAX_PATTERN = 500
# Bytes of a compiled expression, so that the two thousand rules of a store stay below 500 MB.
_MAX_COMPILED = 256 << 10
_POSSESSIVE = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*+\])|([*+?}])\+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled expression."""

    text: str
    compiled: Any

    def is_found_in(self, message: str) -> bool:
        """Whether it matches somewhere in the first `LONGEST` characters of a message."""
        return self.compiled.search(message[:LONGEST].encode("utf-8", "replace")) is not None


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern.

    Raises:
        BadInput: If RE2 rejects it; the message says why.
    """
    if len(text) > _MAX_PATTERN:
        raise BadInput(f"the expression has {len(text)} characters; the limit is {_MAX_PATTERN}")
    options = re2.Options()
    options.dot_nl, options.log_errors, options.max_mem = True, False, _MAX_COMPILED
    greedy = _POSSESSIVE.sub(lambda found: found[1] or found[2], text)
    try:
        return Pattern(text, re2.compile(greedy.encode("utf-8", "surrogatepass"), options))
    except re2.error as error:
        why = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise BadInput(
            f"{shown(text, 80)} is no regular expression of RE2 ({shown(why, 80)}); look-around and"
            " back-references are not among them"
        ) from None
