"""Settle a dispute between a target and the reference at the first operator that differs for equal inputs.

The target returns every value that its program makes. If that leaves the disputed outputs unchanged, bit for
bit, the reference computes each operator from the target's own inputs of it, in one run. An operator with
different outputs is then cut out with those inputs as a program of its own, and judged by all oracles:
- a second oracle says that its outputs are wrong: so are the program's;
- independent compilers compute it as the target does: the reference is outvoted, and the search continues;
- other implementations lack it: undecided, and the verdict names it.

If every operator agrees, every step is right and only rounding was magnified on the way.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from onnx import GraphProto, ModelProto, NodeProto

from opsieve.backends import registry, verdict
from opsieve.backends.compare import compare, identical
from opsieve.backends.judge import judging_session, pieces, reasons
from opsieve.backends.judge.discontinuity_points import MADE, find_upstream, sever
from opsieve.backends.judge.oracles import Values, is_independent
from opsieve.gen.irs.onnx.edits import tap_model
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

# Operators that are cut out and run on every oracle.
_MOST_OPERATORS = 12

# Judges what the target gave for a part of the program, None where the reference cannot.
JudgePiece = Callable[
    [Program, Values, Values], tuple[verdict.Verdict, judging_session.JudgingSession] | None
]


@dataclass(frozen=True, slots=True)
class Dispute:
    """A program's session and model, the oracle that stands alone, the target's outputs, and the disputed
    names.
    """

    session: judging_session.JudgingSession
    model: ModelProto
    arbiter: registry.ResolvedTarget
    outputs: Values
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for a dispute: the deciding operator, its finding, and the agreeing oracles.

    `outputs` are the disputed ones that depend on the operator.
    """

    kind: Literal["wrong", "outvoted", "operators-agree", "undecided"]
    # Of the dispute, those that depend on the operator
    outputs: tuple[str, ...] = ()
    operator: str = ""
    found: str = ""
    blame: str = ""
    oracles: tuple[registry.ResolvedTarget, ...] = ()
    rules: tuple[str, ...] = ()


def settle_dispute(dispute: Dispute, judge_piece: JudgePiece) -> Finding | None:
    """Settle a dispute by the program's operators; returns `None` if the target's own values are
    unavailable.
    """
    own = _get_own_values(dispute)
    if own is None:
        return None
    rules: list[str] = []
    outvoted: Finding | None = None
    doubtful: Finding | None = None
    for count, node in enumerate(_iter_differing(dispute, own)):
        if count == _MOST_OPERATORS:
            return doubtful or outvoted
        finding = _judge_operator(dispute, node, own, judge_piece)
        finding = finding and replace(finding, outputs=_list_affected(dispute, node))
        if finding is None or finding.kind == "undecided":
            doubtful = (
                doubtful
                or finding
                or Finding("undecided", (), node.op_type, "which cannot be asked by itself")
            )
        elif finding.kind == "wrong":
            return finding
        elif finding.kind == "outvoted":
            outvoted = outvoted or finding
        else:
            rules.extend(finding.rules)
    if doubtful is not None or outvoted is not None:
        return doubtful or outvoted
    return Finding("operators-agree", rules=tuple(dict.fromkeys(rules)))


def _get_own_values(dispute: Dispute) -> Values | None:
    """Return every value of the program as the target makes it; returns `None` if extra outputs alter the
    disputed ones.
    """
    session = dispute.session
    model = dispute.model
    names = pieces.list_made_values(model)
    # All values become outputs of one run, so memory grows with the program.
    if not names or len(names) > pieces.MOST_VALUES:
        return None
    program = OnnxProgram(tap_model(model, names).SerializeToString(), session.program.name)
    answer = session.lab.observe(session.target, program, session.inputs)
    if answer.outputs is None:
        return None
    # Extra outputs can switch off the fusion that is at fault.
    if not all(identical(answer.outputs.get(name), dispute.outputs.get(name)) for name in dispute.names):
        return None
    return {**session.inputs, **answer.outputs}


def _iter_differing(dispute: Dispute, own: Mapping[str, Any]) -> Iterator[NodeProto]:
    """Yield nodes on the way to the disputed outputs that differ from the arbiter for the target's inputs, in
    order.
    """
    session = dispute.session
    model = dispute.model
    held = pieces.get_constants(model)
    given = {name: value for name, value in own.items() if name in pieces.list_made_values(model)}
    program = OnnxProgram(sever(model, list(given), dispute.names).SerializeToString(), session.program.name)
    whole = session.lab.observe(dispute.arbiter, program, {**session.inputs, **given}).outputs
    for node in _list_upstream(model.graph, dispute.names):
        made = {name: given[name] for name in node.output if name in given}
        # Constants are given, so no compiler can compute them wrongly.
        if not made or all(name in held for name in made):
            continue
        if whole is not None and all(name + MADE in whole for name in made):
            right: Values | None = {name: whole[name + MADE] for name in made}
        else:
            # Evaluate one node with the arbiter, if it cannot evaluate them all together.
            piece = pieces.make_operator_program(dispute.model, node, own)
            right = None if piece is None else dispute.session.lab.observe(dispute.arbiter, *piece).outputs
        if right is None or not compare(made, right, get_dtypes(made), session.policy).agrees:
            yield node


def _list_upstream(graph: GraphProto, outputs: tuple[str, ...]) -> list[NodeProto]:
    needed = find_upstream(graph, outputs)
    return [node for node in graph.node if needed.intersection(node.output)]


def _judge_operator(
    dispute: Dispute, node: NodeProto, own: Mapping[str, Any], judge_piece: JudgePiece
) -> Finding | None:
    """Judge one operator on the target's own inputs; returns `None` if it cannot be cut out."""
    session = dispute.session
    piece = pieces.make_operator_program(dispute.model, node, own)
    if piece is None:
        return None
    inside = {name: own[name] for name in node.output if name in own}
    judged = judge_piece(*piece, inside)
    if judged is None:
        return None
    found, asked = judged
    if found.verdict == "fail":
        alone = asked.run_target(session.target).outputs or {}
        # Tells a wrong kernel from a fusion or rewrite that only the whole program triggers.
        by_itself = compare(alone, inside, get_dtypes(inside), session.policy).agrees
        place = "by itself too" if by_itself else "only inside this program"
        return Finding(
            "wrong", (), node.op_type, f"{place}: {reasons.describe_mismatch(found.mismatch)}", found.blame
        )
    # An undefined result of one operator is no fault either.
    if found.verdict in ("pass", "invalid"):
        return Finding("operators-agree", (), node.op_type, rules=found.rules)
    # List the independent compilers that agree with the target on the piece, against the arbiter.
    names = tuple(inside)
    agree = tuple(
        each
        for each in asked.oracles
        if is_independent(asked.target, each) and asked.is_agreeing(each, inside, names)
    )
    if agree:
        return Finding("outvoted", (), node.op_type, oracles=agree)
    return Finding(
        "undecided",
        (),
        node.op_type,
        f"which no other implementation confirms: {reasons.describe_mismatch(found.mismatch)}",
    )


def _list_affected(dispute: Dispute, node: NodeProto) -> tuple[str, ...]:
    """List the disputed outputs to which the node contributes."""
    graph = dispute.model.graph
    return tuple(
        name for name in dispute.names if any(each is node for each in _list_upstream(graph, (name,)))
    )


def get_dtypes(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the element types of values, "" for a sequence."""
    return {name: str(getattr(getattr(value, "dtype", None), "name", "")) for name, value in values.items()}
