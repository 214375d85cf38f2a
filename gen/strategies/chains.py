"""Programs that are one chain of operators which optimisers rewrite, so that all chains of three of them come up as soon as may be.

Which operator comes next says a linear recurrence over a prime field whose period is as long as can be: each window of three of its symbols comes once before any comes again (Golomb,
Shift Register Sequences, 1967, chapter III). So every node makes a chain of three that is new, and a seed tells where in the sequence a program begins, without those before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from opsieve.gen.build.adapters import adapt_first
from opsieve.gen.build.graph_builder import GraphBuilder
from opsieve.gen.case.case import Case
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.spec.catalogue import OpChoice, choices
from opsieve.gen.spec.tensor import Tensor

NAME = "chains"
# Operators in the rewrites of onnxruntime (graph transformers of all levels), onnxoptimizer, onnxslim and onnxscript, by their sources; as many as the field has elements.
OPERATORS = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Sqrt",
    "Exp",
    "Erf",
    "Neg",
    "Abs",
    "Reciprocal",
    "Max",
    "Min",
    "Where",
    "Not",
    "Equal",
    "Cast",
    "Clip",
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "HardSigmoid",
    "Tanh",
    "Softmax",
    "LogSoftmax",
    "Dropout",
    "Identity",
    "MatMul",
    "Gemm",
    "Conv",
    "ConvTranspose",
    "BatchNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "AveragePool",
    "MaxPool",
    "GlobalAveragePool",
    "Pad",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Concat",
    "Split",
    "Slice",
    "Gather",
    "Expand",
    "Tile",
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ArgMax",
    "QuantizeLinear",
    "DequantizeLinear",
    "DepthToSpace",
    "Resize",
    "Shape",
    "TopK",
)
_FIELD = 59
_RECURRENCE = (2, 1, 3)  # of which the polynomial is primitive: the period is 59**3 - 1
_PERIOD = _FIELD**3 - 1
_PALETTES = (("float32",), ("float32",), ("float32",), ("float16",), ("float32", "int64"))
_READ = 0.55  # symbols for a node that is wished for: some take nodes that make the last result fit

Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ChainRates:
    """How often: `shared`, a result on the chain has another reader; `given`, it is an output."""

    shared: float = 0.25
    given: float = 0.1


_RATES = ChainRates()


def chains(request: GenRequest, seed: int) -> Case:
    """The program of a seed: as much of the sequence as the nodes wished for hold, and other nodes where operators are not there."""
    builder = start(request, seed, NAME, palettes=_PALETTES)
    table = builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    there = {choice.op.name: choice for choice in table}
    rng, last = builder.rng, None
    span = max(1, round(request.nodes * _READ))
    symbols = sequence(seed * span)
    for _ in range(4 * request.nodes):
        if builder.size >= request.nodes or builder.program.elements >= request.budget.elements:
            break
        choice = there.get(OPERATORS[next(symbols)])
        if choice is None:
            continue
        if last is not None and rng.chance(_RATES.shared):
            _laid(builder, rng.choice(table), last)
        last = _laid(builder, choice, last) or last
        if last is not None and rng.chance(_RATES.given):
            builder.program.exposed.append(last)
    fill(builder, request)
    return finish(builder, request, NAME, seed)


def _laid(builder: GraphBuilder, choice: OpChoice, last: Tensor | None) -> Tensor | None:
    """What a node of an operator gives that reads the last result, made to fit if need be; None where there is none."""
    mark, inner = len(builder.nodes), builder.program.inner
    x = adapt_first(builder, last, choice) if last is not None else None
    made = choice.op.instance(builder, builder.first(choice) if x is None else x)
    added = None if made is None else builder.add(choice.op, made.inputs, made.attributes, made.outputs)
    if not added:
        builder.undo(mark)
        builder.program.inner = inner
        return None
    return added[0]


def sequence(start: int) -> Iterator[int]:
    """The symbols from a place on, without end: the recurrence from 0, 0, 1."""
    state: list[int] = [row[2] for row in _power(start % _PERIOD)]
    while True:
        yield state[0]
        state = [*state[1:], sum(a * b for a, b in zip(_RECURRENCE, state, strict=True)) % _FIELD]


def _power(exponent: int) -> Matrix:
    """The matrix of so many steps."""
    found: Matrix = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    step: Matrix = ((0, 1, 0), (0, 0, 1), _RECURRENCE)
    while exponent:
        if exponent & 1:
            found = _product(found, step)
        step, exponent = _product(step, step), exponent >> 1
    return found


def _product(one: Matrix, other: Matrix) -> Matrix:
    columns = tuple(zip(*other, strict=True))
    return tuple(
        tuple(sum(a * b for a, b in zip(row, column, strict=True)) % _FIELD for column in columns) for row in one
    )
