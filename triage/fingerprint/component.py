"""The parts of a fingerprint: typed within, text only at the edge (failure.json, the index, `--json`, a
person's screen).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LONGEST = 600  # characters of a component as text


class ComponentName(StrEnum):
    """The properties of a failure; the values are how failure.json and the index spell them."""

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
    """One property of a failure: whether it is part of the fingerprint, and why.

    `items` are the frames, innermost first, or words of a list, else the one text. `needs_reduction`: it
    would count if the program were smaller.
    """

    name: ComponentName
    items: tuple[str, ...]
    kept: bool
    hint: str
    needs_reduction: bool = False

    @property
    def value(self) -> str:
        """The items as text; "" for none."""
        return _BETWEEN.get(self.name, "").join(self.items)


def component(
    name: ComponentName, value: str | Sequence[str], kept: bool, hint: str, *, needs_reduction: bool = False
) -> Component:
    """A component of a text, or of a list of items, cut to `LONGEST` characters."""
    between = _BETWEEN.get(name, "")
    text = value if isinstance(value, str) else between.join(value)
    return Component(name, _items(name, text[:LONGEST]), kept, hint, needs_reduction)


def component_json(part: Component) -> dict[str, Any]:
    """A component as files, the index and `--json` have it."""
    fields: dict[str, Any] = {
        "name": part.name.value,
        "value": part.value,
        "kept": part.kept,
        "hint": part.hint,
    }
    return fields | {"needs_reduction": True} if part.needs_reduction else fields


def component_from_json(fields: Mapping[str, Any]) -> Component:
    """The component that `component_json` wrote; KeyError, TypeError or ValueError for what is none."""
    name, hint = ComponentName(fields["name"]), str(fields["hint"])
    needs_reduction = fields.get("needs_reduction") is True or (
        not fields["kept"] and hint.endswith(_ONCE_SAID)
    )
    return Component(name, _items(name, str(fields["value"])), bool(fields["kept"]), hint, needs_reduction)


def _items(name: ComponentName, text: str) -> tuple[str, ...]:
    between = _BETWEEN.get(name)
    if not text:
        return ()
    return tuple(text.split(between)) if between else (text,)


@dataclass(frozen=True, slots=True)
class Signature:
    """The shape of a small graph: sorted words without repetition, see
    `opsieve.triage.fingerprint.program_graph.signature_of`.

    `operators`: `Conv`; `edges`: `Conv>Relu`, and `>Conv` for what the graph is fed with; `ranks`: `Conv:4`
    for an operator whose first input's rank is declared; `attributes`: `Pad.mode=edge`, `Conv.group=n` (0, 1
    or n), `Conv.pads=zeros` (zeros, equal or mixed).
    """

    operators: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of a failure beyond one run. What is "" or empty is not known (yet).

    `signature` is that of the reduced graph. `guilty_passes` are the passes without which the failure is
    gone, `cure` the options of the compiler (`level=disable_all`) under which it is. `first_bad` is the first
    release or commit that fails, as `1.17.0` or a hash. `valid` is False for a program that was made to break
    a rule of ONNX.
    """

    signature: Signature | None = None
    guilty_passes: tuple[str, ...] = ()
    cure: tuple[str, ...] = ()
    first_bad: str = ""
    valid: bool = True


NOTHING = Evidence()


def needs_reduction(components: Sequence[Component]) -> bool:
    """Whether a fingerprint would count the operators of the program, but they are too many to say which to
    blame.
    """
    return any(part.needs_reduction for part in components)


def counts_graph(components: Sequence[Component]) -> bool:
    """Whether a fingerprint counts operators, or would once they are few."""
    return needs_reduction(components) or any(
        part.kept and part.name is ComponentName.OPERATORS for part in components
    )
