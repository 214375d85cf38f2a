"""Read an ONNX model as nodes and tensors of the generator, so that new programs can reuse its parts.

Types come from the operators' declarations, starting at the leaves, and from the model's own `value_info` if
there is no declaration or it disagrees. Rules know the elements of small constants, and the interval of
larger ones.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import AttributeProto

from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.declarations.tensor import LARGEST, LEAST, USUAL, Attributes, Bounds, Tensor, Typed
from opsieve.gen.errors import BadInput
from opsieve.gen.graph.graph import BodyGraph, Node, count_elements, is_closed
from opsieve.gen.model.attributes import constant_array, read_attribute
from opsieve.gen.model.tensors import (
    DTYPES,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
    dtype_name,
    read_tensor,
    read_type,
)

# The most elements of a constant that are kept.
_KEPT = 64
_DOMAINS = ("", "ai.onnx", "com.microsoft")
# Bodies may be nested. The limit bounds the recursion on a hostile model.
_DEPTH = 8


class UnreadableModel(Exception):
    """The model has something that the generator has no notion of; the message says what."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model as read: its opset, nodes in order, and what its graph gives. Leaves are the tensors that no
    node makes; `held` are the elements of those that the model, or who fed it, gave values; `computed` those
    that nodes made, where it is a part of a model.
    """

    opset: int
    nodes: tuple[Node, ...]
    outputs: tuple[Tensor, ...]
    held: Mapping[str, Any] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()


def read(model: onnx.ModelProto, inputs: Mapping[str, Value]) -> Source:
    """Read a model of sound structure (gen/model/structure.py), with a value for every input, which binds
    symbolic dimensions.

    Raises UnreadableModel for opsets before 13, local functions, domains other than ONNX's and onnxruntime's,
    sparse tensors, inputs that are not tensors, and values whose element type and rank are unknown to the
    declarations and the model.
    """
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    opset = versions[0] if versions else 0
    if not catalogue.OLDEST <= opset <= catalogue.NEWEST:
        raise UnreadableModel(f"opset {opset}")
    if model.functions or model.graph.sparse_initializer:
        raise UnreadableModel("local functions or sparse tensors")
    reader = _SourceReader()
    scope: dict[str, Tensor] = {}
    held: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        held[tensor.name] = read_tensor(tensor)
        scope[tensor.name] = leaf(tensor.name, held[tensor.name], DTYPES[tensor.data_type], "initializer")
    for info in model.graph.input:
        if info.name not in scope:
            type_ = read_type(info.type)
            if not isinstance(type_, TensorType) or info.name not in inputs:
                raise UnreadableModel("an input that is not a tensor")
            held[info.name] = np.asarray(inputs[info.name])
            scope[info.name] = leaf(info.name, held[info.name], type_.dtype, "input")
    nodes = reader.nodes(model.graph, scope, 0)
    outputs = tuple(scope[info.name] for info in model.graph.output if info.name in scope)
    return Source(opset, tuple(nodes), outputs, held)


def leaf(name: str, array: Any, dtype: str, kind: str) -> Tensor:
    """Return a leaf with the type and interval of an array, and its elements when they are few; of an input
    only whole numbers, which may be sizes or axes.
    """
    if dtype not in LARGEST:
        raise UnreadableModel(f"elements of type {dtype}")
    shape = tuple(int(side) for side in array.shape)
    values: tuple[Any, ...] | None = None
    if array.size <= _KEPT and (kind != "input" or array.dtype in (np.int64, np.int32)):
        flat = array.ravel()
        values = tuple(
            flat.tolist() if flat.dtype.type.__module__ == "numpy" else flat.astype(np.float64).tolist()
        )
    return Tensor(name, dtype, shape, *_interval(array, dtype), values, kind)


def _interval(array: Any, dtype: str) -> Bounds:
    if dtype == "string" or not array.size:
        return USUAL[dtype]
    numbers = array.astype(np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    # With a NaN among the elements neither end is a number.
    return (low, high) if low <= high else (-math.inf, math.inf)


class _SourceReader:
    """Reads graphs; names of unknown sizes are counted over all of them."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        # Values computed from an input whose numbers the rules know.
        self._sized: set[str] = set()

    def nodes(self, graph: onnx.GraphProto, scope: dict[str, Tensor], depth: int) -> list[Node]:
        """Read the nodes of a graph in order and add their results to the scope."""
        declared = {info.name: info.type for info in (*graph.value_info, *graph.output)}
        found = []
        for proto in graph.node:
            if proto.domain not in _DOMAINS or proto.overload:
                raise UnreadableModel(f"the domain {proto.domain}")
            domain = proto.domain if proto.domain != "ai.onnx" else ""
            attrs = {
                attribute.name: self._attribute(attribute, scope, depth) for attribute in proto.attribute
            }
            if proto.op_type == "Constant" and not domain:
                made = _constant(proto, depth)
                scope[made.name] = made
                if depth:
                    found.append(Node("Constant", "", [], [made], attrs, proto.name))
                continue
            ins = [scope[name] if name else None for name in proto.input]
            outs = self._make_outputs(proto, domain, ins, attrs, declared)
            scope.update((tensor.name, tensor) for tensor in outs if tensor.name)
            found.append(Node(proto.op_type, domain, ins, outs, attrs, proto.name))
        return found

    def _make_outputs(
        self,
        proto: onnx.NodeProto,
        domain: str,
        ins: Sequence[Tensor | None],
        attrs: Attributes,
        declared: Mapping[str, onnx.TypeProto],
    ) -> list[Tensor]:
        operator = catalogue.operators().get(catalogue.qualified_name(domain, proto.op_type))
        types, bounds = _apply_rule(operator, ins, attrs)
        if any(each and (each.name in self._sized or (each.leaf == "input" and each.values)) for each in ins):
            self._sized.update(proto.output)
        outs = []
        for place, name in enumerate(proto.output):
            if not name:
                outs.append(Tensor("", "", ()))
                continue
            typed = types[place] if place < len(types) else None
            known = self._read_type(declared[name]) if name in declared else None
            if known is not None and (typed is None or not _agree(typed, known)):
                if typed is not None and name in self._sized:
                    raise UnreadableModel(
                        "sizes that hang on its inputs' values, and are others than it says"
                    )
                typed = known
            if typed is None:
                raise UnreadableModel(f"the type of what {proto.op_type} gives")
            low, high = bounds[place] if place < len(bounds) else _widest(typed[0])
            outs.append(Tensor(name, typed[0], typed[1], low, high))
        if len(outs) == 1 and not domain:
            outs[0].values = values = known_values(proto.op_type, ins, attrs, outs[0])
            if values:
                outs[0].low, outs[0].high = min(values), max(values)
        return outs

    def _read_type(self, proto: onnx.TypeProto) -> Typed | None:
        type_, kind = read_type(proto), "{}"
        while isinstance(type_, (SequenceType, OptionalType)):
            kind = kind.format("sequence({})" if isinstance(type_, SequenceType) else "optional({})")
            type_ = type_.element
        if not isinstance(type_, TensorType) or type_.shape is None or type_.dtype not in LARGEST:
            return None
        shape = tuple(side if isinstance(side, int) else f"u{next(self._numbers)}" for side in type_.shape)
        return kind.format(type_.dtype), shape

    def _attribute(self, proto: AttributeProto, scope: Mapping[str, Tensor], depth: int) -> Any:
        if proto.type == AttributeProto.GRAPH:
            return self._body(proto.g, scope, depth + 1)
        try:
            return read_attribute(proto, "strict")
        except UnicodeDecodeError:
            raise UnreadableModel("an attribute that is not UTF-8") from None
        except BadInput:
            raise UnreadableModel(f"the attribute {proto.name}") from None

    def _body(self, graph: onnx.GraphProto, outer: Mapping[str, Tensor], depth: int) -> BodyGraph:
        if depth > _DEPTH or graph.sparse_initializer:
            raise UnreadableModel("bodies too deep, or sparse tensors")
        scope = dict(outer)
        inputs = []
        for info in graph.input:
            typed = self._read_type(info.type)
            if typed is None:
                raise UnreadableModel("a body's input without a type")
            inputs.append(Tensor(info.name, *typed, *_widest(typed[0])))
            scope[info.name] = inputs[-1]
        constants = []
        for tensor in graph.initializer:
            array = read_tensor(tensor)
            made = leaf(tensor.name, array, DTYPES[tensor.data_type], "")
            scope[tensor.name] = made
            constants.append(Node("Constant", "", [], [made], {"value": array}, f"constant_{tensor.name}"))
        nodes = [*constants, *self.nodes(graph, scope, depth)]
        return BodyGraph(inputs, nodes, [scope[info.name] for info in graph.output])


