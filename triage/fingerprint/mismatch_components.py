"""The track of wrong results, and of models that a transformer broke: both show far from their cause.

They are identified by what is wrong, and by the operators of the graph once that is small.
"""

from collections.abc import Collection, Sequence

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Verdict
from opsieve.triage.fingerprint.component import Component, ComponentName, Evidence, Signature, component
from opsieve.triage.fingerprint.normalise import normalise

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


# What our transformers raise when the model that they made is worse than the one they got: a wrong result,
# not a place.
BROKEN_MODEL = "BrokenModel"


def mismatch_components(
    verdict: Verdict, observation: Observation, operators: Sequence[str], evidence: Evidence
) -> list[Component]:
    """The track of mismatches."""
    mismatch = verdict.mismatch
    assert mismatch is not None
    shape = evidence.signature
    return [
        component(
            ComponentName.MISMATCH,
            mismatch.what,
            True,
            "NaN, a wrong shape and a wrong value have different causes",
        ),
        _dtype_component(_dtype_class(observation, mismatch.output), bool(shape and shape.operators)),
        component(ComponentName.BLAME, verdict.blame, True, "whether the unoptimised build is right"),
        component(
            ComponentName.STAGE,
            verdict.stage or observation.stage,
            False,
            "a wrong result shows at the end, whatever stage caused it",
        ),
        component(ComponentName.OUTPUT, mismatch.output[:100], False, "a name of the program"),
        component(
            ComponentName.ERROR,
            f"{mismatch.max_abs:.3g}",
            False,
            "the size of an error depends on the inputs",
        ),
        operators_component(shape.operators if shape and shape.operators else operators, needed=True),
        *(_shape_components(shape) if shape else ()),
        *found_later(evidence, kept=True),
    ]


def broken_model_components(
    verdict: Verdict,
    observation: Observation,
    operators: Sequence[str],
    evidence: Evidence,
    names: Collection[str],
) -> list[Component]:
    """The track of models that a transformer broke: like a wrong result, they show far from their cause, to
    whoever reads the model next.
    """
    shape = evidence.signature
    reduced = bool(shape and shape.operators)
    who, _, what = (verdict.message or observation.message).partition(": ")
    left = sorted(set(shape.operators if shape and reduced else operators))
    why = "; the reduced graph tells more, one bug is found by several readers" if reduced else ""
    return [
        component(
            ComponentName.STAGE,
            verdict.stage or observation.stage,
            not reduced,
            f"when the broken model was found{why}",
        ),
        component(
            ComponentName.EXCEPTION, BROKEN_MODEL, True, "a transformed model is worse than the original"
        ),
        component(
            ComponentName.MESSAGE, normalise(who, names), not reduced, f"who found the model broken{why}"
        ),
        component(
            ComponentName.FOUND,
            normalise(what, names),
            not reduced,
            f"what its reader stumbles over, downstream of the cause{why}",
        ),
        component(ComponentName.PROGRAM, "" if evidence.valid else "invalid", True, INVALID),
        operators_component(left, needed=True)
        if reduced
        else component(
            ComponentName.OPERATORS,
            left,
            False,
            f"downstream of the cause: {REDUCE_FIRST}",
            needs_reduction=True,
        ),
        *(_shape_components(shape) if shape else ()),
        *found_later(evidence, kept=True),
    ]


def _dtype_component(dtype: str, is_reduced: bool) -> Component:
    """The class of the output's type. Large programs of one class have more in common than their bug; what is
    left of them says more, and one bug shows on integers and floats. Narrow floats stay apart: what rounds
    there is seldom wrong elsewhere.
    """
    if is_reduced and dtype != "narrow float":
        return component(
            ComponentName.DTYPE, dtype, False, "the reduced graph tells more: one bug shows in several types"
        )
    return component(
        ComponentName.DTYPE, dtype, True, "the class of the output's type, since kernels differ by it"
    )


def _shape_components(shape: Signature) -> list[Component]:
    return [
        edges_component(shape, few(shape.operators)),
        component(ComponentName.RANKS, shape.ranks, False, "for people: one bug shows at several ranks"),
        component(
            ComponentName.ATTRIBUTES, shape.attributes, False, "for people: one bug shows under several"
        ),
    ]


def _dtype_class(observation: Observation, output: str) -> str:
    """`float`, `narrow float` (16 bits and less), `integer`, `bool` or `string`; "" when the output is absent
    or not an array.
    """
    name = str(getattr((observation.outputs or {}).get(output), "dtype", ""))
    if name in ("float32", "float64"):
        return "float"
    if "float" in name:
        return "narrow float"
    if name.startswith(("int", "uint")):
        return "integer"
    return {"object": "string"}.get(name, name[:20])
