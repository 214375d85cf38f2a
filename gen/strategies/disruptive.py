"""Programs with exactly one fault (HirFuzz, section 3.1.5), which compilers must reject with an error.

One rule is broken at one node of a valid program of the strategy isra; nodes that read its outputs are
removed, so that nothing else is wrong. Attempts are counted for each operator and rule within a batch of 64
seeds, and the rarest comes next. The counts are rebuilt for each batch, so a program can be made again from
its seed alone. The graph's name states the fault.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import onnx
from onnx.defs import OpSchema

from opsieve.gen.case.case import Case
from opsieve.gen.declarations.catalogue import OpsetSchema, form, operators
from opsieve.gen.declarations.declaration import Operator, RankEnds
from opsieve.gen.declarations.tensor import LARGEST, LEAST, PLAIN, Attributes, Number, Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.generation import batches, random_graph
from opsieve.gen.generation.symbolic import iterate_reads
from opsieve.gen.graph import graph_builder, writing
from opsieve.gen.graph.graph import Node
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Broken

Ins = Sequence[Tensor | None]
_NUMBERED = frozenset((OpSchema.AttrType.INT, OpSchema.AttrType.INTS))


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: the inputs and attributes of the broken node, or the type that its first output is
    declared with.

    New inputs are tensors without a name, from which the caller makes leaves.
    """

    kind: str
    place: str
    ins: Ins
    attrs: Attributes
    declared: tuple[str, tuple[Any, ...]] | None = None


def list_violations(builder: graph_builder.GraphBuilder, node: Node, op: Operator) -> Iterator[Violation]:
    """Yield a violation for each kind and place at a node of ONNX's own domain."""
    had = form(node.op, builder.opset)
    if had is None:
        return
    yield from _break_relations(node, op)
    yield from _break_dtypes(builder, node, had)
    yield from _break_ranks(node, op)
    for position, slot in enumerate(had.inputs):
        if not slot.optional and not slot.variadic and position < len(node.ins):
            left: list[Tensor | None] = [*node.ins[:position], None, *node.ins[position + 1 :]]
            # ONNX leaves out optional inputs at the end and does not list them as empty.
            while left and left[-1] is None:
                left.pop()
            yield Violation("missing-input", f"input {position}", left, node.attrs)
    if had.inputs and not had.inputs[-1].variadic:
        filled = [*node.ins, *(None for _ in range(len(had.inputs) - len(node.ins)))]
        yield Violation("extra-input", "the last", [*filled, Tensor("", "float32", (2,))], node.attrs)
    yield from _break_attributes(node, had)
    yield from _break_outputs(builder, node)


def find_false_relations(op: Operator, ins: Ins, attrs: Attributes) -> list[int] | None:
    """Return the indices of the declaration's relations that are false; None if they cannot be evaluated."""
    try:
        return [
            place
            for place, truth in enumerate(op.requires(ins, attrs))  # type: ignore[arg-type]
            if not truth
        ]
    # Later relations may only make sense if the earlier ones hold, and raise otherwise.
    except (IndexError, KeyError, ValueError, ZeroDivisionError):
        return None


def _break_relations(node: Node, op: Operator) -> Iterator[Violation]:
    """Break each relation of the declaration by moving one number."""
    if find_false_relations(op, node.ins, node.attrs) != []:
        return
    # One violation for each relation is enough: further ones would break the same rule again.
    met: set[int] = set()
    for place, ins, attrs in _move_numbers(node):
        false = find_false_relations(op, ins, attrs)
        if false is not None and len(false) == 1 and false[0] not in met:
            met.add(false[0])
            yield Violation("relation", f"{false[0]} by {place}", ins, attrs)


