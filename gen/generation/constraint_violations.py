"""Ways to make one node of a sound program wrong: each breaks one thing that the operator's page or its
declaration asks for.

`violations` lists what can be broken at a node; a `Violation` has a kind (which sort of rule), a place (which
relation, input or attribute) and the node as it would be. Relations of a declaration's `requires` are broken
by trying: one size, element or attribute is moved a little or far until exactly one relation is false and all
others still hold. Sources: HirFuzz, section 3.1.5 (disruptive generation), which breaks types and shapes of
calls; the further kinds are rules of ONNX's IR page (arity, attributes, declared types).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onnx.defs import OpSchema

from opsieve.gen.declarations.catalogue import OpsetSchema, form
from opsieve.gen.declarations.declaration import Operator, RankEnds
from opsieve.gen.declarations.tensor import LARGEST, LEAST, PLAIN, Attributes, Number, Tensor
from opsieve.gen.graph.graph import Node
from opsieve.gen.graph.graph_builder import GraphBuilder

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


def list_violations(builder: GraphBuilder, node: Node, op: Operator) -> Iterator[Violation]:
    """Yield a violation for each kind and place at a node of ONNX's own domain."""
    had = form(node.op, builder.opset)
    if had is None:
        return
    yield from _break_relations(node, op)
    yield from _break_dtypes(builder, node, had)
    yield from _break_ranks(node, op)
    yield from _break_arity(node, had)
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


def _break_arity(node: Node, had: OpsetSchema) -> Iterator[Violation]:
    """Leave out a required input, or add one too many."""
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


def _move_numbers(node: Node) -> Iterator[tuple[str, Ins, Attributes]]:
    """Yield the node with one number moved: a size, an element of a shape, or an attribute."""
    for position, tensor in enumerate(node.ins):
        if tensor is None:
            continue
        if tensor.values is not None:
            for at, value in enumerate(tensor.values[:6]):
                # By 1 to hit an off-by-one check, by 50 to leave any size that programs have.
                for other in (value + 1, value - 1, value + 50, value - 50):
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
    if values is not None and not all(LEAST[dtype] <= value <= LARGEST[dtype] for value in values):
        values = None
    return dtype, tensor.shape, values


def _break_dtypes(builder: GraphBuilder, node: Node, had: OpsetSchema) -> Iterator[Violation]:
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
            outlandish = 4000
        if outlandish is not None:
            yield Violation("attribute-value", name, node.ins, {**node.attrs, name: outlandish})
    yield Violation("unknown-attribute", "any", node.ins, {**node.attrs, "not_an_attribute": 1})


def _break_outputs(builder: GraphBuilder, node: Node) -> Iterator[Violation]:
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
