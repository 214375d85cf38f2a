"""Rewrites that leave the meaning of an ONNX program as it is: what metamorphic testing asks a compiler to
bear.

Le, Afshari and Su, "Compiler validation via equivalence modulo inputs" (PLDI 2014) and Chen, Cheung and Yiu,
"Metamorphic testing" (1998): two programs with the same meaning are a test of their own, without anybody who
knows the result. Each rewrite is done wherever it fits in the main graph (`chosen` narrows it); bodies and
functions stay as they are. A program in which it fits nowhere is left alone.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from opsieve.gen.analysis.typed_graph import read_graph
from opsieve.gen.declarations.catalogue import OLDEST, commutes, form
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.gen.model.tensors import NUMBERS, Value, dtype_name, read_tensor, write_tensor
from opsieve.gen.rewrites.parts import reads

Choice = Callable[[str], bool]  # of the places of a rewrite, named by a value there
_INPUTS_OF_THEIR_OWN = 4  # the first IR version in which an initializer need not be an input


@dataclass(slots=True)
class Rewriting:
    """A model under rewriting: a copy, its nodes in order, the values that it is fed, and which places are
    chosen.

    `rewritten` is set by a rewrite that found a place.
    """

    model: ModelProto
    inputs: dict[str, Value]
    chosen: Choice
    nodes: list[NodeProto]
    types: dict[str, TypeProto]
    tensors: dict[str, Tensor]
    opset: int
    names: set[str] = field(default_factory=set)
    rewritten: bool = False

    @property
    def outputs(self) -> set[str]:
        """The names of what the graph gives."""
        return {info.name for info in self.model.graph.output}

    def fresh(self, name: str) -> str:
        """A name that nothing has, made of another."""
        number = 1
        while (made := f"{name}_{number}") in self.names:
            number += 1
        self.names.add(made)
        return made

    def is_standard(self, node: NodeProto) -> bool:
        """Whether a node is of an operator of ONNX's own domain, and none of the model's functions."""
        return node.domain in ("", "ai.onnx") and not any(
            (each.name, each.domain) == (node.op_type, node.domain) for each in self.model.functions
        )

    def node(
        self, operator: str, inputs: Iterable[str], outputs: Iterable[str], axis: int | None = None
    ) -> NodeProto:
        """A new node of ONNX's own domain."""
        made = list(outputs)
        return helper.make_node(operator, list(inputs), made, self.fresh(f"{operator}_{made[0]}"), axis=axis)

    def takes(self, operator: str, name: str) -> bool:
        """Whether an operator takes a value as its first input at the model's opset."""
        kind, had = self.types.get(name), form(operator, self.opset) if self.opset >= OLDEST else None
        if kind is None or had is None:
            return False
        tensor = self.tensors.get(name)
        return tensor is not None and tensor.dtype in had.dtypes(0)

    def finished(self) -> ModelProto:
        """The model with the nodes as they are now."""
        nodes = [NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)
        return self.model


Rewrite = Callable[[Rewriting], None]


