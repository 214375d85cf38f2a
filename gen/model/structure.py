"""Check a model's structure without running any compiler's code.

Every value of a graph is defined once, before it is used, and every tensor holds the data that it declares.
The rules of scope are those of ONNX's own checker (a body sees the names around it, may hide them by its
inputs, and may not define them again as outputs), whose C++ could crash on a hostile model and therefore runs
in a worker (`opsieve.gen.irs.onnx.model_file.check`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice
from typing import TypeVar

import onnx

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import BUDGET
from opsieve.gen.model.tensors import DTYPES, tensor_problem

_M = TypeVar("_M", onnx.ModelProto, onnx.GraphProto, onnx.NodeProto, onnx.AttributeProto, onnx.TypeProto)


def check_structure(model: onnx.ModelProto) -> None:
    """BadInput, naming the place, when the model's structure is broken. Takes time linear in the model's
    size.
    """
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise BadInput("it holds no graph")
    if model.ir_version < 1:
        raise BadInput("it has no IR version")
    # ONNX's IR document: opset_import is required since IR version 3.
    if model.ir_version >= 3 and not model.opset_import:
        raise BadInput("it names no operator set")
    for entry in chain(model.opset_import, *(function.opset_import for function in model.functions)):
        _text(entry.domain, "an operator set's domain")
        # onnx's own functions take 32-bit versions.
        if abs(entry.version) >= 2**31:
            raise BadInput(f"it imports version {entry.version} of an operator set")
    # Counted first, since everything after it walks through all nodes.
    nodes = len(model.graph.node) if len(model.graph.node) > BUDGET.nodes else 0
    if nodes or next(islice(model_nodes(model), BUDGET.nodes, None), None) is not None:
        raise BadInput(
            f"it has {f'{nodes:,}' if nodes else f'more than {BUDGET.nodes:,}'} nodes, and {BUDGET.nodes:,}"
            " are read"
        )
    _check_functions(model)
    _check_graph(model.graph, frozenset(), 1, model.ir_version)


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a model: in initializers, attributes, bodies, functions and training graphs."""
    yield from _graph_tensors(model.graph, 1)
    for function in model.functions:
        yield from _node_tensors(function.node, 1)
        for attribute in function.attribute_proto:
            yield from _attribute_tensors(attribute, 1)
    for training in model.training_info:
        yield from _graph_tensors(training.initialization, 1)
        yield from _graph_tensors(training.algorithm, 1)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that a node holds in its attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def copied(message: _M) -> _M:
    """Return a copy of a part of a model that may be changed."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


@dataclass(frozen=True, slots=True)
class Ports:
    """How a node hands values to its bodies and takes them back, by position.

    The operands behind the first `operands` are the inputs of the body behind its first `inputs` (a Loop's
    turn and condition). The first `states` of them are replaced by the body's results from turn to turn, a
    Scan iterates over the others. The node's results are those of the body behind its first `results` (a
    Loop's condition): the states first, then values that are stacked, one from each turn.
    """

    operands: int
    inputs: int
    results: int
    states: int


def read_ports(operator: str, operands: int, scanned: int) -> Ports:
    """Return how an operator with bodies binds that many operands; `scanned` is `num_scan_inputs` of a Scan.

    An If, a SequenceMap and operators of others have no states.
    """
    if operator == "Loop":
        return Ports(2, 2, 1, max(0, operands - 2))
    return Ports(0, 0, 0, max(0, operands - scanned)) if operator == "Scan" else Ports(operands, 0, 0, 0)


def ports_of(node: onnx.NodeProto) -> Ports:
    """Return how a node with bodies binds its operands."""
    scanned = next((item.i for item in node.attribute if item.name == "num_scan_inputs"), 0)
    return read_ports(node.op_type, len(node.input), scanned)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes, each followed by those of its bodies."""
    for node in nodes:
        yield node
        if node.attribute:
            for body in bodies(node):
                yield from all_nodes(body.node)


def all_graphs(graph: onnx.GraphProto, *functions: onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and every body in it, then the bodies in functions."""
    yield graph
    for node in all_nodes(chain(graph.node, *(function.node for function in functions))):
        yield from bodies(node)


def model_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Return the nodes of the main graph, of bodies and of functions."""
    return all_nodes(chain(model.graph.node, *(function.node for function in model.functions)))


def list_names(model: onnx.ModelProto) -> set[str]:
    """Return the names of inputs, outputs, initializers, values and nodes, of bodies and functions too."""
    found: set[str] = set()
    for graph in all_graphs(model.graph, *model.functions):
        for part in (graph.input, graph.output, graph.value_info, graph.initializer):
            found.update(item.name for item in part)
        found.update(sparse.values.name for sparse in graph.sparse_initializer)
    for node in model_nodes(model):
        found.update((node.name, *node.input, *node.output))
    return found.union(*((*function.input, *function.output) for function in model.functions))


def _graph_tensors(graph: onnx.GraphProto, depth: int) -> Iterator[onnx.TensorProto]:
    if depth > BUDGET.depth:
        raise BadInput(f"its graphs are nested more than {BUDGET.depth} deep")
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _node_tensors(graph.node, depth)


def _node_tensors(nodes: Iterable[onnx.NodeProto], depth: int) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute, depth)


