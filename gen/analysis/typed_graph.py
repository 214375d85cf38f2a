"""A model as steps that the rules of declarations can read: each node with its declaration, its tensors and
its attributes.

It uses the same `Tensor`s as a growing program, so `infer`, `bounds` and `safe` also serve foreign models.
Unknown parts (a type, a declaration) are left open: a step without a declaration has `op` None, a tensor
without a type the dtype "".
"""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.declarations.tensor import FLOATS, Attributes, Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.view import opset_of
from opsieve.gen.model.attributes import constant_array, is_constant, read_attribute, tensor_array
from opsieve.gen.model.tensors import (
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    dtype_name,
    read_type,
)

# Elements of a constant that rules may want to know one by one
_MOST_KNOWN = 64
# The largest constant, in elements, whose extremes are computed.
_MOST_READ = 1 << 24
# Constants are computed through chains of at most this many nodes, because each node may run numpy on a large
# array.
_MOST_DEEP = 8
# Rules of declarations raise these for nodes that `sample` would not make.
ODD = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
# Families whose parameters are more than numbers: scales, regions, windows. A search leaves them alone.
_RIGID = frozenset(("quantised", "image", "source", "signal", "text", "container"))


@dataclass(slots=True, eq=False)
class TypedNode:
    """One node. `bodies` are its graphs by the attribute that holds them; they are in `attrs` too, as
    Outlines.
    """

    name: str
    operator: str
    op: declaration.Operator | None
    ins: list[Tensor | None]
    attrs: Attributes
    outs: list[Tensor]
    bodies: dict[str, "TypedGraph"] = field(default_factory=dict)
    _typed: bool = False

    @property
    def is_typed(self) -> bool:
        """Whether the type of every input is known, sizes included."""
        # A known type stays known, so the answer is cached.
        if not self._typed:
            self._typed = all(
                tensor is None or (tensor.dtype and str not in map(type, tensor.shape)) for tensor in self.ins
            )
        return self._typed