def rewriting(model: ModelProto, inputs: Mapping[str, Value], chosen: Choice) -> Rewriting:
    """A copy of a model, ready to be rewritten."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    opset = next((entry.version for entry in copy.opset_import if entry.domain in ("", "ai.onnx")), 0)
    declared = {info.name: info.type for info in (*graph.value_info, *graph.output, *graph.input)}
    tensors = {tensor.name: tensor for tensor in read_graph(copy, inputs).tensors()}
    types = {
        name: kind
        for name, tensor in tensors.items()
        if (kind := _type(declared.get(name), tensor)) is not None
    }
    return Rewriting(copy, dict(inputs), chosen, list(graph.node), types, tensors, opset, set(_names(copy)))


def _type(declared: TypeProto | None, tensor: Tensor) -> TypeProto | None:
    """The type of a value as the model declares it, else as its node's declaration infers it; None where
    nobody knows.
    """
    if declared is not None and declared.WhichOneof("value"):
        return declared
    if tensor.dtype not in NUMBERS:
        return None
    return helper.make_tensor_type_proto(
        NUMBERS[tensor.dtype], [size if isinstance(size, int) else None for size in tensor.shape]
    )


def _names(model: ModelProto) -> Iterator[str]:
    yield from _graph_names(model.graph)
    for function in model.functions:
        yield from (*function.input, *function.output)
        for node in all_nodes(function.node):
            yield from (node.name, *node.output)


def _graph_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (info.name for info in (*graph.input, *graph.output, *graph.value_info))
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
        for body in bodies(node):
            yield from _graph_names(body)


def insert_identities(at: Rewriting) -> None:
    """An Identity behind every input and every result: who reads the value reads its copy, an output of the
    graph is one.
    """
    given, made = at.outputs, list[NodeProto]()
    renamed: dict[str, str] = {}

    def copied(name: str) -> None:
        renamed[name] = at.fresh(name)
        made.append(at.node("Identity", [name], [renamed[name]]))

    for info in at.model.graph.input:
        if info.name in at.inputs and at.takes("Identity", info.name) and at.chosen(info.name):
            copied(info.name)
    for node in at.nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        made.append(node)
        for place, name in enumerate(node.output):
            if (
                node.op_type == "Constant"
                or not name
                or not at.takes("Identity", name)
                or not at.chosen(name)
            ):
                continue
            if name in given:
                node.output[place] = at.fresh(name)
                made.append(at.node("Identity", [node.output[place]], [name]))
            else:
                copied(name)
    at.rewritten = len(made) > len(at.nodes)
    at.nodes = made


def duplicate(at: Rewriting) -> None:
    """A node whose result is read more than once is computed once for each reader."""
    uses: dict[str, int] = dict.fromkeys(at.outputs, 1)
    for node in at.nodes:
        for name in reads(node):
            uses[name] = uses.get(name, 0) + 1
    copied = {
        name: node
        for node in at.nodes
        if node.op_type != "Constant" and not any(True for _ in bodies(node))
        for name in node.output
        if uses.get(name, 0) > 1 and at.chosen(name)
    }
    made: list[NodeProto] = []
    seen = set(at.outputs)
    for node in at.nodes:
        for place, name in enumerate(node.input):
            if name in copied and name in seen:
                copy = NodeProto()
                copy.CopyFrom(copied[name])
                copy.name = at.fresh(copy.name or name)
                copy.output[:] = [each and at.fresh(each) for each in copy.output]
                node.input[place] = copy.output[list(copied[name].output).index(name)]
                made.append(copy)
                at.rewritten = True
            seen.add(name)
        seen.update(reads(node))
        made.append(node)
    at.nodes = made


def lift_constants(at: Rewriting) -> None:
    """Initializers and Constants become inputs that are fed the same values."""
    graph = at.model.graph
    there = {info.name for info in graph.input}
    kept = [
        tensor
        for tensor in graph.initializer
        if tensor.name in there or not at.chosen(tensor.name) or not _lift(at, tensor, tensor.name)
    ]
    left = []
    for node in at.nodes:
        value = _constant(node) if node.op_type == "Constant" and at.is_standard(node) else None
        name = node.output[0] if node.output else ""
        # An input of the graph cannot be an output of it everywhere; a constant can.
        if value is None or name in at.outputs or not at.chosen(name) or not _lift(at, value, name):
            left.append(node)
    at.rewritten = len(kept) < len(graph.initializer) or len(left) < len(at.nodes)
    tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
    at.nodes = left


def _constant(node: NodeProto) -> onnx.TensorProto | None:
    found = [
        each.t for each in node.attribute if each.type == AttributeProto.TENSOR and not each.ref_attr_name
    ]
    return found[0] if len(found) == len(node.attribute) == 1 else None


def _lift(at: Rewriting, tensor: onnx.TensorProto, name: str) -> bool:
    try:
        array = read_tensor(tensor)
    except BadInput:  # of a type that numpy lacks
        return False
    at.model.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    at.inputs[name] = array
    return True


def freeze_inputs(at: Rewriting) -> None:
    """Inputs become initializers that hold what they are fed: now everything can be computed beforehand."""
    graph = at.model.graph
    if at.model.ir_version < _INPUTS_OF_THEIR_OWN:
        return
    kept = []
    for info in graph.input:
        value = at.inputs.get(info.name)
        fits = isinstance(value, np.ndarray) and dtype_name(value) in NUMBERS and info.name not in at.outputs
        if not fits or not at.chosen(info.name):
            kept.append(ValueInfoProto.FromString(info.SerializeToString()))
            continue
        assert isinstance(value, np.ndarray)
        graph.initializer.append(write_tensor(value, info.name))
        del at.inputs[info.name]
        at.rewritten = True
    del graph.input[:]
    graph.input.extend(kept)


def swap_operands(at: Rewriting) -> None:
    """The first two operands of what is commutative change places."""
    if at.opset < OLDEST:  # early forms broadcast the second operand alone
        return
    for node in at.nodes:
        if not at.is_standard(node) or not commutes(node.op_type) or len(node.input) < 2:
            continue
        if node.input[0] != node.input[1] and at.chosen(node.output[0]):
            node.input[0], node.input[1] = node.input[1], node.input[0]
            at.rewritten = True


def reorder(at: Rewriting) -> None:
    """The nodes stand in another order in which each comes after what it reads: of those that could be next,
    the last one (Kahn).
    """
    maker = {name: place for place, node in enumerate(at.nodes) for name in node.output if name}
    needs = [{maker[name] for name in reads(node) if name in maker} for node in at.nodes]
    readers: dict[int, list[int]] = {}
    for place, needed in enumerate(needs):
        for other in needed:
            readers.setdefault(other, []).append(place)
    left = [len(needed) for needed in needs]
    ready = [_rank(at, place) for place, count in enumerate(left) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)[1]
        order.append(place)
        for reader in readers.get(place, ()):
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, _rank(at, reader))
    at.rewritten = order != list(range(len(at.nodes)))
    at.nodes = [at.nodes[place] for place in order]


def _rank(at: Rewriting, place: int) -> tuple[int, int]:
    """What comes first: the last of the chosen nodes, then the others as they stand."""
    node = at.nodes[place]
    name = next(filter(None, node.output), "")
    return (-place, place) if at.chosen(name) else (place, place)


def add_outputs(at: Rewriting) -> None:
    """Every result on the way is an output too, so that nothing may be fused away."""
    graph = at.model.graph
    there = at.outputs | {info.name for info in graph.input}
    for node in at.nodes:
        for name in node.output:
            if node.op_type != "Constant" and name in at.types and name not in there and at.chosen(name):
                graph.output.append(ValueInfoProto(name=name, type=at.types[name]))
                there.add(name)
                at.rewritten = True