def _attribute_tensors(attribute: onnx.AttributeProto, depth: int) -> Iterator[onnx.TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for item in (*sparse, *attribute.sparse_tensors):
        yield item.values
        yield item.indices
    for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
        yield from _graph_tensors(graph, depth + 1)


def _check_graph(graph: onnx.GraphProto, outer: frozenset[str], depth: int, ir_version: int) -> None:
    if depth > BUDGET.depth:
        raise BadInput(f"its graphs are nested more than {BUDGET.depth} deep")
    _text(graph.name, "a graph's name")
    here: set[str] = set()
    for info in graph.input:
        name = _text(info.name, "a graph input's name")
        if name in here:
            raise BadInput(f"the graph input {shown(name)} is defined twice")
        here.add(name)
        _check_type(info.type, f"the graph input {shown(name)}")
    constants: set[str] = set()
    for tensor in graph.initializer:
        _check_initializer(tensor, constants)
    for sparse in graph.sparse_initializer:
        _check_initializer(sparse.values, constants)
        _check_tensor(sparse.indices, f"the indices of {shown(sparse.values.name)}")
        if any(size < 0 for size in sparse.dims):
            raise BadInput(f"the sparse initializer {shown(sparse.values.name)} has a negative dimension")
    # Since IR version 4 an initializer need not be a graph input.
    if ir_version < 4 and not constants <= here:
        raise BadInput(
            f"the initializer {shown(min(constants - here))} must also be a graph input in IR version"
            f" {ir_version}"
        )
    here |= constants
    for info in graph.value_info:
        _text(info.name, "a value's name")
        _check_type(info.type, f"the value {shown(info.name)}")
    here |= _check_nodes(graph.node, frozenset(here), outer, depth, ir_version)
    for info in graph.output:
        if _text(info.name, "a graph output's name") not in here and info.name not in outer:
            raise BadInput(f"the graph output {shown(info.name)} is made by no node")
        _check_type(info.type, f"the graph output {shown(info.name)}")


def _check_nodes(
    nodes: Iterable[onnx.NodeProto], known: frozenset[str], outer: frozenset[str], depth: int, ir_version: int
) -> set[str]:
    """Check that each name is defined once and before its use; returns the names that the nodes define."""
    made: set[str] = set()
    visible = set(outer | known)
    for index, node in enumerate(nodes):
        operator = _text(node.op_type, "an operator's name")
        _text(node.domain, "an operator's domain")
        if not operator:
            raise BadInput(f"{_where(index, node)} names no operator")
        for name in node.input:
            if _text(name, "a value's name") and name not in visible:
                raise BadInput(f"{_where(index, node)} uses {shown(name)}, which {_absence(name, nodes)}")
        if node.attribute:
            _check_attributes(node, _where(index, node), visible, depth, ir_version)
        for name in node.output:
            if not _text(name, "a value's name"):
                continue
            if name in visible:
                raise BadInput(f"{_where(index, node)} defines {shown(name)}, which is defined already")
            visible.add(name)
            made.add(name)
    return made


def _where(index: int, node: onnx.NodeProto) -> str:
    """Describe a node for a message."""
    return f"node {index} ({shown(node.op_type, 40)}{' ' + shown(node.name) if node.name else ''})"


def _absence(name: str, nodes: Iterable[onnx.NodeProto]) -> str:
    """Explain why a name is undefined. Linear, but called only once, for the message that ends the check."""
    if any(name in node.output for node in nodes):
        return "is made only later: the graph is cyclic or not in order"
    return "is nowhere defined"


def _check_attributes(
    node: onnx.NodeProto, where: str, visible: set[str], depth: int, ir_version: int
) -> None:
    for attribute in node.attribute:
        _text(attribute.name, "an attribute's name")
        tensors = ([attribute.t] if attribute.HasField("t") else []) + list(attribute.tensors)
        for tensor in tensors:
            _check_tensor(tensor, f"the tensor {shown(attribute.name)} of {where}")
        sparse = ([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []) + list(
            attribute.sparse_tensors
        )
        for item in sparse:
            _check_tensor(item.values, f"the sparse tensor {shown(attribute.name)} of {where}")
            _check_tensor(item.indices, f"the sparse tensor {shown(attribute.name)} of {where}")
        for type_ in ([attribute.tp] if attribute.HasField("tp") else []) + list(attribute.type_protos):
            _check_type(type_, f"the attribute {shown(attribute.name)} of {where}")
    names: frozenset[str] | None = None
    for body in bodies(node):
        # Copied once per node and only for nodes with bodies, since a copy is linear in the names.
        names = frozenset(visible) if names is None else names
        _check_graph(body, names, depth + 1, ir_version)


def _check_functions(model: onnx.ModelProto) -> None:
    calls: dict[tuple[str, str, str], set[tuple[str, str, str]]] = {}
    for function in model.functions:
        name = _text(function.name, "a function's name")
        key = (_text(function.domain, "a function's domain"), name, _text(function.overload, "an overload"))
        if key in calls:
            raise BadInput(f"the function {shown(name)} is defined twice")
        for value in (*function.input, *function.output):
            _text(value, "a value's name")
        # A call could not tell which of the two it feeds.
        if len(set(function.input)) < len(function.input):
            raise BadInput(f"the function {shown(name)} has two inputs of one name")
        try:
            # Functions came with IR version 8, so its rules hold in them.
            known = _check_nodes(
                function.node, frozenset(function.input), frozenset(), 1, max(model.ir_version, 8)
            )
        except BadInput as error:
            raise BadInput(f"in the function {shown(name)}, {error}") from None
        missing = [value for value in function.output if value not in known and value not in function.input]
        if missing:
            raise BadInput(f"the output {shown(missing[0])} of the function {shown(name)} is made by no node")
        calls[key] = {(node.domain, node.op_type, node.overload) for node in all_nodes(function.node)}
    _check_recursion(calls)


def _check_recursion(calls: dict[tuple[str, str, str], set[tuple[str, str, str]]]) -> None:
    """Raise BadInput if a function calls itself, directly or through others."""
    try:
        # Sorted, so that every run finds the same cycle.
        TopologicalSorter({key: sorted(callees & calls.keys()) for key, callees in calls.items()}).prepare()
    except CycleError as error:
        raise BadInput(f"the function {shown(min(error.args[1])[1])} calls itself") from None


def _check_initializer(tensor: onnx.TensorProto, seen: set[str]) -> None:
    name = _text(tensor.name, "an initializer's name")
    if not name:
        raise BadInput("an initializer has no name")
    if name in seen:
        raise BadInput(f"the initializer {shown(name)} is defined twice")
    seen.add(name)
    _check_tensor(tensor, f"the initializer {shown(name)}")


def _check_tensor(tensor: onnx.TensorProto, what: str) -> None:
    problem = tensor_problem(tensor)
    if problem:
        raise BadInput(f"{what} {problem}")


def _check_type(type_: onnx.TypeProto, what: str) -> None:
    kind = type_.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(type_, kind)
        if tensor.elem_type and tensor.elem_type not in DTYPES:
            raise BadInput(f"{what} has the unknown element type {tensor.elem_type}")
        for dim in tensor.shape.dim:
            _text(dim.dim_param, "a dimension's name")
    elif kind in ("sequence_type", "optional_type"):
        _check_type(getattr(type_, kind).elem_type, what)
    elif kind == "map_type":
        _check_type(type_.map_type.value_type, what)


def _text(value: str | bytes, what: str) -> str:
    """Return a name as text. Raises BadInput for invalid UTF-8, which protobuf hands out as bytes."""
    if isinstance(value, bytes):
        raise BadInput(f"{what} is not UTF-8 text: {shown(value, 40)}")
    return value


def element_type(proto: onnx.TypeProto) -> int:
    """Return the number of the element type of a tensor, or of the tensors in a sequence or optional; 0 for
    other values.
    """
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return element_type(getattr(proto, kind).elem_type)
    return int(proto.tensor_type.elem_type)


# Types that a model declares: whether some are missing, and a copy that has those that inference found.


def lacks_types(model: onnx.ModelProto) -> bool:
    """Return whether some value of the main graph or of a body has no declared rank: shape inference could
    tell more.
    """
    return any(_graph_lacks(graph) for graph in all_graphs(model.graph))


def with_types(model: onnx.ModelProto, inferred: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of `model` with the `value_info` of `inferred`, the same model after shape inference."""
    typed = copied(model)
    for graph, typed_part in zip(all_graphs(typed.graph), all_graphs(inferred.graph), strict=False):
        del graph.value_info[:]
        graph.value_info.extend(typed_part.value_info)
        known = {info.name: info for info in typed_part.output}
        for info in graph.output:
            if info.name in known and not is_ranked(info.type):
                info.type.CopyFrom(known[info.name].type)
    return typed


def _graph_lacks(graph: onnx.GraphProto) -> bool:
    known = {info.name for info in (*graph.value_info, *graph.output) if is_ranked(info.type)}
    return any(name and name not in known for node in graph.node for name in node.output)


def is_ranked(type_: onnx.TypeProto) -> bool:
    """Return whether a declared type has a rank; types other than tensors do not need one."""
    return not is_untyped(type_) and is_shaped(type_)


def is_untyped(type_: onnx.TypeProto) -> bool:
    """Return whether a declaration has no type."""
    return type_.WhichOneof("value") is None


def is_shaped(type_: onnx.TypeProto) -> bool:
    """Return whether a type has a rank, as far as it is a tensor's."""
    return not type_.HasField("tensor_type") or type_.tensor_type.HasField("shape")


def is_static(type_: onnx.TypeProto) -> bool:
    """Return whether all sizes of a type are known."""
    if not type_.HasField("tensor_type"):
        return not is_untyped(type_)
    tensor = type_.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
