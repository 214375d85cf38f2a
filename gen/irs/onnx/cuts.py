"""The main graph of a subject with its producers and readers, and cuts: any subset of its nodes as a model of
its own.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
import onnx
from onnx import AttributeProto

from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.irs.onnx.graphs import list_definitions
from opsieve.gen.irs.onnx.subject import Recording, Subject
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.gen.model.tensors import Value, read_tensor, type_of, write_tensor

# The largest constant, in bytes, that is stored instead of the nodes that compute it.
SMALL = 1024
_CONTENT = frozenset(
    ("graph", "functions", "node", "initializer", "sparse_initializer", "input", "output", "value_info")
)
# The most nodes that are kept to compute one large constant; otherwise it becomes an input.
_LONGEST_CLOSURE = 8


@dataclass(frozen=True)
class Graph:
    """Nodes by their place in the main graph, with producers and readers. Made in linear time; the subject is
    not copied.
    """

    subject: Subject

    @cached_property
    def nodes(self) -> tuple[onnx.NodeProto, ...]:
        """The nodes, in topological order as ONNX demands."""
        return tuple(self.subject.model.graph.node)

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The names that each node reads, those that its bodies capture included, without repetition."""
        return tuple(tuple(dict.fromkeys(list_captured(node))) for node in self.nodes)

    @cached_property
    def results(self) -> tuple[tuple[str, ...], ...]:
        """The names that each node makes."""
        return tuple(tuple(name for name in node.output if name) for node in self.nodes)

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """The node that makes each value."""
        return {name: place for place, names in enumerate(self.results) for name in names}

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """The nodes that each node reads from."""
        made = self.producer
        return tuple(
            tuple(dict.fromkeys(made[name] for name in names if name in made)) for names in self.reads
        )

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """The nodes that read from each node."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for place, sources in enumerate(self.producers):
            for source in sources:
                found[source].append(place)
        return tuple(map(tuple, found))

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """The nodes that read a value."""
        found: dict[str, list[int]] = {}
        for place, names in enumerate(self.reads):
            for name in names:
                found.setdefault(name, []).append(place)
        return {name: tuple(places) for name, places in found.items()}

    @cached_property
    def initializers(self) -> Mapping[str, onnx.TensorProto]:
        """The stored tensors of the main graph."""
        return {tensor.name: tensor for tensor in self.subject.model.graph.initializer}

    @cached_property
    def sparse(self) -> Mapping[str, onnx.SparseTensorProto]:
        """The stored sparse tensors of the main graph."""
        return {tensor.values.name: tensor for tensor in self.subject.model.graph.sparse_initializer}

    @cached_property
    def inputs(self) -> Mapping[str, onnx.ValueInfoProto]:
        """The graph inputs."""
        return {info.name: info for info in self.subject.model.graph.input}

    @cached_property
    def outputs(self) -> Mapping[str, onnx.ValueInfoProto]:
        """The graph outputs."""
        return {info.name: info for info in self.subject.model.graph.output}

    @cached_property
    def declared(self) -> Mapping[str, onnx.TypeProto]:
        """Types that the model declares for intermediate values."""
        graph = self.subject.model.graph
        return {info.name: info.type for info in (*graph.value_info, *graph.output)}

    @cached_property
    def constant(self) -> frozenset[int]:
        """The nodes whose results depend neither on graph inputs nor on random numbers."""
        found: set[int] = set()
        for place, node in enumerate(self.nodes):
            fixed = all(
                (name in self.initializers and name not in self.inputs)
                or self.producer.get(name, -1) in found
                for name in self.reads[place]
            )
            if fixed and not _draws(node):
                found.add(place)
        return frozenset(found)

    def ancestors(self, places: Iterable[int]) -> set[int]:
        """Return these nodes and all nodes that they depend on."""
        found: set[int] = set()
        left = list(places)
        while left:
            place = left.pop()
            if place not in found:
                found.add(place)
                left.extend(self.producers[place])
        return found

    def nearest(self, start: Iterable[int], among: Iterable[int], most: int | None = None) -> list[int]:
        """Sort nodes of `among` by graph distance from `start`, and return at most `most`. Unreachable ones
        come last, in reverse order.

        A step to a producer counts one, a step to a consumer three: patterns are matched, and named, from
        their last node on.
        """
        inside = among if isinstance(among, range) else set(among)
        order: list[int] = []
        seen: set[int] = set()
        queue = [(0, -place) for place in start]
        heapify(queue)
        while queue:
            distance, place = heappop(queue)
            place = -place
            if place in seen:
                continue
            seen.add(place)
            if place in inside:
                order.append(place)
                if len(order) == most:
                    return order
            for step, nears in ((1, self.producers[place]), (3, self.consumers[place])):
                for near in nears:
                    if near not in seen and near in inside:
                        heappush(queue, (distance + step, -near))
        order += sorted(set(inside).difference(order), reverse=True)
        return order[:most]

    def value(self, name: str) -> Value | None:
        """Return the value recorded, fed or stored under a name; `None` if it is unknown."""
        if name in self.subject.inputs:
            return self.subject.inputs[name]
        if name in self.initializers:
            return read_tensor(self.initializers[name])
        return self.subject.values.get(name)


def _draws(node: onnx.NodeProto) -> bool:
    """Return whether two runs of a node may give different numbers."""
    found = find_operator(node.domain, node.op_type)
    return found is not None and found.random


def list_captured(node: onnx.NodeProto) -> list[str]:
    """List the names of the outer graph that a node reads, by its inputs or inside its bodies."""
    names = [name for name in node.input if name]
    for body in bodies(node):
        inner = list_definitions(body)
        for item in body.node:
            names += (name for name in list_captured(item) if name not in inner)
        names += (info.name for info in body.output if info.name not in inner)
    return names


def cut(
    graph: Graph, keep: Iterable[int], *, closure: bool = False, tap: Iterable[str] = ()
) -> Subject | None:
    """Extract the nodes in `keep` as a subject of their own; returns `None` if an input of it has no known
    value.

    An input that the kept nodes do not compute becomes an initializer if it is constant and small, otherwise
    a graph input with its recorded value. With `closure`, nodes that compute a large constant are kept along.
    Results without a reader become outputs, and so do those in `tap`.
    """
    kept = set(keep)
    if closure:
        kept |= _constants_needed(graph, kept)
    places = sorted(kept)
    made = {name for place in places for name in graph.results[place]}
    needed = dict.fromkeys(name for place in places for name in graph.reads[place] if name not in made)
    read = {name for place in places for name in graph.reads[place]}
    results = _results(graph, places, read, set(tap))
    untyped = [name for name in results if _find_declared_type(graph, name) is None]
    want(graph, [name for name in (*needed, *untyped) if name in graph.producer])
    model = shell(graph.subject.model)
    fed: dict[str, Value] = {}
    # The old inputs keep their order; new inputs come behind.
    for name, info in graph.inputs.items():
        if name in needed:
            model.graph.input.append(info)
            # An input with a default need not be fed.
            if name not in graph.initializers and name not in graph.sparse:
                fed[name] = graph.subject.inputs[name]
    for name in needed:
        if name in graph.initializers:
            model.graph.initializer.append(graph.initializers[name])
        elif name in graph.sparse:
            model.graph.sparse_initializer.append(graph.sparse[name])
        elif name not in graph.inputs and not _supply(graph, name, model, fed):
            return None
    model.graph.node.extend(graph.nodes[place] for place in places)
    for name in results:
        result = _make_info(graph, name)
        if result is None:
            return None
        model.graph.output.append(result)
    if not model.graph.output:
        return None
    wanted = made | needed.keys()
    model.graph.value_info.extend(
        info
        for info in graph.subject.model.graph.value_info
        if info.name in made and info.name not in graph.outputs
    )
    model.functions.extend(list_called_functions(graph.subject.model, model.graph))
    return Subject(model, fed, _only(graph.subject.values, wanted))


def want(graph: Graph, names: list[str]) -> None:
    """Record values together that will be read one by one: one run instead of many."""
    if isinstance(graph.subject.values, Recording):
        graph.subject.values.want(names)


def _only(values: Mapping[str, Value], names: Collection[str]) -> Mapping[str, Value]:
    if isinstance(values, Recording):
        return values.only(names)
    return {name: value for name, value in values.items() if name in names}


def _constants_needed(graph: Graph, kept: set[int]) -> set[int]:
    """Return the nodes that compute the large constants which the kept nodes read."""
    found: set[int] = set()
    sources = sorted({source for place in kept for source in graph.producers[place]} - kept)
    sources = [source for source in sources if source in graph.constant]
    want(graph, [name for source in sources for name in graph.nodes[source].output if name])
    for source in sources:
        if source not in found:
            closure = graph.ancestors([source])
            if len(closure) <= _LONGEST_CLOSURE and not any(
                _small(graph, name) for name in graph.nodes[source].output if name
            ):
                found |= closure
    return found


def _small(graph: Graph, name: str) -> bool:
    """Return whether a constant takes no more bytes than the node that computes it, or only few."""
    value = graph.value(name)
    if not isinstance(value, np.ndarray):
        return False
    producer = graph.nodes[graph.producer[name]]
    return value.nbytes <= max(SMALL, producer.ByteSize() if producer.op_type == "Constant" else 0)


def _supply(graph: Graph, name: str, model: onnx.ModelProto, fed: dict[str, Value]) -> bool:
    """Supply a value whose node is gone, as an initializer or an input; returns False if it is unknown."""
    if name not in graph.subject.values:
        return False
    value = graph.subject.values[name]
    if graph.producer[name] in graph.constant and _small(graph, name):
        model.graph.initializer.append(write_tensor(np.asarray(value), name))
        return True
    info = _make_info(graph, name)
    if info is None:
        return False
    model.graph.input.append(info)
    fed[name] = value
    return True


def _results(graph: Graph, places: list[int], read: set[str], tap: set[str]) -> list[str]:
    """List the outputs: the old outputs in their order, then results whose readers are all gone.

    `read` holds the names that kept nodes read.
    """
    made = {name for place in places for name in graph.results[place]}
    results = dict.fromkeys(name for name in graph.outputs if name in made)
    for place in places:
        names = graph.results[place]
        wanted = [name for name in names if name in tap or (name not in read and name in graph.readers)]
        used = any(name in results or name in read for name in names)
        # A node whose results had no reader before either still gets an output, else it would not be needed.
        results.update(dict.fromkeys(wanted if wanted or used else names[:1]))
    return list(results)


def _make_info(graph: Graph, name: str) -> onnx.ValueInfoProto | None:
    """Make a value's name and type, preferably as declared, which keeps open dimensions, else as recorded."""
    found = _find_declared_type(graph, name) or type_of(graph.subject.values.get(name))
    if found is None and name in graph.declared and graph.declared[name].tensor_type.elem_type:
        found = graph.declared[name]
    return None if found is None else onnx.ValueInfoProto(name=name, type=found)


