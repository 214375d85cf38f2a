"""Components of wrong results, and of models that a transformer broke: both surface far from their cause.

They are identified by the kind of difference, and by the operators of the graph once that is small.
"""

import re
from collections.abc import Collection, Sequence

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Verdict
from opsieve.triage.fingerprint.component import Component, ComponentName, Evidence, Signature, make_component
from opsieve.triage.fingerprint.normalise import normalise_message

REDUCE_FIRST = "reduce the program first"
INVALID = "it breaks a rule of ONNX and is to be refused"
# Different operators of a graph that is small enough to speak for its bug
_FEW = 6
# The words of a pass's name: `fuse_pad_into_pool`, `PadFusion`
_PASS_WORD = re.compile(r"[A-Z]?[a-z]{3,}")


def is_few(operators: Sequence[str]) -> bool:
    """Whether there are few enough operators to identify a bug."""
    return len(operators) <= _FEW


def make_operators(operators: Sequence[str], needed: bool) -> Component:
    """Make the component of the graph's distinct operators; it counts if `needed` and few."""
    distinct = sorted(set(operators))
    if not needed:
        return make_component(ComponentName.OPERATORS, distinct, False, "frames or message tell more")
    if len(distinct) > _FEW:
        hint = f"{len(distinct)} different operators: {REDUCE_FIRST}"
        return make_component(ComponentName.OPERATORS, distinct, False, hint, needs_reduction=True)
    return make_component(
        ComponentName.OPERATORS, distinct, True, "the graph is small enough to identify its bug"
    )


def make_edges(shape: Signature, kept: bool) -> Component:
    """Make the component of the reduced graph's edges."""
    return make_component(ComponentName.EDGES, shape.edges, kept, "what feeds what in the reduced graph")


def make_evidence(evidence: Evidence, kept: bool) -> list[Component]:
    """Make the components from attribution and bisection, which decide for a wrong result."""
    passes, cure = sorted(evidence.guilty_passes), sorted(evidence.cure)
    why = "" if kept else "; where it failed tells more"
    return [
        make_component(ComponentName.GUILTY_PASS, passes, kept, f"without it the failure is gone{why}"),
        # A guilty pass says more than the options that leave it out, and varies less.
        make_component(ComponentName.CURE, cure, kept and not passes, f"so built, the compiler is well{why}"),
        make_component(
            ComponentName.FIRST_BAD,
            evidence.first_bad[:100],
            kept,
            f"bugs of different age are different{why}",
        ),
    ]


# What our transformers raise when the model that they made is worse than the one they got: a wrong result,
# not a place.
BROKEN_MODEL = "BrokenModel"


def make_mismatch_components(
    verdict: Verdict, observation: Observation, operators: Sequence[str], evidence: Evidence
) -> list[Component]:
    """Make the components of a mismatch."""
    mismatch = verdict.mismatch
    assert mismatch is not None
    shape = evidence.signature
    reduced = bool(shape and shape.operators)
    left = shape.operators if shape and reduced else operators
    # What else an unreduced program holds is chance, once the pass is known.
    known = reduced or bool(evidence.guilty_passes)
    named = () if reduced else _list_named(left, evidence.guilty_passes)
    return [
        make_component(
            ComponentName.MISMATCH,
            mismatch.what,
            True,
            "NaN, a wrong shape and a wrong value have different causes",
        ),
        _make_dtype(_classify_dtype(observation, mismatch.output), known),
        # An unoptimised build may be wrong for a reason of its own.
        make_component(
            ComponentName.BLAME,
            verdict.blame,
            not evidence.guilty_passes,
            "whether the unoptimised build is right",
        ),
        make_component(
            ComponentName.STAGE,
            verdict.stage or observation.stage,
            False,
            "a wrong result shows at the end, whatever stage caused it",
        ),
        make_component(ComponentName.OUTPUT, mismatch.output[:100], False, "a name of the program"),
        make_component(
            ComponentName.ERROR,
            f"{mismatch.max_abs:.3g}",
            False,
            "the size of an error depends on the inputs",
        ),
        make_component(
            ComponentName.OPERATORS,
            named,
            True,
            "the pass's name names them; what else the program holds is chance",
        )
        if named
        else make_operators(left, needed=reduced or not known),
        *(_make_shape(shape) if shape else ()),
        *make_evidence(evidence, kept=True),
    ]