def _widest(dtype: str) -> Bounds:
    """Return all that elements of a dtype may be, in containers too."""
    element = dtype.rpartition("(")[2].rstrip(")")
    return LEAST[element], LARGEST[element]


def _apply_rule(
    operator: declaration.Operator | None, ins: Sequence[Tensor | None], attrs: Attributes
) -> tuple[Sequence[Typed | None], Sequence[Bounds]]:
    """Return types and intervals by declaration; empty if the declaration is missing or fails."""
    if operator is None:
        return (), ()
    try:
        types = operator.infer(ins, attrs)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001
        # Rules are written for what the generator draws; a foreign node may be anything
        return (), ()
    try:
        bounds = operator.bounds(ins, attrs)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001
        # Rules may fail on foreign nodes here too: the hyperbolic sine of a wide interval overflows.
        bounds = []
    if any(typed is not None and not all(type(side) in (int, str) for side in typed[1]) for typed in types):
        return (), ()
    bounds = bounds if isinstance(bounds, list) else [bounds] * len(types)
    # A name of a size is no number: what Shape gives of one can be anything.
    return types, bounds if all(isinstance(end, int | float) for pair in bounds for end in pair) else ()


def _agree(typed: Typed, known: Typed) -> bool:
    return (
        typed[0] == known[0]
        and len(typed[1]) == len(known[1])
        and all(
            isinstance(a, str) or isinstance(b, str) or a == b
            for a, b in zip(typed[1], known[1], strict=True)
        )
    )