def _move_numbers(node: Node) -> Iterator[tuple[str, Ins, Attributes]]:
    """Yield the node with one number moved: a size, an element of a shape, or an attribute."""
    for position, tensor in enumerate(node.ins):
        if tensor is None:
            continue
        if tensor.values is not None:
            # A long list of numbers repeats one rule; six reach the axes of any operator.
            for at, value in enumerate(tensor.values[:6]):
                # By 1 to hit an off-by-one check, by 50 to leave any size that programs have.
                for other in (value + 1, value - 1, value + 50, value - 50):
                    # A number that the type cannot hold would be another program than the one stated.
                    if not LEAST[tensor.dtype] <= other <= LARGEST[tensor.dtype]:
                        continue
                    values = (*tensor.values[:at], other, *tensor.values[at + 1 :])
                    yield (
                        f"input {position}",
                        _replace_input(node.ins, position, tensor.dtype, tensor.shape, values),
                        node.attrs,
                    )
            continue
        for axis, side in enumerate(tensor.shape):
            # 2n + 1 is no multiple of an n above 1, and so breaks rules on divisibility.
            for other in (side + 1, side - 1, 2 * side + 1) if isinstance(side, int) else ():
                if other > 0:
                    shape = (*tensor.shape[:axis], other, *tensor.shape[axis + 1 :])
                    yield (
                        f"input {position}",
                        _replace_input(node.ins, position, tensor.dtype, shape),
                        node.attrs,
                    )
    for name, value in node.attrs.items():
        if isinstance(value, int):
            for number in (value + 1, value - 1, value + 50, value - 50):
                yield name, node.ins, {**node.attrs, name: number}
        elif isinstance(value, list) and value and isinstance(value[0], int):
            for at, element in enumerate(value[:6]):
                for number in (element + 1, element - 1, element + 50, element - 50):
                    yield name, node.ins, {**node.attrs, name: [*value[:at], number, *value[at + 1 :]]}


def _replace_input(
    ins: Ins, position: int, dtype: str, shape: tuple[Any, ...], values: tuple[Number, ...] | None = None
) -> list[Tensor | None]:
    """Return inputs with another tensor at a position."""
    return [*ins[:position], Tensor("", dtype, shape, values=values), *ins[position + 1 :]]


def _change_dtype(tensor: Tensor, dtype: str) -> tuple[str, tuple[Any, ...], tuple[Number, ...] | None]:
    """Return the tensor's facts with another dtype; known elements stay if the dtype holds them."""
    values = tensor.values
    # Without values the tensor becomes an input of the program, whose values are drawn.
    if values is not None and not all(LEAST[dtype] <= value <= LARGEST[dtype] for value in values):
        values = None
    return dtype, tensor.shape, values


def _break_dtypes(builder: graph_builder.GraphBuilder, node: Node, had: OpsetSchema) -> Iterator[Violation]:
    """Give an input a dtype that the operator does not take."""
    for position, tensor in enumerate(node.ins[: len(had.inputs)]):
        if tensor is None or tensor.dtype not in PLAIN or any(isinstance(side, str) for side in tensor.shape):
            continue
        slot = had.inputs[position]
        allowed = had.types[slot.type]
        outside = [dtype for dtype in PLAIN if dtype not in allowed]
        if outside:
            ins = _replace_input(node.ins, position, *_change_dtype(tensor, builder.rng.choice(outside)))
            yield Violation("dtype", f"input {position}", ins, node.attrs)
        # Only inputs that share a type variable have to agree.
        same = sum(
            other is not None and had.inputs[min(n, len(had.inputs) - 1)].type == slot.type
            for n, other in enumerate(node.ins)
        )
        others = [dtype for dtype in PLAIN if dtype in allowed and dtype != tensor.dtype]
        if same > 1 and others:
            ins = _replace_input(node.ins, position, *_change_dtype(tensor, builder.rng.choice(others)))
            yield Violation("mixed-dtypes", f"input {position}", ins, node.attrs)


def _break_ranks(node: Node, op: Operator) -> Iterator[Violation]:
    """Give the first input a rank that the operator does not take."""
    tensor = node.ins[0] if node.ins else None
    if tensor is None or tensor.values is not None or tensor.dtype not in LARGEST:
        return
    low, high = op.ranks
    if RankEnds.LEAST in op.rank_ends:
        yield Violation(
            "rank", "below", _replace_input(node.ins, 0, tensor.dtype, tensor.shape[: low - 1]), node.attrs
        )
    if RankEnds.LARGEST in op.rank_ends:
        shape = (*tensor.shape, *(1 for _ in range(high + 1 - tensor.rank)))
        yield Violation("rank", "above", _replace_input(node.ins, 0, tensor.dtype, shape), node.attrs)


def _break_attributes(node: Node, had: OpsetSchema) -> Iterator[Violation]:
    """Remove a required attribute, or give one another type or an unknown name."""
    for name, value in node.attrs.items():
        known = had.attributes.get(name)
        if known is None:
            continue
        if known.required:
            yield Violation(
                "missing-attribute", name, node.ins, {k: v for k, v in node.attrs.items() if k != name}
            )
        # A text for a number and a number for anything else can never be the attribute's type.
        wrong: Any = "text" if known.type in _NUMBERED else 7
        yield Violation("attribute-type", name, node.ins, {**node.attrs, name: wrong})
        outlandish: Any = None
        if name == "axis":
            outlandish = 40
        elif isinstance(value, str):
            outlandish = "sideways"
        elif name in ("perm", "axes", "kernel_shape", "strides", "dilations", "pads") and isinstance(
            value, list
        ):
            outlandish = [*value, value[0] if value else 40] if name != "axes" else [*value[1:], 40]
        elif name in ("to", "dtype"):
            # No element type has this number.
            outlandish = 4000
        if outlandish is not None:
            yield Violation("attribute-value", name, node.ins, {**node.attrs, name: outlandish})
    yield Violation("unknown-attribute", "any", node.ins, {**node.attrs, "not_an_attribute": 1})


