"""What a graph and later evidence add to the fingerprint of any failure."""

from collections.abc import Sequence

from opsieve.triage.fingerprint.component import Component, ComponentName, component
from opsieve.triage.fingerprint.evidence import Evidence, Signature

REDUCE_FIRST = "reduce the program first"
INVALID = "it breaks a rule of ONNX and is to be refused"
_FEW = 6  # different operators of a graph that is small enough to speak for its bug


def few(operators: Sequence[str]) -> bool:
    """Whether operators are few enough to speak for their bug."""
    return len(operators) <= _FEW


def operators_component(operators: Sequence[str], needed: bool) -> Component:
    """The different operators of the graph; they count where they are `needed` and few."""
    distinct = sorted(set(operators))
    if not needed:
        return component(ComponentName.OPERATORS, distinct, False, "frames or message tell more")
    if len(distinct) > _FEW:
        hint = f"{len(distinct)} different operators: {REDUCE_FIRST}"
        return component(ComponentName.OPERATORS, distinct, False, hint, needs_reduction=True)
    return component(
        ComponentName.OPERATORS, distinct, True, "the graph is small enough to speak for its bug"
    )


def edges_component(shape: Signature, kept: bool) -> Component:
    """What feeds what in the reduced graph; there only for a graph that was reduced."""
    return component(ComponentName.EDGES, shape.edges, kept, "what feeds what in the reduced graph")


def found_later(evidence: Evidence, kept: bool) -> list[Component]:
    """What attribution and bisection say. It decides for a wrong result, which shows far from its cause."""
    passes, cure = sorted(evidence.guilty_passes), sorted(evidence.cure)
    why = "" if kept else "; where it failed tells more"
    return [
        component(ComponentName.GUILTY_PASS, passes, kept, f"without it the failure is gone{why}"),
        component(ComponentName.CURE, cure, kept and not passes, f"so built, the compiler is well{why}"),
        component(
            ComponentName.FIRST_BAD,
            evidence.first_bad[:100],
            kept,
            f"bugs of different age are different{why}",
        ),
    ]
