"""Programs with exactly one fault (HirFuzz, section 3.1.5), which compilers must reject with an error.

One rule is broken at one node of a valid program of the strategy isra
(gen/generation/constraint_violations.py); nodes that read its outputs are removed, so that nothing else is
wrong. Attempts are counted for each operator and rule within a batch of 64 seeds, and the rarest comes next.
The counts are rebuilt for each batch, so a program can be made again from its seed alone. The graph's name
states the fault.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import onnx

from opsieve.gen.case.case import Case
from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.batches import Batches
from opsieve.gen.generation.constraint_violations import Violation, list_violations
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.graph.graph import BodyGraph, Node
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.writing import serialize
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Broken

BATCH = 64
NAME = "disruptive"
# The most nodes above the request, which are added until some rule can be broken.
_MORE = 20
_WITH_BODIES = ("control", "container", "text")


@dataclass(slots=True)
class _Attempts:
    """How often each rule was broken so far in a batch."""

    violations: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)


def disruptive(request: GenRequest, seed: int) -> Case:
    """Make the program of a seed, with the fault that is rarest in its batch."""
    builder, chosen = _BATCHES.make_at(request, seed)
    if chosen is None:
        raise BadInput(
            f"none of the operators wished for has a rule that the strategy {NAME} can break; let more in"
        )
    sound = finish(builder, request, NAME, seed)
    node, violation = chosen
    declared = _break_node(builder, node, violation)
    outputs = [
        *declared,
        *(
            out
            for other in builder.nodes
            if other is not node
            for out in other.outs
            if out.name and not out.reads
        ),
    ]
    title = str(Broken(node.op, violation.kind, violation.place))
    model, inputs = serialize(builder, outputs, title, request.types)
    if violation.declared is None:
        # Drop the declared shapes of some outputs: a broken node has none, and its old shape would be a
        # second fault.
        names = {out.name for out in declared}
        proto = onnx.ModelProto.FromString(model)
        for info in (*proto.graph.output, *proto.graph.value_info):
            if info.name in names:
                info.type.tensor_type.ClearField("shape")
        model = bytes(proto.SerializeToString(deterministic=True))
    return replace(sound, program=OnnxProgram(model, f"{NAME}-{seed}"), inputs=inputs)


def _grow_breakable(
    request: GenRequest, seed: int, tried: _Attempts
) -> tuple[GraphBuilder, tuple[Node, Violation] | None]:
    """Grow a valid program, and choose the node and the violation; None for these if nothing can be
    broken.
    """
    builder = start(request, seed, NAME)
    fill(builder, request)
    chosen = _choose_rarest(builder, tried)
    for _ in range(_MORE):
        if chosen is not None:
            break
        # No operator so far has rules that can be broken here.
        fill(builder, replace(request, nodes=builder.size + 1))
        chosen = _choose_rarest(builder, tried)
    return builder, chosen


_BATCHES = Batches(BATCH, _Attempts, _grow_breakable)


def _choose_rarest(builder: GraphBuilder, tried: _Attempts) -> tuple[Node, Violation] | None:
    """Choose the node and the violation that were tried least; ties are drawn."""
    there = operators()
    best: tuple[tuple[int, int, float], Node, Violation] | None = None
    for node in builder.nodes:
        op = there.get(node.op) if not node.domain else None
        if op is None or op.family in _WITH_BODIES or not node.outs or not node.outs[0].name:
            continue
        for violation in list_violations(builder, node, op):
            key = (
                tried.violations[node.op, violation.kind, violation.place],
                tried.kinds[violation.kind],
                builder.rng.random(),
            )
            if best is None or key < best[0]:
                best = (key, node, violation)
    if best is None:
        return None
    _, node, violation = best
    tried.violations[node.op, violation.kind, violation.place] += 1
    tried.kinds[violation.kind] += 1
    return node, violation


def _break_node(builder: GraphBuilder, node: Node, violation: Violation) -> list[Tensor]:
    """Break the node, remove its readers, and return its outputs as they are declared."""
    dead = {out.name for out in node.outs}
    kept = []
    for other in builder.nodes:
        if other is not node and not dead.isdisjoint(tensor.name for tensor in _iterate_reads(other)):
            dead |= {out.name for out in other.outs}
            for tensor in _iterate_reads(other):
                tensor.reads -= 1
        else:
            kept.append(other)
    builder.nodes[:] = kept
    ins = [_make_input(builder, tensor) for tensor in violation.ins]
    for change, tensors in ((-1, node.ins), (1, ins)):
        for read in tensors:
            if read is not None:
                read.reads += change
    node.ins, node.attrs = ins, violation.attrs
    outs = [out for out in node.outs if out.name]
    if violation.declared is not None:
        dtype, shape = violation.declared
        outs[0] = Tensor(outs[0].name, dtype, shape)
    return outs


def _make_input(builder: GraphBuilder, tensor: Tensor | None) -> Tensor | None:
    """Return an input of a violation: the tensor itself, or a new leaf if it has no name."""
    if tensor is None or tensor.name:
        return tensor
    if tensor.values is not None:
        return builder.ints(tensor.values, tensor.dtype, tensor.shape)
    return builder.leaf(tensor.dtype, tensor.shape, kinds=("input", "input", "initializer"))


def _iterate_reads(node: Node) -> Iterator[Tensor]:
    """Yield the tensors that a node and its bodies read."""
    yield from (tensor for tensor in node.ins if tensor is not None)
    for value in node.attrs.values():
        if isinstance(value, BodyGraph):
            for inner in value.nodes:
                yield from _iterate_reads(inner)
