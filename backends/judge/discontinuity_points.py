"""Find where a model jumps, and build the models that the rule `jump` (discontinuities.py) runs instead of
it.

Operators declare whether they jump (`Operator.rounding`). This module only makes models; it runs nothing
else.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from opsieve.backends.judge.pieces import get_constants
from opsieve.backends.observation import Observation
from opsieve.gen.declarations import catalogue, properties
from opsieve.gen.irs.onnx import edits, view
from opsieve.gen.model import structure, tensors

Values = dict[str, Any]
# Observes a model: "candidate", "native" (the reference in the model's own types) or "float64", the model and
# its feeds.
Ask = Callable[[str, ModelProto, Values], Observation]
# Suffixes that no generated name ends with.
MADE, SHIFT = "__made", "__shift"
# Each point costs runs of the candidate and the reference. A program with more of them is not excused.
_MAX_POINTS = 64
_FLOATS = frozenset([TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE])


@dataclass(frozen=True, slots=True)
class DiscontinuityInputs:
    """Tensors that feed jumps on the way to some outputs, in the order of the graph.

    `decided` tells whether their values determine the side of each jump. `scales` are constants by which
    results are scaled before they are rounded to integers: the rounding of these quotients decides ties.
    """

    names: tuple[str, ...]
    decided: bool
    scales: tuple[str, ...] = ()


def find_points(model: ModelProto, outputs: Iterable[str]) -> DiscontinuityInputs:
    """Find where the computation of the outputs can jump: inputs of jumping nodes with a rounding error of
    their own.
    """
    graph = model.graph
    # Nodes inside a function or a body cannot be read, so the node around them counts as the jump.
    jumping = {(f.domain, f.name) for f in model.functions if _has_discontinuous(f.node)}
    exact = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    needed = find_upstream(graph, outputs)
    found: dict[str, None] = {}
    decided = True
    for node in graph.node:
        read = view.list_captured(node)
        if any(name in needed for name in node.output):
            inside = (node.domain, node.op_type) in jumping or any(
                _has_discontinuous(body.node) for body in structure.bodies(node)
            )
            if inside or properties.Rounding.COMPUTES in get_rounding(node):
                decided = False
                found.update((name, None) for name in read if name in needed)
            elif _is_discontinuous(node):
                found.update((name, None) for name in read if name not in exact)
        # A Reshape of an input has no rounding error, so a jump behind it is the same for every compiler.
        if properties.Rounding.EXACT in get_rounding(node) and all(name in exact for name in read):
            exact.update(node.output)
    held = get_constants(model)
    made = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    names = [name for name in found if name in made and name not in held]
    scales = [
        name
        for node in graph.node
        if properties.Rounding.REQUANTISES in get_rounding(node)
        and any(name in needed for name in node.output)
        for name in node.input
        if name in held and held[name].data_type in _FLOATS
    ]
    return DiscontinuityInputs(
        tuple(names[:_MAX_POINTS]), decided and len(names) <= _MAX_POINTS, tuple(dict.fromkeys(scales))
    )


def sever(model: ModelProto, names: Sequence[str], outputs: Iterable[str]) -> ModelProto:
    """Return the model with each tensor of `names` fed from outside.

    The model's own result for each becomes an output called `<name>__made`, beside the wanted `outputs`.
    """
    copy = structure.copied(model)
    _rename_made(copy.graph, frozenset(names))
    _keep_outputs(copy.graph, outputs, names)
    copy.graph.input.extend(ValueInfoProto(name=name) for name in names)
    return copy


def cut_prefix(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """Return the part of the model that makes the tensors of `names`, which are its outputs."""
    copy = edits.tap_model(model, names)
    graph = copy.graph
    needed = find_upstream(graph, names)
    edits.keep(graph.node, lambda node: any(name in needed for name in node.output))
    edits.keep(graph.output, lambda value: value.name in names)
    return copy


def feed_constants(model: ModelProto, inputs: Values, names: Sequence[str]) -> tuple[ModelProto, Values]:
    """Return the model with the constants of `names` as inputs, and its inputs with their values."""
    held, copy = get_constants(model), structure.copied(model)
    for name in names:
        copy.graph.input.append(
            helper.make_tensor_value_info(name, held[name].data_type, list(held[name].dims))
        )
    edits.keep(copy.graph.node, lambda node: not set(names) & set(node.output))
    edits.keep(copy.graph.initializer, lambda tensor: tensor.name not in names)
    return copy, {**inputs, **{name: tensors.read_tensor(held[name]) for name in names}}


def add_shifts(model: ModelProto, names: Sequence[str], outputs: Iterable[str]) -> ModelProto:
    """Return the model with `<name>__shift`, fed from outside, added to each tensor of `names` where it is
    made.
    """
    copy = structure.copied(model)
    graph = copy.graph
    _rename_made(graph, frozenset(names))
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        for made in node.output:
            if made.endswith(MADE) and made.removesuffix(MADE) in names:
                name = made.removesuffix(MADE)
                nodes.append(helper.make_node("Add", [made, name + SHIFT], [name]))
    edits.replace_items(graph.node, nodes)
    for name in names:
        graph.input.append(helper.make_tensor_value_info(name + SHIFT, TensorProto.DOUBLE, None))
    _keep_outputs(graph, outputs, names)
    return copy


def get_rounding(node: NodeProto) -> properties.Rounding:
    """Return how a node reacts to a rounding error; an operator of another domain counts as ONNX's of the
    same name.
    """
    operator = catalogue.find_operator(node.domain, node.op_type) or catalogue.find_operator("", node.op_type)
    if operator is None:
        return properties.Rounding.NONE
    if isinstance(operator.rounding, properties.Rounding):
        return operator.rounding
    # A function's caller knows the others.
    given = (attribute for attribute in node.attribute if not attribute.ref_attr_name)
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in given}
    return operator.rounding(attributes, len(node.output))


def _is_discontinuous(node: NodeProto) -> bool:
    return properties.Rounding.JUMPS in get_rounding(node)


def _has_discontinuous(nodes: Iterable[NodeProto]) -> bool:
    return any(map(_is_discontinuous, structure.all_nodes(nodes)))


def find_upstream(graph: GraphProto, outputs: Iterable[str]) -> set[str]:
    """Return the values on which the outputs depend, themselves included."""
    needed = set(outputs)
    # Nodes are in topological order, so one pass from the end finds everything.
    for node in reversed(graph.node):
        if any(name in needed for name in node.output):
            needed.update(view.list_captured(node))
    return needed - {""}


def _rename_made(graph: GraphProto, names: frozenset[str]) -> None:
    for node in graph.node:
        for index, name in enumerate(node.output):
            if name in names:
                node.output[index] = name + MADE


def _keep_outputs(graph: GraphProto, outputs: Iterable[str], names: Sequence[str]) -> None:
    wanted = set(outputs)
    edits.keep(graph.output, lambda value: value.name in wanted)
    graph.output.extend(ValueInfoProto(name=name + MADE) for name in names)
    # The declared type may not hold for a value that is fed from outside.
    edits.keep(graph.value_info, lambda value: value.name not in names)
