"""Three simple generators to compare with, as others have evaluated or built them; float32, opset 13, small
shapes.

    declarative  a whole graph of random operators, shapes and attributes, kept when it happens to be valid
    (DeclGen of Isra's evaluation) randoop      one random operation after another, each kept when it is valid
    (Randoop-Gen of the same) pad-slice    random operations whose operands are forced into shape with
    Reshape, Slice and Pad (as GraphFuzzer does)

Each is a function of a seed and a number of nodes. `declarative` gives graphs of at most that many nodes,
nearly always few: that is what filtering leaves. Equal seeds give equal bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opsieve.gen.case.case import Case, Origin
from opsieve.gen.data.inputs import Stream
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve_research.baselines.drawing import StreamRng
from opsieve_research.baselines.operators import OPERATORS, Attributes, BaselineOperator, Shape, fits

OPSET = 13
MAX_NODES = 2000
_REUSE = 90  # percent of operands are values that there are; the others are new
_TRIES = 20  # draws of an operator's attributes before another operator is taken


def declarative(seed: int, nodes: int) -> Case:
    """The first valid of random graphs whose sizes are drawn from 1 to `nodes`; BadInput unless 1 <= nodes <=
    2000.
    """
    rng = _rng(seed, nodes)
    while True:
        # A graph is given up at its first invalid node: what comes after could not make it valid again.
        builder = _SmallGraph(rng)
        wanted = rng.between(1, nodes)
        if all(_append(builder) for _ in range(wanted)):
            return builder.case("declarative", seed)


def randoop(seed: int, nodes: int) -> Case:
    """A graph of exactly `nodes` nodes, each drawn until it was valid; BadInput unless 1 <= nodes <= 2000."""
    builder = _SmallGraph(_rng(seed, nodes))
    while len(builder.nodes) < nodes:
        _append(builder)
    return builder.case("randoop", seed)


def pad_slice(seed: int, nodes: int) -> Case:
    """A graph of exactly `nodes` nodes whose operands were made to fit; BadInput unless 1 <= nodes <=
    2000.
    """
    builder = _SmallGraph(_rng(seed, nodes))
    while len(builder.nodes) < nodes:
        _force(builder, nodes - len(builder.nodes))
    return builder.case("pad-slice", seed)


BASELINES: dict[str, Callable[[int, int], Case]] = {
    "declarative": declarative,
    "randoop": randoop,
    "pad-slice": pad_slice,
}


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A value; one without a name is a new input or weight, which gets its name when a node reads it."""

    name: str
    shape: Shape


@dataclass(slots=True)
class _SmallGraph:
    """A graph while it grows. `values` are all tensors that may be read; `read` the names of those that
    are.
    """

    rng: StreamRng
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[_Tensor] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    inputs: list[_Tensor] = field(default_factory=list)
    weights: list[_Tensor] = field(default_factory=list)
    constants: dict[str, list[int]] = field(default_factory=dict)
    made: list[_Tensor] = field(default_factory=list)

    def operand(self) -> _Tensor:
        """A tensor that is there, or, now and then, a new one of a random shape."""
        if self.values and self.rng.chance(_REUSE):
            return self.rng.choice(self.values)
        return _Tensor("", tuple(self.rng.between(1, 5) for _ in range(self.rng.between(1, 4))))

    def emit(self, operator: str, operands: list[_Tensor], shape: Shape, attributes: Attributes) -> _Tensor:
        """Add a node, and the new leaves among its operands."""
        names = []
        for operand in operands:
            if not operand.name:
                operand = self._born(operand.shape)
            names.append(operand.name)
        result = _Tensor(f"v{len(self.made)}", shape)
        self.nodes.append(
            helper.make_node(operator, names, [result.name], f"n{len(self.nodes)}", **attributes)
        )
        self.read.update(names)
        self.values.append(result)
        self.made.append(result)
        return result

    def integers(self, numbers: list[int]) -> _Tensor:
        """An initializer of int64 numbers, which no other node reads."""
        name = f"i{len(self.constants)}"
        self.constants[name] = numbers
        return _Tensor(name, (len(numbers),))

    def case(self, generator: str, seed: int) -> Case:
        """The graph and values for its inputs; outputs are the values that no node reads."""
        stream = Stream(seed, f"{generator} numbers")

        def filled(shape: Shape) -> np.ndarray[Any, Any]:
            count = int(np.prod(shape, dtype=np.int64))
            return (stream.fractions(count) * 4 - 2).astype(np.float32).reshape(shape)

        def infos(tensors: list[_Tensor]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, t.shape) for t in tensors]

        values = {tensor.name: filled(tensor.shape) for tensor in self.inputs}
        initializers = [numpy_helper.from_array(filled(tensor.shape), tensor.name) for tensor in self.weights]
        initializers += [
            numpy_helper.from_array(np.array(n, np.int64), name) for name, n in self.constants.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            generator,
            infos(self.inputs),
            infos([tensor for tensor in self.made if tensor.name not in self.read]),
            initializers,
            value_info=infos([tensor for tensor in self.made if tensor.name in self.read]),
        )
        imports = [helper.make_opsetid("", OPSET)]
        model: onnx.ModelProto = helper.make_model(
            graph, opset_imports=imports, ir_version=7, producer_name="opsieve"
        )
        program = OnnxProgram(model.SerializeToString(deterministic=True), f"{generator}-{seed}")
        return Case(program, dict(values), None, Origin(generator, seed, {}, "generated"))

    def _born(self, shape: Shape) -> _Tensor:
        tensors, letter = (
            (self.inputs, "x") if not self.inputs or self.rng.chance(50) else (self.weights, "w")
        )
        tensor = _Tensor(f"{letter}{len(tensors)}", shape)
        tensors.append(tensor)
        self.values.append(tensor)
        return tensor