def _find_declared_type(graph: Graph, name: str) -> onnx.TypeProto | None:
    """Return the type that the model itself declares, if it is complete."""
    found = graph.outputs[name].type if name in graph.outputs else graph.declared.get(name)
    if found is None or found.WhichOneof("value") is None:
        return None
    whole = not found.HasField("tensor_type") or (
        found.tensor_type.elem_type and found.tensor_type.HasField("shape")
    )
    return found if whole else None


def shell(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without the content of its graph and without its functions; its other fields stay."""
    bare = onnx.ModelProto()
    for held, made in ((model, bare), (model.graph, bare.graph)):
        for field, value in held.ListFields():
            if field.name in _CONTENT:
                continue
            # protobuf does not allow assignment to repeated fields.
            if hasattr(value, "extend"):
                getattr(made, field.name).extend(value)
            else:
                setattr(made, field.name, value)
    return bare


def list_called_functions(source: onnx.ModelProto, graph: onnx.GraphProto) -> list[onnx.FunctionProto]:
    """List the local functions of a model that a graph calls, directly or through others."""
    functions = {(each.domain, each.name, each.overload): each for each in source.functions}
    called: set[tuple[str, str, str]] = set()
    waiting = [graph.node] if functions else []
    while waiting:
        for node in all_nodes(waiting.pop()):
            key = (node.domain, node.op_type, node.overload)
            if key in functions and key not in called:
                called.add(key)
                waiting.append(functions[key].node)
    return [each for key, each in functions.items() if key in called]


def inner_operators(node: onnx.NodeProto) -> list[str]:
    """Return the operators of a node and of its bodies."""
    found = [node.op_type]
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found += (item.op_type for item in all_nodes(attribute.g.node))
    return found
