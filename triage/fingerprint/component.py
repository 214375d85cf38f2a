"""The components of a fingerprint: typed inside, text only at the edge (failure.json, the index, `--json`,
output).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# Characters of a component as text
LONGEST = 600


class ComponentName(StrEnum):
    """The properties of a failure; the values are their spellings in failure.json and the index."""

    KIND = "kind"
    BACKEND = "backend"
    STAGE = "stage"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    PLACE = "place"
    FRAMES = "frames"
    LINE = "line"
    STATEMENT = "statement"
    MESSAGE = "message"
    FOUND = "found"
    OPERATOR = "operator"
    PROGRAM = "program"
    OPERATORS_NAMED = "operators named"
    OPERATORS = "operators"
    EDGES = "edges"
    RANKS = "ranks"
    ATTRIBUTES = "attributes"
    MISMATCH = "mismatch"
    DTYPE = "dtype"
    BLAME = "blame"
    OUTPUT = "output"
    ERROR = "error"
    GUILTY_PASS = "guilty pass"
    CURE = "cure"
    FIRST_BAD = "first bad"


# Components of several items, and what stands between these in text; the others are one text.
_BETWEEN: Mapping[ComponentName, str] = {
    ComponentName.FRAMES: " < ",
    ComponentName.STATEMENT: " < ",
    ComponentName.OPERATORS_NAMED: " ",
    ComponentName.OPERATORS: " ",
    ComponentName.EDGES: " ",
    ComponentName.RANKS: " ",
    ComponentName.ATTRIBUTES: " ",
    ComponentName.GUILTY_PASS: " ",
    ComponentName.CURE: " ",
}
# How a hint ended before files said `needs_reduction` in a field of its own.
_ONCE_SAID = "reduce the program first"


@dataclass(frozen=True, slots=True)
class Component:
    """One property of a failure, whether it is part of the fingerprint, and why.

    `items` are the frames, innermost first, or words of a list, or a single text. `needs_reduction`: it would
    count if the program were smaller.
    """

    name: ComponentName
    items: tuple[str, ...]
    kept: bool
    hint: str
    needs_reduction: bool = False

    @property
    def value(self) -> str:
        """The items as text; "" without items."""
        return _BETWEEN.get(self.name, "").join(self.items)


def make_component(
    name: ComponentName, value: str | Sequence[str], kept: bool, hint: str, *, needs_reduction: bool = False
) -> Component:
    """Make a component of a text, or of a list of items, truncated to `LONGEST` characters."""
    between = _BETWEEN.get(name, "")
    text = value if isinstance(value, str) else between.join(value)
    # Cut as text and split again, so that a component read from a file equals the one that was written.
    return Component(name, _split_items(name, text[:LONGEST]), kept, hint, needs_reduction)


def encode_component(part: Component) -> dict[str, Any]:
    """Encode a component for files, the index and `--json`."""
    fields: dict[str, Any] = {
        "name": part.name.value,
        "value": part.value,
        "kept": part.kept,
        "hint": part.hint,
    }
    return fields | {"needs_reduction": True} if part.needs_reduction else fields


def decode_component(fields: Mapping[str, Any]) -> Component:
    """Decode a component; raises KeyError, TypeError or ValueError for an invalid one."""
    name, hint = ComponentName(fields["name"]), str(fields["hint"])
    needs_reduction = fields.get("needs_reduction") is True or (
        not fields["kept"] and hint.endswith(_ONCE_SAID)
    )
    return Component(
        name, _split_items(name, str(fields["value"])), bool(fields["kept"]), hint, needs_reduction
    )


def _split_items(name: ComponentName, text: str) -> tuple[str, ...]:
    between = _BETWEEN.get(name)
    if not text:
        return ()
    return tuple(text.split(between)) if between else (text,)


@dataclass(frozen=True, slots=True)
class Signature:
    """The shape of a small graph: sorted words without repetition (`program_graph.make_signature`).

    `operators`: `Conv`; `edges`: `Conv>Relu`, and `>Conv` for inputs of the graph; `ranks`: `Conv:4` for an
    operator whose first input's rank is declared; `attributes`: `Pad.mode=edge`, `Conv.group=n` (0, 1 or n),
    `Conv.pads=zeros` (zeros, equal or mixed).
    """

    operators: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about a failure beyond one run; unknown ones are "" or empty.

    `signature` is that of the reduced graph. `guilty_passes` are the passes without which the failure is
    gone, `cure` the compiler options (`level=disable_all`) that cure it. `first_bad` is the first release or
    commit that fails, as `1.17.0` or a hash. `valid` is False for a program made to break a rule of ONNX.
    """

    signature: Signature | None = None
    guilty_passes: tuple[str, ...] = ()
    cure: tuple[str, ...] = ()
    first_bad: str = ""
    valid: bool = True


NOTHING = Evidence()


def needs_reduction(components: Sequence[Component]) -> bool:
    """Whether a fingerprint would count the program's operators if they were fewer."""
    return any(part.needs_reduction for part in components)


def is_graph_counted(components: Sequence[Component]) -> bool:
    """Whether a fingerprint counts operators, or would if they were fewer."""
    return needs_reduction(components) or any(
        part.kept and part.name is ComponentName.OPERATORS for part in components
    )