def _rng(seed: int, nodes: int) -> StreamRng:
    if not 1 <= nodes <= MAX_NODES:
        raise BadInput(f"{nodes} nodes cannot be generated; give a number from 1 to {MAX_NODES}")
    return StreamRng(seed)


def _append(builder: _SmallGraph) -> bool:
    """Draw an operation, add it if it is valid, and tell whether it was."""
    rng = builder.rng
    operator = rng.choice(OPERATORS)
    operands = [builder.operand() for _ in range(rng.between(*operator.arity))]
    attributes = operator.attributes(rng)
    shape = operator.result([operand.shape for operand in operands], attributes)
    if shape is None or not fits(shape):
        return False
    builder.emit(operator.name, operands, shape, attributes)
    return True


def _force(builder: _SmallGraph, room: int) -> None:
    """Draw an operator and add it, behind what makes its operands fit; nothing where that takes more than
    `room` nodes.
    """
    rng = builder.rng
    operator = rng.choice(OPERATORS)
    operands = [builder.operand() for _ in range(rng.between(*operator.arity))]
    found = _demand(operator, [operand.shape for operand in operands], rng)
    if found is None:
        return
    shapes, attributes, result = found
    steps = sum(_steps(operand, shape) for operand, shape in zip(operands, shapes, strict=True))
    if steps + 1 > room:
        return
    forced = [_fitted(builder, operand, shape) for operand, shape in zip(operands, shapes, strict=True)]
    builder.emit(operator.name, forced, result, attributes)


def _demand(
    operator: BaselineOperator, shapes: list[Shape], rng: StreamRng
) -> tuple[list[Shape], Attributes, Shape] | None:
    """Shapes near these that the operator takes, with attributes, and the shape it gives; None when none was
    found.
    """
    for _ in range(_TRIES):
        attributes = operator.attributes(rng)
        wanted = operator.mended(shapes, attributes)
        shape = operator.result(wanted, attributes)
        if shape is not None and fits(shape) and all(fits(want) for want in wanted):
            return wanted, attributes, shape
    return None


def _ranked(shape: Shape, rank: int) -> Shape:
    """The same elements in `rank` dimensions: ones in front, or the leading dimensions made one."""
    if len(shape) <= rank:
        return (1,) * (rank - len(shape)) + shape
    cut = len(shape) - rank + 1
    return (int(np.prod(shape[:cut], dtype=np.int64)), *shape[cut:]) if rank else ()


def _steps(operand: _Tensor, wanted: Shape) -> int:
    """How many nodes `_fitted` adds."""
    if not operand.name:
        return 0
    if not wanted:
        return (operand.shape != ()) + any(have > 1 for have in operand.shape)
    ranked = _ranked(operand.shape, len(wanted))
    shrinks = any(have > want for have, want in zip(ranked, wanted, strict=True))
    grows = any(have < want for have, want in zip(ranked, wanted, strict=True))
    return (ranked != operand.shape) + shrinks + grows


def _fitted(builder: _SmallGraph, operand: _Tensor, wanted: Shape) -> _Tensor:
    """The operand with the shape wanted, behind a Reshape, a Slice and a Pad as far as they are needed."""
    if not operand.name:
        return _Tensor("", wanted)
    if not wanted and any(have > 1 for have in operand.shape):
        ones = (1,) * len(operand.shape)  # a scalar has room for one element
        bounds = [builder.integers([0] * len(ones)), builder.integers(list(ones))]
        operand = builder.emit("Slice", [operand, *bounds], ones, {})
    ranked = _ranked(operand.shape, len(wanted))
    if ranked != operand.shape:
        operand = builder.emit("Reshape", [operand, builder.integers(list(ranked))], ranked, {})
    cut = tuple(min(have, want) for have, want in zip(ranked, wanted, strict=True))
    if cut != ranked:
        bounds = [builder.integers([0] * len(cut)), builder.integers(list(cut))]
        operand = builder.emit("Slice", [operand, *bounds], cut, {})
    if cut != wanted:
        missing = [want - have for have, want in zip(cut, wanted, strict=True)]
        pads = builder.integers([0] * len(cut) + missing)
        operand = builder.emit("Pad", [operand, pads], wanted, {})
    return operand
