"""What a program with a fault on purpose says of itself: the name of its graph
(gen/strategies/disruptive.py), or an attribute of its module.
"""

import re
from dataclasses import dataclass

import onnx

KINDS = (
    *("relation", "dtype", "mixed-dtypes", "rank", "missing-input", "extra-input", "attribute-value"),
    *("attribute-type", "missing-attribute", "unknown-attribute", "output-dtype", "output-shape"),
)
FAULT = "opsieve.fault"  # attribute of a module of TVM that was made wrong
_MARK = re.compile(r"disruptive ([A-Za-z0-9]{1,60}) ([a-z-]{1,24}): ([ -~]{1,80})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Broken:
    """What is wrong with a program: the operator, the kind of rule (one of `KINDS`) and the place."""

    operator: str
    kind: str
    place: str

    def __str__(self) -> str:
        return f"disruptive {self.operator} {self.kind}: {self.place}"


def broken(model: onnx.ModelProto) -> Broken | None:
    """What is wrong with a program that was made to be wrong; None for any other program."""
    found = _MARK.fullmatch(model.graph.name)
    return Broken(found[1], found[2], found[3]) if found is not None and found[2] in KINDS else None