def _break_outputs(builder: graph_builder.GraphBuilder, node: Node) -> Iterator[Violation]:
    """Declare the first output with another type."""
    out = node.outs[0]
    if out.dtype not in PLAIN or any(isinstance(side, str) for side in out.shape):
        return
    other = builder.rng.choice([dtype for dtype in PLAIN if dtype != out.dtype])
    yield Violation("output-dtype", "output 0", node.ins, node.attrs, (other, out.shape))
    if out.shape:
        axis = builder.rng.below(out.rank)
        shape = (*out.shape[:axis], out.shape[axis] + 1, *out.shape[axis + 1 :])
        yield Violation("output-shape", "output 0", node.ins, node.attrs, (out.dtype, shape))


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


def disruptive(request: random_graph.GenRequest, seed: int) -> Case:
    """Make the program of a seed, with the fault that is rarest in its batch."""
    builder, chosen = _BATCHES.make_at(request, seed)
    if chosen is None:
        raise BadInput(
            f"none of the operators wished for has a rule that the strategy {NAME} can break; let more in"
        )
    sound = random_graph.finish(builder, request, NAME, seed)
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
    model, inputs = writing.serialize(builder, outputs, title, request.types)
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
    request: random_graph.GenRequest, seed: int, tried: _Attempts
) -> tuple[graph_builder.GraphBuilder, tuple[Node, Violation] | None]:
    """Grow a valid program, and choose the node and the violation; None for these if nothing can be
    broken.
    """
    builder = random_graph.start(request, seed, NAME)
    random_graph.fill(builder, request)
    chosen = _choose_rarest(builder, tried)
    for _ in range(_MORE):
        if chosen is not None:
            break
        # No operator so far has rules that can be broken here.
        random_graph.fill(builder, replace(request, nodes=builder.size + 1))
        chosen = _choose_rarest(builder, tried)
    return builder, chosen


_BATCHES = batches.Batches(BATCH, _Attempts, _grow_breakable)


def _choose_rarest(builder: graph_builder.GraphBuilder, tried: _Attempts) -> tuple[Node, Violation] | None:
    """Choose the node and the violation that were tried least; ties are drawn."""
    there = operators()
    found: list[tuple[tuple[int, int, float], Node, Violation]] = []
    for node in builder.nodes:
        op = there.get(node.op) if not node.domain else None
        if op is None or op.family in _WITH_BODIES or not node.outs or not node.outs[0].name:
            continue
        for violation in list_violations(builder, node, op):
            count = tried.violations[node.op, violation.kind, violation.place]
            found.append(((count, tried.kinds[violation.kind], builder.rng.random()), node, violation))
    if not found:
        return None
    _, node, violation = min(found, key=itemgetter(0))
    tried.violations[node.op, violation.kind, violation.place] += 1
    tried.kinds[violation.kind] += 1
    return node, violation


def _break_node(builder: graph_builder.GraphBuilder, node: Node, violation: Violation) -> list[Tensor]:
    """Break the node, remove its readers, and return its outputs as they are declared."""
    dead = {out.name for out in node.outs}
    # Readers of the broken node would be wrong as well, and the fault no longer a single one.
    kept = []
    for other in builder.nodes:
        if other is not node and not dead.isdisjoint(tensor.name for tensor in iterate_reads(other)):
            dead |= {out.name for out in other.outs}
            for tensor in iterate_reads(other):
                tensor.reads -= 1
        else:
            kept.append(other)
    builder.nodes[:] = kept
    ins = [_make_input(builder, tensor) for tensor in violation.ins]
    # Counts of readers decide what is an output.
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


def _make_input(builder: graph_builder.GraphBuilder, tensor: Tensor | None) -> Tensor | None:
    """Return an input of a violation: the tensor itself, or a new leaf if it has no name."""
    if tensor is None or tensor.name:
        return tensor
    if tensor.values is not None:
        return builder.ints(tensor.values, tensor.dtype, tensor.shape)
    return builder.leaf(tensor.dtype, tensor.shape, kinds=("input", "input", "initializer"))
