"""Wrong results as the checks of other tools report them: numpy's and torch's assertions, and plain words for
the same.
"""

import re

from opsieve.backends.verdict import Mismatch

_MAX_READ = 4000
_SHAPES = re.compile(
    r"shapes? \(?[\d(),\s]{0,200}+\)?,? ?[\d(),\s]{0,200}mismatch|shape mismatch|sequence length|mismatched"
    r" shapes?|attribute 'shape' do not match",
    re.I,
)
_DTYPES = re.compile(r"dtype mismatch|mismatched dtypes?|attribute 'dtype' do not match|dtypes? differ", re.I)
_NAN = re.compile(r"nan (?:location|values?) mismatch|nan mismatch|unexpected nan", re.I)
_INF = re.compile(r"inf (?:location|values?) mismatch|inf mismatch|unexpected inf", re.I)
_VALUES = re.compile(
    r"Mismatched elements?:|Not equal to tolerance|Tensor-likes are not (?:close|equal)|Arrays are not"
    r" (?:almost )?equal"
    r"|Scalars are not (?:close|equal)|not almost equal|outputs? (?:mismatch|differ)|results? mismatch",
    re.I,
)


def wrong_result(message: str) -> Mismatch | None:
    """What is wrong with a result as a check's message tells it; None for a message that tells of no
    comparison.
    """
    text = message[:_MAX_READ]
    if _NAN.search(text):
        return Mismatch("", "nan")
    if _INF.search(text):
        return Mismatch("", "inf")
    if _SHAPES.search(text):
        return Mismatch("", "shape")
    if _DTYPES.search(text):
        return Mismatch("", "dtype")
    return Mismatch("", "value") if _VALUES.search(text) else None
