"""Rewrites that keep the meaning of an ONNX program, for metamorphic testing.

Le, Afshari and Su, "Compiler validation via equivalence modulo inputs" (PLDI 2014) and Chen, Cheung and Yiu,
"Metamorphic testing" (1998): two programs with the same meaning test a compiler without a known result. A
rewrite applies wherever it fits in the main graph (`chosen` selects places); bodies and functions are
unchanged.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from opsieve.gen.analysis.typed_graph import read_graph
from opsieve.gen.declarations import catalogue, properties
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.ir import Rewriter, Rewritten
from opsieve.gen.irs.onnx import edits, view
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.view import FreshNames
from opsieve.gen.model.structure import bodies, copied, list_names, model_nodes
from opsieve.gen.model.tensors import NUMBERS, Value, dtype_name, read_tensor, write_tensor

# Selects places of a rewrite; each is named by a value there.
Choice = Callable[[str], bool]
# The first IR version in which an initializer need not be an input
_INPUTS_OF_THEIR_OWN = 4


@dataclass(slots=True)
class Rewriting:
    """A model during rewriting: a copy, its nodes in order, the fed values, and the chosen places.

    A rewrite that finds a place sets `rewritten`.
    """

    model: ModelProto
    inputs: dict[str, Value]
    chosen: Choice
    nodes: list[NodeProto]
    types: dict[str, TypeProto]
    tensors: dict[str, Tensor]
    opset: int
    names: FreshNames
    rewritten: bool = False

    @property
    def outputs(self) -> set[str]:
        """The names of the graph's outputs."""
        return {info.name for info in self.model.graph.output}

    def fresh(self, name: str) -> str:
        """Return an unused name, derived from another one."""
        return self.names.fresh(f"{name}_")

    def is_standard(self, node: NodeProto) -> bool:
        """Return whether a node's operator is from ONNX's own domain and not a function of the model."""
        return node.domain in ("", "ai.onnx") and not any(
            (each.name, each.domain) == (node.op_type, node.domain) for each in self.model.functions
        )

    def make_node(
        self, operator: str, inputs: Iterable[str], outputs: Iterable[str], axis: int | None = None
    ) -> NodeProto:
        """Return a new node of ONNX's own domain."""
        made = list(outputs)
        return helper.make_node(operator, list(inputs), made, self.fresh(f"{operator}_{made[0]}"), axis=axis)

    def takes(self, operator: str, name: str) -> bool:
        """Return whether an operator takes a value as its first input at the model's opset."""
        # Declarations begin at `catalogue.OLDEST`; below it nothing is known about the form of an operator.
        kind, had = (
            self.types.get(name),
            catalogue.form(operator, self.opset) if self.opset >= catalogue.OLDEST else None,
        )
        if kind is None or had is None:
            return False
        tensor = self.tensors.get(name)
        return tensor is not None and tensor.dtype in had.dtypes(0)

    def finish(self) -> ModelProto:
        """Return the model with the current nodes."""
        edits.replace_items(self.model.graph.node, self.nodes)
        return self.model


Rewrite = Callable[[Rewriting], None]


def _get_type(declared: TypeProto | None, tensor: Tensor) -> TypeProto | None:
    """Return the type of a value as the model declares it, or as its node's declaration infers it; None if
    unknown.
    """
    if declared is not None and declared.WhichOneof("value"):
        return declared
    if tensor.dtype not in NUMBERS:
        return None
    return helper.make_tensor_type_proto(
        NUMBERS[tensor.dtype], [size if isinstance(size, int) else None for size in tensor.shape]
    )


def insert_identities(at: Rewriting) -> None:
    """Put an Identity behind every input and result, read by all readers."""
    given, made = at.outputs, list[NodeProto]()
    renamed: dict[str, str] = {}

    def add_identity(name: str) -> None:
        renamed[name] = at.fresh(name)
        made.append(at.make_node("Identity", [name], [renamed[name]]))

    for info in at.model.graph.input:
        if info.name in at.inputs and at.takes("Identity", info.name) and at.chosen(info.name):
            add_identity(info.name)
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
            # An output keeps its name, because people and tests know it by that: its node gets a new one.
            if name in given:
                node.output[place] = at.fresh(name)
                made.append(at.make_node("Identity", [node.output[place]], [name]))
            else:
                add_identity(name)
    at.rewritten = len(made) > len(at.nodes)
    at.nodes = made


