"""The view of an ONNX model: its graphs, nodes and tensors by name, and who makes and reads each value.

A graph is addressed by the path of (first output of the owner node, attribute) pairs that leads to it, () for
the main graph; a node by the path of its graph and its first output. Never by position, so that an edit still
finds its place after others were merged in.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, helper

from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.view import list_reachable
from opsieve.gen.model.attributes import constant_array, tensor_array
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.gen.model.tensors import NUMBERS, Value, dtype_name, read_tensor

Path: TypeAlias = tuple[str, ...]
Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with everything that an edit may need; it is never changed in place.

    `inputs` has a value for every graph input that must be fed, by name. `values` are tensors of the main
    graph as an unoptimised run records them, in their native precision; {} if unknown. A name in `values`
    that the model lacks is ignored.
    """

    model: onnx.ModelProto
    inputs: dict[str, Value]
    values: Mapping[str, Value]
    # Whether the edit that made it changed types, and so what others declare
    redeclared: bool = False

    @cached_property
    def program(self) -> OnnxProgram:
        """The model, serialised; equal models give equal bytes."""
        return OnnxProgram.of(self.model)


class Recording(Mapping[str, Value]):
    """Values by name that are recorded when they are first asked for: those of a large model can take
    gigabytes.

    `play` is given names and returns everything recorded so far, these names among it as far as they can be
    had.
    """

    def __init__(self, names: Iterable[str], play: Callable[[Collection[str]], Mapping[str, Value]]):
        self._names = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self._play = play

    def __getitem__(self, name: str) -> Value:
        if name not in self._names:
            raise KeyError(name)
        return self._play([name])[name]

    def __iter__(self) -> Iterator[str]:
        found = self._play(self._names)
        # In the order of the names, whatever order the run records in: edits that follow it must not differ
        # between runs.
        return (name for name in self._names if name in found)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def want(self, names: Iterable[str]) -> None:
        """Record these values, as far as they are not yet, in one go."""
        self._play([name for name in names if name in self._names])

    def only(self, names: Collection[str]) -> "Recording":
        """Return the same recording, of these names alone."""
        return Recording(sorted(self._names.keys() & names, key=self._names.__getitem__), self._play)


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model imports; 0 if it imports none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def first_output(node: onnx.NodeProto) -> str:
    """Return the name of a node's first output that is not omitted; "" if there is none."""
    return next((name for name in node.output if name), "")


def label(node: onnx.NodeProto) -> str:
    """Return the name of a node for the log."""
    return f"{node.op_type} {(node.name or first_output(node))[:40]!r}"


def graphs(graph: onnx.GraphProto, path: Path = ()) -> Iterator[tuple[Path, onnx.GraphProto]]:
    """Yield the graph and all bodies in it, outer ones first."""
    yield path, graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g, (*path, first_output(node), attribute.name))


def nodes(graph: onnx.GraphProto) -> Iterator[tuple[Path, onnx.NodeProto]]:
    """Yield every node of the graph and of its bodies, with the path of the graph it lies in."""
    for path, inner in graphs(graph):
        for node in inner.node:
            yield path, node


def graph_at(model: onnx.ModelProto, path: Path) -> onnx.GraphProto | None:
    """Return the graph at a path; `None` if it is gone. A path of odd length begins with the key of a local
    function, which is returned for that key alone.
    """
    # Pairs have even length, so one more part can only be a function's key.
    graph: Any = model.graph
    if len(path) % 2:
        graph = next((each for each in model.functions if get_function_key(each) == path[0]), None)
        if graph is None:
            return None
    inner = path[len(path) % 2 :]
    for owner, name in zip(inner[::2], inner[1::2], strict=True):
        node = node_of(graph, owner)
        attribute = None if node is None else attribute_of(node, name)
        if attribute is None or not attribute.HasField("g"):
            return None
        graph = attribute.g
    found: onnx.GraphProto = graph
    return found


def node_of(graph: onnx.GraphProto, key: str) -> onnx.NodeProto | None:
    """Return the node with this first output; `None` if it is gone."""
    return next((node for node in graph.node if key in node.output and first_output(node) == key), None)


def node_at(model: onnx.ModelProto, path: Path, key: str) -> onnx.NodeProto | None:
    """Return the node with this first output in the graph at `path`; `None` if it is gone."""
    graph = graph_at(model, path)
    return None if graph is None else node_of(graph, key)