def _constant(node: onnx.NodeProto, depth: int) -> Tensor:
    value = constant_array(node)
    if value is None:
        raise UnreadableModel("a Constant without a value that can be read")
    return leaf(node.output[0], value, dtype_name(value), "" if depth else "constant")


# Sizes that a model computes: what its nodes make of shapes and small constants, once the shapes are known.


# The most elements of a value that is computed.
_MOST: Final = 64
_WHOLE: Final = ("int64", "int32", "bool")
_PLAIN: Final[Mapping[str, Callable[..., Any]]] = {
    "Identity": lambda x: x,
    "Cast": lambda x: x,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    # ONNX's Div of integers truncates, Python's rounds down.
    "Div": lambda x, y: np.trunc(np.divide(x, y)),
    "Mod": np.mod,
    "Equal": np.equal,
    "Where": np.where,
    "Reshape": lambda x, sizes: x.reshape([int(size) for size in sizes]),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(int(axis) for axis in axes)),
    "Squeeze": lambda x, axes=None: np.squeeze(
        x, None if axes is None else tuple(int(axis) for axis in axes)
    ),
    "ConstantOfShape": lambda sizes: np.zeros([int(size) for size in sizes], np.int64),
    "Range": lambda start, limit, step: np.arange(start, limit, step),
}


def known_values(
    op: str, ins: Sequence[Tensor | None], attrs: Attributes, out: Tensor
) -> tuple[Any, ...] | None:
    """Compute the elements of an ONNX node's result, whole numbers or truths, from those of its inputs;
    returns `None` if they are unknown.
    """
    if (
        out.dtype not in _WHOLE
        or not ins
        or (op not in _PLAIN and op not in ("Shape", "Size", "Gather", "Concat", "Slice"))
    ):
        return None
    first = ins[0]
    if op == "Shape" and first is not None and is_closed(first.shape):
        return first.shape[slice(attrs.get("start"), attrs.get("end"))]
    if op == "Size" and first is not None and is_closed(first.shape):
        return (count_elements(first.shape),)
    arrays = []
    for each in ins:
        if each is None or each.values is None or each.dtype not in _WHOLE:
            return None
        arrays.append(np.array(each.values).reshape(each.shape))
    try:
        found = np.asarray(_evaluate_node(op, arrays, attrs))
    except (
        IndexError,
        TypeError,
        ValueError,
        ZeroDivisionError,
        MemoryError,
    ):
        # what a model of anybody says
        return None
    return (
        # A result that does not fit its dtype wraps around, or is a truth.
        tuple(found.astype(out.dtype).astype(np.int64).ravel().tolist())
        if found.size <= _MOST and found.shape == out.shape
        else None
    )


def _evaluate_node(op: str, arrays: Sequence[Any], attrs: Attributes) -> Any:
    if op == "Gather":
        return np.take(arrays[0], arrays[1].astype(np.int64), attrs.get("axis", 0))
    if op == "Concat":
        return np.concatenate(arrays, attrs["axis"])
    if op == "Slice":
        starts, ends, *rest = arrays[1:]
        axes, steps = (list(rest[place]) if place < len(rest) else None for place in (0, 1))
        cuts = [slice(None)] * arrays[0].ndim
        for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
            cuts[int(axes[place]) if axes else place] = slice(
                int(start), int(end), int(steps[place]) if steps else 1
            )
        return arrays[0][tuple(cuts)]
    if op == "ConstantOfShape" and "value" in attrs:
        return np.full([int(size) for size in arrays[0]], attrs["value"].item())
    if op == "Squeeze" and "axes" in attrs:
        return np.squeeze(arrays[0], tuple(attrs["axes"]))
    return _PLAIN[op](*arrays)