def duplicate_results(at: Rewriting) -> None:
    """Compute a result that is read several times once for each reader."""
    uses: dict[str, int] = dict.fromkeys(at.outputs, 1)
    for node in at.nodes:
        for name in view.list_captured(node):
            uses[name] = uses.get(name, 0) + 1
    doubled = {
        name: node
        for node in at.nodes
        if node.op_type != "Constant" and not any(True for _ in bodies(node))
        for name in node.output
        if uses.get(name, 0) > 1 and at.chosen(name)
    }
    made: list[NodeProto] = []
    # The first reader keeps the original; an output counts as the first one.
    seen = set(at.outputs)
    for node in at.nodes:
        for place, name in enumerate(node.input):
            if name in doubled and name in seen:
                copy = copied(doubled[name])
                copy.name = at.fresh(copy.name or name)
                copy.output[:] = [each and at.fresh(each) for each in copy.output]
                node.input[place] = copy.output[list(doubled[name].output).index(name)]
                made.append(copy)
                at.rewritten = True
            seen.add(name)
        seen.update(view.list_captured(node))
        made.append(node)
    at.nodes = made


def lift_constants(at: Rewriting) -> None:
    """Turn initializers and Constants into inputs that are fed the same values."""
    graph = at.model.graph
    there = {info.name for info in graph.input}
    kept = [
        tensor
        for tensor in graph.initializer
        if tensor.name in there or not at.chosen(tensor.name) or not _lift_tensor(at, tensor, tensor.name)
    ]
    left = []
    for node in at.nodes:
        value = _get_constant(node) if node.op_type == "Constant" and at.is_standard(node) else None
        name = node.output[0] if node.output else ""
        # Some runtimes refuse a graph whose input is also its output; a constant may be one.
        if value is None or name in at.outputs or not at.chosen(name) or not _lift_tensor(at, value, name):
            left.append(node)
    at.rewritten = len(kept) < len(graph.initializer) or len(left) < len(at.nodes)
    edits.replace_items(graph.initializer, kept)
    at.nodes = left


def _get_constant(node: NodeProto) -> onnx.TensorProto | None:
    """Return the tensor of a Constant node, if it has one."""
    found = [
        each.t for each in node.attribute if each.type == AttributeProto.TENSOR and not each.ref_attr_name
    ]
    return found[0] if len(found) == len(node.attribute) == 1 else None


def _lift_tensor(at: Rewriting, tensor: onnx.TensorProto, name: str) -> bool:
    """Turn a tensor into an input; False if its values cannot be read."""
    try:
        array = read_tensor(tensor)
    except BadInput:
        # numpy has no such type, so the tensor cannot be fed.
        return False
    at.model.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    at.inputs[name] = array
    return True


def freeze_inputs(at: Rewriting) -> None:
    """Turn inputs into initializers with their fed values, so that everything can be precomputed."""
    graph = at.model.graph
    if at.model.ir_version < _INPUTS_OF_THEIR_OWN:
        return
    kept = []
    for info in graph.input:
        value = at.inputs.get(info.name)
        # Sequences and absent optionals have no initializer.
        if (
            not isinstance(value, np.ndarray)
            or dtype_name(value) not in NUMBERS
            or info.name in at.outputs
            or not at.chosen(info.name)
        ):
            kept.append(info)
            continue
        graph.initializer.append(write_tensor(value, info.name))
        del at.inputs[info.name]
        at.rewritten = True
    edits.replace_items(graph.input, kept)


