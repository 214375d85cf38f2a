"""Two optimisation levels of one compiler that differ: one of them is wrong.

A target and its unoptimised build run the same program. If both repeat their results in a fresh process, a
difference beyond the policy is a failure of the compiler even without a third opinion: the blame stays open.
For programs outside ONNX the discontinuities are unknown, so this rule does not apply to them.
"""

from collections.abc import Mapping, Sequence

from onnx import ModelProto

from opsieve.backends.compare import Comparison, compare, identical
from opsieve.backends.judge import discontinuity_points, judging_session, oracles, reasons
from opsieve.backends.verdict import STRUCTURE, Verdict
from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.model.structure import model_nodes

RULE = "levels-disagree"
# Without a reference nobody measures how much the program magnifies rounding errors: this many times the
# screen is beyond that.
UNMEASURED = 10.0


def judge_levels(
    session: judging_session.JudgingSession,
    outputs: oracles.Values,
    names: Sequence[str],
    terms: Mapping[str, int],
    rules: Sequence[str] = (),
    *,
    measured: bool,
) -> Verdict | None:
    """Judge an unoptimised build that gives others of the named outputs; None if it does not, or a reason
    excuses it.

    `measured` means that a reference has bounded the effect of rounding.
    """
    baseline, graph = session.target.baseline, session.graph
    if baseline is None or graph is None or _has_random(graph):
        return None
    answer = session.run_target(baseline).outputs
    if answer is None or not all(name in answer for name in names):
        return None
    # Both levels may be right where a rounding error decides the side of a jump.
    own = {name: outputs[name] for name in names if not _is_discontinuous(graph, name)}
    found = compare(
        own, {name: answer[name] for name in own}, session.dtypes, session.policy, terms
    ).mismatches
    if not measured:
        found = {
            name: mismatch
            for name, mismatch in found.items()
            if mismatch.what in STRUCTURE
            or mismatch.max_scaled
            > UNMEASURED * session.policy.screen(session.dtypes.get(name, ""), terms.get(name, 0))
        }
    worst = Comparison(found).worst
    if worst is None:
        return None
    # The target has repeated its result already; an unstable baseline contradicts nobody.
    again = session.lab.observe(baseline, session.program, session.inputs, fresh=True).outputs
    if again is None or not all(identical(again.get(name), answer[name]) for name in found):
        return None
    reason = reasons.make_reason(
        reasons.Cause.LEVELS_DISAGREE, target=session.target, baseline=baseline, mismatch=worst
    )
    return reasons.make_verdict("fail", reason, "mismatch", rules=(*rules, RULE), mismatch=worst)


def _is_discontinuous(graph: ModelProto, name: str) -> bool:
    """Whether a value near a discontinuity can explain any difference of an output."""
    found = discontinuity_points.find_points(graph, (name,))
    return bool(found.names or found.scales)


def _has_random(model: ModelProto) -> bool:
    found = (find_operator(node.domain, node.op_type) for node in model_nodes(model))
    return any(operator is not None and operator.random for operator in found)
