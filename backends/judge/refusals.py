"""Classify refusals of a program by kinds that messages of different implementations share.

If a target and the reference refuse a program for the same kind of reason, the program breaks a rule of the
specification with these inputs, and accepting it is no contradiction. The same holds if the reference names
the rule (`backends/reference/forbidden.py`), whatever the target's message.
"""

import re

from opsieve.backends.observation import Observation

# Characters of a message that are looked at
_LONGEST = 4000
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


def find_common_reason(one: Observation, other: Observation) -> str:
    """Return the kind of reason for which both refuse a program; "" if one accepts it or the kinds differ."""
    if one.outcome not in REFUSALS or other.outcome not in REFUSALS:
        return ""
    kind = _classify(one)
    return kind if kind and kind == _classify(other) else ""


def is_naming_rule(reference: Observation) -> bool:
    """Whether the reference refuses a program for a rule of an operator's page."""
    return reference.outcome == "rejected" and (reference.exception or "").endswith(".Forbidden")


def _classify(observation: Observation) -> str:
    text = f"{observation.exception or ''} {observation.message or ''}"[:_LONGEST].lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "")