def swap_operands(at: Rewriting) -> None:
    """Exchange the first two operands of commutative operators."""
    # Before opset 7, which is older than the declarations, only the second operand is broadcast.
    if at.opset < catalogue.OLDEST:
        return
    for node in at.nodes:
        if not at.is_standard(node) or not catalogue.commutes(node.op_type) or len(node.input) < 2:
            continue
        # Equal operands would leave the model as it is.
        if node.input[0] != node.input[1] and at.chosen(node.output[0]):
            node.input[0], node.input[1] = node.input[1], node.input[0]
            at.rewritten = True


def reorder_nodes(at: Rewriting) -> None:
    """Sort the nodes in another legal order: among possible next nodes, take the last (Kahn)."""
    graph = view.Graph(view.Subject(at.model, at.inputs, {}))
    left = [len(needed) for needed in graph.producers]
    ready = [_rank_place(at, place) for place, count in enumerate(left) if not count]
    # A heap, since a model may have 100,000 nodes.
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)[1]
        order.append(place)
        for reader in graph.consumers[place]:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, _rank_place(at, reader))
    at.rewritten = order != list(range(len(at.nodes)))
    at.nodes = [at.nodes[place] for place in order]


def _rank_place(at: Rewriting, place: int) -> tuple[int, int]:
    """Return the sort key of a node: the last chosen nodes first, then the others in order."""
    name = next(filter(None, at.nodes[place].output), "")
    return (-place, place) if at.chosen(name) else (place, place)


def add_outputs(at: Rewriting) -> None:
    """Make every intermediate result an output, so that fusions must keep it."""
    graph = at.model.graph
    there = at.outputs | {info.name for info in graph.input}
    for node in at.nodes:
        for name in node.output:
            if node.op_type != "Constant" and name in at.types and name not in there and at.chosen(name):
                graph.output.append(ValueInfoProto(name=name, type=at.types[name]))
                there.add(name)
                at.rewritten = True


def _apply_rewrite(
    rewrite: Rewrite, program: OnnxProgram, inputs: Mapping[str, Value], seed: str
) -> Rewritten | None:
    """Apply a rewrite, in about half of the places if there is a seed."""
    model = program.proto
    if any(map(_is_random, model_nodes(model))):
        return None

    def is_chosen(place: str) -> bool:
        # By a hash of the name: a reduction that drops other values leaves the choice for this one.
        return not seed or hashlib.sha256(f"{seed} {place}".encode()).digest()[0] % 2 == 0

    copy = copied(model)
    graph = copy.graph
    opset = view.opset_of(copy)
    declared = {info.name: info.type for info in (*graph.value_info, *graph.output, *graph.input)}
    tensors = {tensor.name: tensor for tensor in read_graph(copy, inputs).tensors()}
    types = {
        name: kind
        for name, tensor in tensors.items()
        if (kind := _get_type(declared.get(name), tensor)) is not None
    }
    at = Rewriting(
        copy,
        dict(inputs),
        is_chosen,
        list(graph.node),
        types,
        tensors,
        opset,
        FreshNames(list_names(copy), 1),
    )
    rewrite(at)
    if not at.rewritten:
        return None
    return Rewritten(OnnxProgram(at.finish().SerializeToString(deterministic=True), program.name), at.inputs)


def _is_random(node: NodeProto) -> bool:
    """Return whether a program's results depend on drawn numbers, whose order a rewrite may change."""
    operator = catalogue.find_operator(node.domain, node.op_type)
    undefined = () if operator is None else operator.undefined
    # Dropout draws in training only, which its third input switches on.
    return properties.random_numbers in undefined or (properties.dropout in undefined and len(node.input) > 2)


REWRITES: Mapping[str, Rewriter[OnnxProgram]] = {
    "insert-identities": partial(_apply_rewrite, insert_identities),
    "duplicate": partial(_apply_rewrite, duplicate_results),
    "lift-constants": partial(_apply_rewrite, lift_constants),
    "freeze-inputs": partial(_apply_rewrite, freeze_inputs),
    "swap-operands": partial(_apply_rewrite, swap_operands),
    "reorder": partial(_apply_rewrite, reorder_nodes),
    "add-outputs": partial(_apply_rewrite, add_outputs),
}