def _list_named(operators: Sequence[str], passes: Sequence[str]) -> list[str]:
    """List the operators that the names of passes name: a pass may hold one mistake for each.

    `conv` names Conv if the program has one, and `pool` names MaxPool and AveragePool.
    """
    named: set[str] = set()
    for word in {each.lower() for name in passes for each in _PASS_WORD.findall(name)}:
        alike = {operator for operator in operators if word in operator.lower()}
        named |= {operator for operator in alike if operator.lower() == word} or alike
    return sorted(named)


def make_broken_model_components(
    verdict: Verdict,
    observation: Observation,
    operators: Sequence[str],
    evidence: Evidence,
    names: Collection[str],
) -> list[Component]:
    """Make the components of a model broken by a transformer, which surface in the next reader, far from
    their cause.
    """
    shape = evidence.signature
    reduced = bool(shape and shape.operators)
    # The transformer's check writes `reader: objection`.
    who, _, what = (verdict.message or observation.message).partition(": ")
    left = sorted(set(shape.operators if shape and reduced else operators))
    why = "; the reduced graph tells more, one bug is found by several readers" if reduced else ""
    return [
        make_component(
            ComponentName.STAGE,
            verdict.stage or observation.stage,
            not reduced,
            f"when the broken model was found{why}",
        ),
        make_component(
            ComponentName.EXCEPTION, BROKEN_MODEL, True, "a transformed model is worse than the original"
        ),
        make_component(
            ComponentName.MESSAGE,
            normalise_message(who, names),
            not reduced,
            f"who found the model broken{why}",
        ),
        make_component(
            ComponentName.FOUND,
            normalise_message(what, names),
            not reduced,
            f"what its reader stumbles over, downstream of the cause{why}",
        ),
        make_component(ComponentName.PROGRAM, "" if evidence.valid else "invalid", True, INVALID),
        make_operators(left, needed=True)
        if reduced
        else make_component(
            ComponentName.OPERATORS,
            left,
            False,
            f"downstream of the cause: {REDUCE_FIRST}",
            needs_reduction=True,
        ),
        *(_make_shape(shape) if shape else ()),
        *make_evidence(evidence, kept=True),
    ]


def _make_dtype(dtype: str, is_known: bool) -> Component:
    """Make the component of the output's class of type; `is_known`: a reduced graph or a pass tells more.

    Large programs of one class share more than their bug; the reduced graph says more, and one bug appears
    with integers and floats. Narrow floats stay apart: their rounding problems are seldom wrong elsewhere.
    """
    if is_known and dtype != "narrow float":
        return make_component(
            ComponentName.DTYPE, dtype, False, "the reduced graph tells more: one bug shows in several types"
        )
    return make_component(
        ComponentName.DTYPE, dtype, True, "the class of the output's type, since kernels differ by it"
    )


def _make_shape(shape: Signature) -> list[Component]:
    return [
        make_edges(shape, is_few(shape.operators)),
        make_component(ComponentName.RANKS, shape.ranks, False, "for people: one bug shows at several ranks"),
        make_component(
            ComponentName.ATTRIBUTES, shape.attributes, False, "for people: one bug shows under several"
        ),
    ]


def _classify_dtype(observation: Observation, output: str) -> str:
    """Return `float`, `narrow float` (16 bits and less), `integer`, `bool` or `string`; "" without an
    array.
    """
    name = str(getattr((observation.outputs or {}).get(output), "dtype", ""))
    if name in ("float32", "float64"):
        return "float"
    if "float" in name:
        return "narrow float"
    if name.startswith(("int", "uint")):
        return "integer"
    return {"object": "string"}.get(name, name[:20])