def attribute_of(node: onnx.NodeProto, name: str) -> AttributeProto | None:
    """Return the attribute of this name; `None` if it is absent."""
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def uses(graph: onnx.GraphProto) -> set[str]:
    """Return every name that a node of the graph or of a body in it reads, or that one of them yields."""
    names: set[str] = set()
    for _, inner in graphs(graph):
        names.update(info.name for info in inner.output)
        for node in inner.node:
            names.update(node.input)
    return names


def list_definitions(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a graph itself defines: its inputs, initializers and results of nodes."""
    names = {item.name for item in (*graph.input, *graph.initializer)}
    return names.union(*(node.output for node in graph.node))


def list_captured(node: onnx.NodeProto) -> list[str]:
    """List the names of the outer graph that a node reads, by its inputs or inside its bodies."""
    names = [name for name in node.input if name]
    for body in bodies(node):
        inner = list_definitions(body)
        for item in body.node:
            names += (name for name in list_captured(item) if name not in inner)
        names += (info.name for info in body.output if info.name not in inner)
    return names


def list_called_functions(source: onnx.ModelProto, graph: onnx.GraphProto) -> list[onnx.FunctionProto]:
    """List the local functions of a model that a graph calls, directly or through others."""
    # The overload is part of a function's identity since IR version 10.
    functions = {(each.domain, each.name, each.overload): each for each in source.functions}
    if not functions:
        return []

    def list_calls(nodes: Iterable[onnx.NodeProto]) -> list[tuple[str, str, str]]:
        keys = ((node.domain, node.op_type, node.overload) for node in all_nodes(nodes))
        return [key for key in keys if key in functions]

    called = list_reachable(list_calls(graph.node), lambda key: list_calls(functions[key].node))
    return [each for key, each in functions.items() if key in called]


def inner_operators(node: onnx.NodeProto) -> list[str]:
    """Return the operators of a node and of its bodies."""
    found = [node.op_type]
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found += (item.op_type for item in all_nodes(attribute.g.node))
    return found


def get_function_key(function: onnx.FunctionProto) -> str:
    """Return the name of a local function in paths and among what edits touch."""
    return f"function:{function.domain}:{function.name}"


def declared_type(array: Array) -> onnx.TypeProto:
    """Return the type of an array, all its sizes static."""
    return helper.make_tensor_type_proto(NUMBERS[dtype_name(array)], array.shape)


def stored_tensor(model: onnx.ModelProto, path: Path, name: str) -> Array | None:
    """Return the value of an initializer or a Constant node; `None` if the name is neither."""
    graph = graph_at(model, path)
    if graph is None:
        return None
    for tensor in graph.initializer:
        if tensor.name == name:
            return tensor_array(tensor)
    node = node_of(graph, name)
    return constant_array(node) if node is not None and node.op_type == "Constant" else None


def held_array(model: onnx.ModelProto, inputs: Mapping[str, Value], path: Path, name: str) -> Array | None:
    """Return the value of a fed input, an initializer or a Constant node; `None` if the name is something
    else.
    """
    value = None if path else inputs.get(name)
    return value if isinstance(value, np.ndarray) else stored_tensor(model, path, name)


def schema_of(operator: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema of an operator in an opset; `None` if this onnx lacks it."""
    if not onnx.defs.has(operator, max_inclusive_version=max(version, 1), domain=domain):
        return None
    return onnx.defs.get_schema(operator, max(version, 1), domain)


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
                # An initializer that is also an input is only a default, which the caller may replace.
                (name in self.initializers and name not in self.inputs)
                or self.producer.get(name, -1) in found
                for name in self.reads[place]
            )
            if fixed and not _draws(node):
                found.add(place)
        return frozenset(found)

    def ancestors(self, places: Iterable[int]) -> set[int]:
        """Return these nodes and all nodes that they depend on."""
        return set(list_reachable(places, self.producers.__getitem__))

    def nearest(self, start: Iterable[int], among: Iterable[int], most: int | None = None) -> list[int]:
        """Sort nodes of `among` by graph distance from `start`, and return at most `most`. Unreachable ones
        come last, in reverse order.

        A step to a producer counts one, a step to a consumer three: patterns are matched, and named, from
        their last node on.
        """
        # A range answers `in` at once and takes no memory, even for a model of 100,000 nodes.
        inside = among if isinstance(among, range) else set(among)
        order: list[int] = []
        seen: set[int] = set()
        # Negative, so that of equally near nodes the last one comes first.
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
