"""Read hints from the message with which a compiler refused an instance."""

import re
from collections.abc import Sequence

from opsieve.backends.probing.documented_shapes import read_shapes
from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.backends.probing.trials import TrialInput
from opsieve.gen.declarations.tensor import PLAIN

_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+")
_PLACES = re.compile(r"(?:[Ii]nputs? |\bx|@)(\d{1,2})\b")
_ORDINALS = ("first", "second", "third", "fourth")
_WORDS = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_GOT = re.compile(r"(?:[Gg]ot|[Aa]ct\w{0,3}al(?:ly)?|but (?:is|was))\W{0,3}([{\[(][\d, ]{0,40}[}\])]|\d+)?")
_AXIS = re.compile(r"\bdim(?:ension)? (\d)\b")
# as kernels call them
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "mlfloat16": "float16",
    "half": "float16",
}
# What is parsed before the first run is one.
_CONSTANT = frozenset(("constant", "initializer", "initializers", "parse"))
_MOST_NAMED = 64
# Between which numbers elements have to lie: `in (0, 4]`, `range [0, 3)`, `> 0 and <= 4`.
_BRACKETS = re.compile(r"(?:\bin|range|between)\W{0,3}([\[(])(-?\d{1,6}), ?(-?\d{1,6})([\])])")
_POSITIVE = (1, 4)
_COMPARED = re.compile(r"(>=?) ?(-?\d{1,6}) (?:and|but) (<=?) ?(-?\d{1,6})")


class MessageHints:
    """The inputs, attributes and sizes that a message names, and the numbers and shape that it requests."""

    def __init__(
        self, reason: str, inputs: Sequence[TrialInput | None], schema: DomainSchema, named: Sequence[str]
    ) -> None:
        wanted = _GOT.sub(" ", reason)
        words = {word.lower().strip("_") for word in _WORDS.findall(reason)}
        counted = {int(place) for place in _PLACES.findall(reason)}
        counted |= {place for place, word in enumerate(_ORDINALS) if word in words and "input" in words}
        found = [int(number) for number in _NUMBERS.findall(wanted) if number.isdigit()]
        self.numbers = [number for number in found if number <= _MOST_NAMED]
        self.attributes = [name for name in schema.attributes if name.lower() in words]
        self.places = [
            place
            for place in range(max(len(schema.inputs), len(inputs)))
            if place in counted or (place < len(schema.inputs) and schema.inputs[place].name.lower() in words)
        ]
        # Without a name, but with a description of the actual value.
        if not self.places and (got := _GOT.search(reason)) and got[1]:
            shape = [int(number) for number in _NUMBERS.findall(got[1])]
            self.places = [i for i, each in enumerate(inputs) if each and [*each.shape] == shape]
        axis = _AXIS.search(reason)
        self.axis = int(axis[1]) if axis else None
        self.sizes = [name for name in named if name.lower() in words]
        self.shapes = read_shapes(wanted)
        self.dtypes = [_DTYPES.get(word, word) for word in sorted(words) if _DTYPES.get(word, word) in PLAIN]
        self.required = bool(words & {"required", "missing"})
        self.interval = _find_interval(reason)
        self.constant = bool(words & _CONSTANT)


def _find_interval(reason: str) -> tuple[int, int] | None:
    """Find the range of whole numbers that elements may have by a message, if there is one."""
    found = _BRACKETS.search(reason)
    if found is not None:
        low, high = int(found[2]) + (found[1] == "("), int(found[3]) - (found[4] == ")")
    else:
        found = _COMPARED.search(reason)
        if found is None:
            return _POSITIVE if "positive" in reason else None
        low, high = int(found[2]) + (found[1] == ">"), int(found[4]) - (found[3] == "<")
    return (low, high) if low <= high else None
