"""Why a program is refused, as a kind that messages of different implementations share.

Where a target and the reference refuse a program for the same kind of reason, the program breaks a rule of
the specification with these
inputs: who accepts it all the same contradicts nobody. So it does where the reference names the rule
(`backends/reference/forbidden.py`), whatever the words of the target.
"""

import re

from opsieve.backends.observation import Observation

_LONGEST = 4000  # characters of a message that are looked at
# Linear patterns, over lower case; the first that fits names the kind.
_KINDS = (
    (
        "an index out of range",
        re.compile(r"out of (?:data )?(?:bounds|range)|invalid ind(?:ex|ices)|index exceeds"),
    ),
    (
        "a shape that the elements do not fill",
        re.compile(r"cannot (?:be )?reshape|invalid reshape|requested shape"),
    ),
    ("shapes that do not broadcast", re.compile(r"broadcast|invalid expand shape")),
    ("parts of other sizes", re.compile(r"concat")),
    (
        "matrices whose inner sizes differ",
        re.compile(r"core dimension|dimension mismatch|not aligned|dimensions? mismatch|must match exactly"),
    ),
)
REFUSALS = ("error", "rejected")


def same_reason(one: Observation, other: Observation) -> str:
    """The kind of reason for which both refuse a program, "" where one does not refuse it or they name none
    in common.
    """
    if one.outcome not in REFUSALS or other.outcome not in REFUSALS:
        return ""
    kind = _kind(one)
    return kind if kind and kind == _kind(other) else ""


def names_rule(reference: Observation) -> bool:
    """Whether the reference refuses a program for a rule of an operator's page."""
    return reference.outcome == "rejected" and (reference.exception or "").endswith(".Forbidden")


def _kind(observation: Observation) -> str:
    text = f"{observation.exception or ''} {observation.message or ''}"[:_LONGEST].lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "")