@dataclass(slots=True, eq=False)
class TypedGraph:
    """A graph or a body. `leaves` are the inputs and constants of this graph by name, in its order; `inputs`
    those that it is given.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]
    nodes: list[TypedNode]
    leaves: dict[str, Tensor]

    def tensors(self) -> Iterator[Tensor]:
        """Everything named in this graph: leaves, then outputs of nodes."""
        yield from self.leaves.values()
        for step in self.nodes:
            yield from (tensor for tensor in step.outs if tensor.name)

    def reads(self) -> Iterator[Tensor]:
        """Yield the tensors that its nodes read, also in bodies, and its outputs."""
        for step in self.nodes:
            yield from (tensor for tensor in step.ins if tensor is not None)
            for body in step.bodies.values():
                yield from body.reads()
        yield from self.outputs


def read_graph(model: onnx.ModelProto, values: Mapping[str, Any] | None = None) -> TypedGraph:
    """Return a model's steps. Leaves have the extremes of their elements: of `values` for inputs, which are
    usual ones elsewhere unknown.

    Types are those that the model tells (`value_info`; backends/workers/questions/programs.py finds the
    missing ones in a worker).
    """
    opset = opset_of(model)
    own = {(item.domain, item.name) for item in model.functions}
    made = _GraphReader(opset, own).graph(model.graph, {}, 0)
    for name, value in (values or {}).items():
        if name in made.leaves and isinstance(value, np.ndarray):
            _measure(made.leaves[name], value)
    return made


def movable(graph: TypedGraph, weights: bool) -> list[Tensor]:
    """Leaves whose elements a search may choose: inputs, and with `weights` the float parameters that are no
    more than numbers.

    An integer stays within the range that it has: it may be an index.
    """
    rigid: set[int] = set()
    for step in graph.nodes:
        for position, tensor in enumerate(step.ins):
            if tensor is None or tensor.leaf in ("", "input") or id(tensor) in rigid:
                continue
            if step.bodies or _rests_on(step, position, tensor):
                rigid.add(id(tensor))
    return [
        leaf
        for leaf in graph.leaves.values()
        if math.isfinite(leaf.low)
        and math.isfinite(leaf.high)
        and "(" not in leaf.dtype
        and (leaf.leaf == "input" or (weights and leaf.dtype in FLOATS and id(leaf) not in rigid))
    ]


def _rests_on(step: TypedNode, position: int, tensor: Tensor) -> bool:
    """Return whether the types of a step's outputs rest on the elements of a constant, or it is a parameter
    of a rigid family.
    """
    if step.op is None or (position and (step.op.family in _RIGID or step.op.rigid)):
        return True
    if tensor.values is None:
        return False
    kept, tensor.values = tensor.values, None
    try:
        step.op.infer(step.ins, step.attrs)  # type: ignore[arg-type]
    except ODD:
        return True
    finally:
        tensor.values = kept
    return False


def _infer(step: TypedNode) -> None:
    """Types that the model does not tell (within bodies it seldom does), by the declaration."""
    if step.op is None or step.bodies or not step.is_typed:
        return
    try:
        types = step.op.infer(step.ins, step.attrs)  # type: ignore[arg-type]
    except ODD:
        return
    for tensor, typed in zip(step.outs, types, strict=False):
        if typed is not None and not tensor.dtype:
            tensor.dtype, tensor.shape = typed


class _GraphReader:
    def __init__(self, opset: int, own: set[tuple[str, str]]) -> None:
        self.opset = opset
        # Local functions may have the names of operators and then hide them.
        self.own = own

    def graph(self, graph: onnx.GraphProto, around: Mapping[str, Tensor], depth: int) -> TypedGraph:
        types = {info.name: read_type(info.type) for info in (*graph.value_info, *graph.output, *graph.input)}
        scope, leaves = dict(around), dict[str, Tensor]()
        constants = {tensor.name for tensor in graph.initializer}
        for info in graph.input:
            if info.name not in constants:
                made = _declare_tensor(info.name, types.get(info.name))
                made.leaf, made.low, made.high = "input", *span(made.dtype)
                leaves[info.name] = made
        inputs = list(leaves.values())
        for proto in graph.initializer:
            leaves[proto.name] = _hold_array(proto.name, tensor_array(proto), "initializer")
        scope.update(leaves)
        steps = []
        for node in graph.node:
            if is_constant(node):
                leaf = self.constant(node, types)
                scope[leaf.name] = leaves[leaf.name] = leaf
                continue
            steps.append(self.step(node, scope, types, depth))
        outputs = [
            scope.get(info.name) or _declare_tensor(info.name, types.get(info.name)) for info in graph.output
        ]
        return TypedGraph(inputs, outputs, steps, leaves)

    def constant(self, node: onnx.NodeProto, types: Mapping[str, ValueType]) -> Tensor:
        name, array = node.output[0], constant_array(node)
        if array is not None:
            return _hold_array(name, array, "constant")
        made = _declare_tensor(name, types.get(name))
        made.low, made.high = span(made.dtype)
        return made

    def step(
        self, node: onnx.NodeProto, scope: dict[str, Tensor], types: Mapping[str, ValueType], depth: int
    ) -> TypedNode:
        ins = [
            scope.get(name) or _declare_tensor(name, types.get(name)) if name else None for name in node.input
        ]
        domain = "" if node.domain == "ai.onnx" else node.domain
        op = catalogue.operators().get(catalogue.qualified_name(domain, node.op_type))
        if (node.domain, node.op_type) in self.own or (
            op and not domain and self.opset < max(op.since, catalogue.OLDEST)
        ):
            op = None
        attrs: Attributes = {}
        bodies: dict[str, TypedGraph] = {}
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                if depth < _MOST_DEEP:
                    attrs[attribute.name] = bodies[attribute.name] = self.graph(attribute.g, scope, depth + 1)
                continue
            attrs[attribute.name] = _attribute(attribute)
        outs = [_declare_tensor(name, types.get(name)) for name in node.output]
        made = TypedNode(node.name, node.op_type, op, ins, attrs, outs, bodies)
        if any(tensor.name and not tensor.dtype for tensor in outs):
            _infer(made)
        scope.update((tensor.name, tensor) for tensor in outs if tensor.name)
        for tensor in ins:
            if tensor is not None:
                tensor.reads += 1
        return made


@functools.cache
def span(dtype: str) -> tuple[float, float]:
    """Return the bounds of an element of a dtype without further knowledge: the whole range of an integer,
    infinite bounds for a float.
    """
    dtype = dtype.rpartition("(")[2].rstrip(")")
    if dtype == "bool":
        return 0.0, 1.0
    if dtype.startswith("uint"):
        return 0.0, 2.0 ** int(dtype[4:]) - 1
    if dtype.startswith("int"):
        return -(2.0 ** (int(dtype[3:]) - 1)), 2.0 ** (int(dtype[3:]) - 1) - 1
    return (0.0, 0.0) if dtype == "string" else (-math.inf, math.inf)


def _declare_tensor(name: str, type_: ValueType | None) -> Tensor:
    if isinstance(type_, TensorType):
        if not type_.dtype or type_.shape is None:
            return Tensor(name, "", ())
        return Tensor(name, type_.dtype, tuple("?" if side is None else side for side in type_.shape))
    if isinstance(type_, (SequenceType, OptionalType)):
        inner = _declare_tensor(name, type_.element)
        kind = "sequence" if isinstance(type_, SequenceType) else "optional"
        return Tensor(name, f"{kind}({inner.dtype})" if inner.dtype else "", inner.shape)
    return Tensor(name, "", ())


def _hold_array(name: str, array: "np.ndarray[Any, Any] | None", leaf: str) -> Tensor:
    """Make a leaf that holds an array; None for one of a type that numpy lacks, or kept in another file."""
    if array is None:
        return Tensor(name, "", (), leaf=leaf)
    made = Tensor(name, dtype_name(array), array.shape, leaf=leaf)
    _measure(made, array)
    if array.dtype != object and array.size <= _MOST_KNOWN and array.dtype.kind in "iufb":
        made.values = tuple(array.ravel().tolist())
    return made


def _measure(tensor: Tensor, array: "np.ndarray[Any, Any]") -> None:
    """Set a leaf's shape, and its interval to the extremes of an array; what holds a NaN can be anything."""
    tensor.shape = array.shape
    if array.dtype == object or array.size > _MOST_READ or array.dtype.kind == "c":
        tensor.low, tensor.high = span(tensor.dtype)
        return
    if not array.size:
        tensor.low = tensor.high = 0.0
        return
    wide = array if array.dtype.kind in "fiub" else array.astype(np.float64)
    low, high = float(wide.min()), float(wide.max())
    tensor.low, tensor.high = span(tensor.dtype) if math.isnan(low) or math.isnan(high) else (low, high)


def _attribute(proto: AttributeProto) -> Any:
    try:
        return read_attribute(proto)
    except BadInput:
        # Rules that need the attribute then skip the node.
        return None
