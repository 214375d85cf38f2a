"""A dispute between a target and the reference, settled by the first operator that differs given equal
inputs.

The target is asked for every value that its program makes. Where that leaves the disputed outputs as they
are, bit for bit, the reference computes each operator from the target's own inputs of it, in one run. An
operator whose outputs differ then is cut out with those inputs as a program of its own, and judged with
everybody asked:

- a second oracle says that its outputs are wrong: so are the program's;
- independent compilers compute it as the target does: the reference is outvoted, and the next operator is
  looked at;
- nobody else has it: undecided, and the verdict names it.

When no operator differs, every step is right and only rounding was magnified on the way.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from onnx import ModelProto, NodeProto

from opsieve.backends.compare import compare, identical
from opsieve.backends.judge.discontinuity_points import MADE, severed
from opsieve.backends.judge.judging_session import JudgingSession
from opsieve.backends.judge.oracles import Values, independent
from opsieve.backends.judge.pieces import MOST_VALUES, constants, made_values, operator_program, tapped
from opsieve.backends.judge.reasons import describe
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import Verdict
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

_MOST_OPERATORS = 12  # that are cut out and asked of everybody

# Judges what the target gave for a part of the program, None where the reference cannot.
JudgePiece = Callable[[Program, Values, Values], tuple[Verdict, JudgingSession] | None]


@dataclass(frozen=True, slots=True)
class Dispute:
    """The session of a program, its model, the oracle that stands alone, the target's outputs and the names
    of those in dispute.
    """

    session: JudgingSession
    model: ModelProto
    arbiter: ResolvedTarget
    outputs: Values
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """How a dispute was settled, or not: the operator that decided, what was found of it, and who agrees."""

    kind: Literal["wrong", "outvoted", "operators-agree", "undecided"]
    outputs: tuple[str, ...] = ()  # of the dispute, those that depend on the operator
    operator: str = ""
    found: str = ""
    blame: str = ""
    oracles: tuple[ResolvedTarget, ...] = ()
    rules: tuple[str, ...] = ()


def settle(dispute: Dispute, judge_piece: JudgePiece) -> Finding | None:
    """What the operators of the program tell of a dispute; None where the target's own values cannot be
    had.
    """
    own = _own_values(dispute)
    if own is None:
        return None
    rules: list[str] = []
    outvoted: Finding | None = None
    doubtful: Finding | None = None
    for count, node in enumerate(_differing(dispute, own)):
        if count == _MOST_OPERATORS:
            return doubtful or outvoted
        finding = _judged(dispute, node, own, judge_piece)
        finding = finding and replace(finding, outputs=_behind(dispute, node))
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


def _own_values(dispute: Dispute) -> Values | None:
    """Every value of the program as the target makes it; None when asking for them alters the disputed
    outputs.
    """
    session = dispute.session
    model = dispute.model
    names = made_values(model)
    if not names or len(names) > MOST_VALUES:
        return None
    program = OnnxProgram(tapped(model, names).SerializeToString(), session.program.name)
    answer = session.lab.observe(session.target, program, session.inputs)
    if answer.outputs is None:
        return None
    if not all(identical(answer.outputs.get(name), dispute.outputs.get(name)) for name in dispute.names):
        return None
    return {**session.inputs, **answer.outputs}


def _differing(dispute: Dispute, own: Mapping[str, Any]) -> Iterator[NodeProto]:
    """Nodes on the way to the disputed outputs whose outputs differ from the arbiter's given the target's
    inputs, in the graph's order.
    """
    session = dispute.session
    model = dispute.model
    held = constants(model)
    given = {name: value for name, value in own.items() if name in made_values(model)}
    program = OnnxProgram(
        severed(model, list(given), dispute.names).SerializeToString(), session.program.name
    )
    whole = session.lab.observe(dispute.arbiter, program, {**session.inputs, **given}).outputs
    for node in _upstream(model.graph.node, dispute.names):
        made = {name: given[name] for name in node.output if name in given}
        if not made or all(name in held for name in made):
            continue
        if whole is not None and all(name + MADE in whole for name in made):
            right: Values | None = {name: whole[name + MADE] for name in made}
        else:
            right = _one(dispute, node, own)
        if right is None or not compare(made, right, _dtypes(made), session.policy).agrees:
            yield node


def _one(dispute: Dispute, node: NodeProto, own: Mapping[str, Any]) -> Values | None:
    """What the arbiter makes of one node, where it cannot evaluate them all together."""
    piece = operator_program(dispute.model, node, own)
    return None if piece is None else dispute.session.lab.observe(dispute.arbiter, *piece).outputs


def _upstream(nodes: Any, outputs: tuple[str, ...]) -> list[NodeProto]:
    from opsieve.backends.reference.hazards import inputs_of

    needed, found = set(outputs), []
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            needed.update(inputs_of(node))
            found.append(node)
    return found[::-1]


def _judged(
    dispute: Dispute, node: NodeProto, own: Mapping[str, Any], judge_piece: JudgePiece
) -> Finding | None:
    """What everybody says of one operator on the target's own inputs; None where it cannot be cut out."""
    session = dispute.session
    piece = operator_program(dispute.model, node, own)
    if piece is None:
        return None
    inside = {name: own[name] for name in node.output if name in own}
    judged = judge_piece(*piece, inside)
    if judged is None:
        return None
    found, asked = judged
    if found.verdict == "fail":
        alone = asked.ask(session.target).outputs or {}
        by_itself = compare(alone, inside, _dtypes(inside), session.policy).agrees
        place = "by itself too" if by_itself else "only inside this program"
        return Finding("wrong", (), node.op_type, f"{place}: {describe(found.mismatch)}", found.blame)
    if found.verdict in ("pass", "invalid"):
        return Finding("operators-agree", (), node.op_type, rules=found.rules)
    agree = _siding(asked, inside)
    if agree:
        return Finding("outvoted", (), node.op_type, oracles=agree)
    return Finding("undecided", (), node.op_type, f"which nobody else confirms: {describe(found.mismatch)}")


def _behind(dispute: Dispute, node: NodeProto) -> tuple[str, ...]:
    """The disputed outputs that the node has a part in."""
    nodes = dispute.model.graph.node
    return tuple(name for name in dispute.names if any(each is node for each in _upstream(nodes, (name,))))


def _siding(asked: JudgingSession, inside: Values) -> tuple[ResolvedTarget, ...]:
    """The independent compilers that give what the target gives for the piece, against the arbiter."""
    names = tuple(inside)
    return tuple(
        each
        for each in asked.oracles
        if independent(asked.target, each) and asked.agrees(each, inside, names)
    )


def _dtypes(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(getattr(getattr(value, "dtype", None), "name", "")) for name, value in values.items()}
