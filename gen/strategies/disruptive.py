"""Programs with exactly one fault (HirFuzz, section 3.1.5): compilers are to reject them with an error, not to accept them, not to crash.

A sound program of the strategy isra has one rule broken at one node (gen/generation/constraint_violations.py); what would read that node's outputs is taken
out, so that nothing else is wrong. What was tried is remembered for each operator and rule within a batch of 64 seeds, and what was tried
least comes next; the memory is built anew for each batch, so a program can be made again from its seed alone. The name of its graph
tells what is broken.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import onnx

from opsieve.gen.build.graph_builder import Body, Node, Sketch
from opsieve.gen.build.writing import written
from opsieve.gen.case.case import Case
from opsieve.gen.generation.batches import Batches
from opsieve.gen.generation.constraint_violations import Breach, breaches
from opsieve.gen.generation.random_graph import Wish, begun, case, grown
from opsieve.gen.model.bad_input import BadInput
from opsieve.gen.model.invalid_marker import Broken
from opsieve.gen.model.program import Program
from opsieve.gen.operators.catalogue import operators
from opsieve.gen.spec.declaration import Tensor

BATCH = 64
NAME = "disruptive"
_MORE = 20  # nodes that a program may have above the wish
_WITH_BODIES = ("control", "container", "text")


@dataclass(slots=True)
class _Tried:
    """What was broken how often in a batch so far."""

    breaches: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)


def disruptive(wish: Wish, seed: int) -> Case:
    """The program of a seed, with a fault that was tried least in its batch."""
    sketch, chosen = _BATCHES.made(wish, seed)
    if chosen is None:
        raise BadInput(f"none of the operators wished for has a rule that the strategy {NAME} can break; let more in")
    sound = case(sketch, wish, NAME, seed)
    node, breach = chosen
    declared = _break(sketch, node, breach)
    outputs = [
        *declared,
        *(out for other in sketch.nodes if other is not node for out in other.outs if out.name and not out.reads),
    ]
    told = str(Broken(node.op, breach.kind, breach.place))
    model, inputs = written(sketch, outputs, told, wish.types)
    if breach.declared is None:
        model = _unshaped(model, {out.name for out in declared})
    return replace(sound, program=Program(model, f"{NAME}-{seed}"), inputs=inputs)


def _grown(wish: Wish, seed: int, tried: _Tried) -> tuple[Sketch, tuple[Node, Breach] | None]:
    """A sound program, with the node and the breach that are to come; None for these where nothing in it can be broken."""
    sketch = begun(wish, seed, NAME)
    grown(sketch, wish)
    chosen = _chosen(sketch, tried)
    for _ in range(_MORE):
        if chosen is not None:
            break
        # No operator so far has rules that can be broken here.
        grown(sketch, replace(wish, nodes=len(sketch.nodes) + sketch.inner + 1))
        chosen = _chosen(sketch, tried)
    return sketch, chosen


_BATCHES = Batches(BATCH, _Tried, _grown)


def _chosen(sketch: Sketch, tried: _Tried) -> tuple[Node, Breach] | None:
    """The node and the breach that were tried least; what is as seldom is drawn."""
    there = operators()
    best: tuple[tuple[int, int, float], Node, Breach] | None = None
    for node in sketch.nodes:
        op = there.get(node.op) if not node.domain else None
        if op is None or op.family in _WITH_BODIES or not node.outs or not node.outs[0].name:
            continue
        for breach in breaches(sketch, node, op):
            key = (tried.breaches[node.op, breach.kind, breach.place], tried.kinds[breach.kind], sketch.draw.random())
            if best is None or key < best[0]:
                best = (key, node, breach)
    if best is None:
        return None
    _, node, breach = best
    tried.breaches[node.op, breach.kind, breach.place] += 1
    tried.kinds[breach.kind] += 1
    return node, breach


def _break(sketch: Sketch, node: Node, breach: Breach) -> list[Tensor]:
    """Make the node wrong, take out what reads it, and give its outputs as they are to be declared."""
    dead = {out.name for out in node.outs}
    kept = []
    for other in sketch.nodes:
        if other is not node and not dead.isdisjoint(tensor.name for tensor in _read(other)):
            dead |= {out.name for out in other.outs}
            for tensor in _read(other):
                tensor.reads -= 1
        else:
            kept.append(other)
    sketch.nodes[:] = kept
    ins = [_made(sketch, tensor) for tensor in breach.ins]
    for change, tensors in ((-1, node.ins), (1, ins)):
        for read in tensors:
            if read is not None:
                read.reads += change
    node.ins, node.attrs = ins, breach.attrs
    outs = [out for out in node.outs if out.name]
    if breach.declared is not None:
        dtype, shape = breach.declared
        outs[0] = Tensor(outs[0].name, dtype, shape)
    return outs


def _unshaped(model: bytes, names: set[str]) -> bytes:
    """The model with some outputs declared without a shape: what a broken node gives has none, and its old one would be a second fault."""
    proto = onnx.ModelProto.FromString(model)
    for info in (*proto.graph.output, *proto.graph.value_info):
        if info.name in names:
            info.type.tensor_type.ClearField("shape")
    return bytes(proto.SerializeToString(deterministic=True))


def _made(sketch: Sketch, tensor: Tensor | None) -> Tensor | None:
    """The input of a breach: itself, or a leaf where it has no name yet."""
    if tensor is None or tensor.name:
        return tensor
    if tensor.values is not None:
        return sketch.ints(tensor.values, tensor.dtype, tensor.shape)
    return sketch.leaf(tensor.dtype, tensor.shape, kinds=("input", "input", "initializer"))


def _read(node: Node) -> Iterator[Tensor]:
    """What a node reads, its bodies too."""
    yield from (tensor for tensor in node.ins if tensor is not None)
    for value in node.attrs.values():
        if isinstance(value, Body):
            for inner in value.nodes:
                yield from _read(inner)
