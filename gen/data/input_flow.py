"""Where a graph's inputs are used: from each input, through operators that only move its elements, to the
operators that ask something of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.declarations.tensor import ANY, Domain, Shape, Site
from opsieve.gen.model import attributes, structure
from opsieve.gen.model.files import BUDGET

# The most elements of a constant that is read; larger ones are data rather than axes or sizes.
_MAX_CONSTANT = 1024


@dataclass(slots=True)
class _Scope:
    """The known facts about visible names: the inputs that reach them (True: element by element), shapes,
    constants.
    """

    roots: dict[str, dict[str, bool]] = field(default_factory=dict)
    shapes: dict[str, Shape | None] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def inner(self) -> "_Scope":
        return _Scope(dict(self.roots), dict(self.shapes), dict(self.constants))


class InputFlow:
    """Collects the constraints on each input of one model.

    `shapes` are the shapes that the inputs will have; `sizes` those that symbolic dimensions are bound to.
    """

    def __init__(
        self, model: onnx.ModelProto, shapes: Mapping[str, Shape | None], sizes: Mapping[str, int]
    ) -> None:
        self.domains: dict[str, Domain] = dict.fromkeys(shapes, ANY)
        self._functions = {(item.domain, item.name, item.overload): item for item in model.functions}
        self._sizes = sizes
        self._visits = self._depth = 0
        self._graph(model.graph, _Scope({name: {name: True} for name in shapes}, dict(shapes)))

    def _graph(self, graph: onnx.GraphProto, scope: _Scope) -> None:
        for tensor in graph.initializer:
            self._constant(tensor.name, tensor, scope)
        for info in (*graph.value_info, *graph.output):
            shape = self._static(info.type)
            if shape is not None:
                scope.shapes.setdefault(info.name, shape)
        self._nodes(graph.node, scope)

    def _nodes(self, nodes: Iterable[onnx.NodeProto], scope: _Scope) -> None:
        for node in nodes:
            self._visits += 1
            # Functions that call each other in a chain of calls can double the visits with each level.
            if self._visits > BUDGET.visits:
                return
            self._ask(node, scope)
            self._pass_on(node, scope)
            function = self._functions.get((node.domain, node.op_type, node.overload))
            if function is not None:
                if self._depth < BUDGET.calls:
                    # A function sees nothing of its caller.
                    inner = _Scope()
                    self._bind(function.input, node.input, scope, inner)
                    self._depth += 1
                    self._nodes(function.node, inner)
                    self._depth -= 1
                continue
            for body in structure.bodies(node):
                inner = scope.inner()
                names, ports = [info.name for info in body.input], structure.ports_of(node)
                given = node.input[ports.operands :]
                # A Scan hands on slices of its operands.
                self._bind(names[ports.inputs :], given, scope, inner, shapes=node.op_type != "Scan")
                self._graph(body, inner)

    def _ask(self, node: onnx.NodeProto, scope: _Scope) -> None:
        for position, name in enumerate(node.input):
            roots = scope.roots.get(name)
            if not roots:
                continue
            operator = catalogue.find_operator(node.domain, node.op_type)
            domain = (
                ANY
                if operator is None
                else operator.usual_at(Site(node, position, scope.shapes, scope.constants))
            )
            if domain is ANY:
                continue
            for root, in_order in roots.items():
                # Behind a permutation the elements are known, but not their places.
                self.domains[root] = self.domains[root].meet(domain if in_order else domain.drop_order())

    def _pass_on(self, node: onnx.NodeProto, scope: _Scope) -> None:
        if not node.output:
            return
        if attributes.is_constant(node):
            for attribute in node.attribute:
                if attribute.name == "value":
                    self._constant(node.output[0], attribute.t, scope)
                elif (numbers := attributes.constant_array(node)) is not None and numbers.dtype == np.int64:
                    scope.shapes[node.output[0]], scope.constants[node.output[0]] = numbers.shape, numbers
            return
        operator = catalogue.find_operator(node.domain, node.op_type)
        if operator is None:
            return
        if operator.keeps_shape and node.input and scope.shapes.get(node.input[0]) is not None:
            scope.shapes.setdefault(node.output[0], scope.shapes[node.input[0]])
        # It computes new elements, whose domain says nothing about the input.
        if operator.moves is declaration.Moves.NONE:
            return
        sources = node.input if operator.moves is declaration.Moves.EVERY else node.input[:1]
        moved: dict[str, bool] = {}
        for name in sources:
            for root, in_order in scope.roots.get(name, {}).items():
                moved[root] = in_order and operator.moves is declaration.Moves.IN_ORDER
        if moved:
            for name in node.output:
                scope.roots[name] = moved

    def _bind(
        self, names: Iterable[str], given: Iterable[str], scope: _Scope, inner: _Scope, shapes: bool = True
    ) -> None:
        for name, source in zip(names, given, strict=False):
            inner.roots[name] = scope.roots.get(source, {})
            inner.shapes[name] = scope.shapes.get(source) if shapes else None
            if source in scope.constants:
                inner.constants[name] = scope.constants[source]

    def _constant(self, name: str, tensor: onnx.TensorProto, scope: _Scope) -> None:
        scope.shapes[name] = tuple(tensor.dims)
        # An initializer hides an outer value of its name.
        scope.roots.pop(name, None)
        # Axes and sizes are vectors or scalars.
        if len(tensor.dims) <= 1 and all(size <= _MAX_CONSTANT for size in tensor.dims):
            array = attributes.tensor_array(tensor)
            if array is not None and array.dtype.kind in "iu":
                scope.constants[name] = array

    def _static(self, type_: onnx.TypeProto) -> Shape | None:
        if not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
            return None
        sizes = [self._size(dim) for dim in type_.tensor_type.shape.dim]
        return None if min(sizes, default=0) < 0 else tuple(sizes)

    def _size(self, dim: onnx.TensorShapeProto.Dimension) -> int:
        if dim.dim_param:
            return self._sizes.get(dim.dim_param, -1)
        return dim.dim_value if dim.HasField("dim_value") else -1
