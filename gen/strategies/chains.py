"""Programs that are chains of operators which optimisers rewrite, covering all chains of three as soon as
possible.

A linear recurrence over a prime field of maximal period names the next operator: each window of three symbols
occurs once before any recurs (Golomb, Shift Register Sequences, 1967, chapter III). The seed chooses where a
program begins in the sequence. Among the next few symbols the first one that fits a recent result unchanged
is taken, because an adapter would stand between the two. At times a listed rewrite of an optimiser
(rewrites.txt), or a near miss of one, comes next, so that rewrites meet.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from opsieve.gen.case.case import Case
from opsieve.gen.declarations.builder import Style
from opsieve.gen.declarations.catalogue import OpChoice, choices
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.graph import adapters, graph, graph_builder
from opsieve.gen.strategies.patterns.strategy import Planter, load_rewrites

NAME: Final = "chains"
_WITH_BODIES: Final = "control"
# Operators in the rewrites of onnxruntime (graph transformers of all levels), onnxoptimizer, onnxslim and
# onnxscript, by their sources; as many as the field has elements.
OPERATORS: Final = (
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
# The number of operators above. It must be prime: the recurrence below visits all chains of three once only
# over a field.
_FIELD: Final = 59
# The polynomial is primitive, so the period is 59**3 - 1.
_RECURRENCE: Final = (2, 1, 3)
_PERIOD: Final = _FIELD**3 - 1
_PALETTES: Final = (("float32",), ("float32",), ("float16",), ("float16",), ("float32", "int64"))
# The symbols among which the first one that fits is taken.
_AHEAD: Final = 4
# The number of results before the last from which a chain may continue.
_ENDS: Final = 1
# The cost of a desired node in symbols: some need adapters for the last result.
_READ: Final = 0.55

# The base of the leaps to a start: one leap for each digit instead of one step for each symbol.
_LEAPS = 64

Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ChainRates:
    """How often: `planted`, the next nodes are a rewrite in one of its states; `listed`, they are its
    operators with drawn parameters, of which at the rate `missed` one differs, is missing or has an extra
    neighbour; `fixed`, further inputs are parameters; `in_body`, a rewrite stands in a body; `shared`, a
    chain continues from a result before the last; `given`, a result on the chain is an output.
    """

    planted: float = 0.15
    listed: float = 0.1
    missed: float = 0.3
    fixed: float = 0.6
    in_body: float = 0.03
    shared: float = 0.15
    given: float = 0.1


_RATES: Final = ChainRates()
# The usual number of rewrites in a program: the next seed begins so many states later.
_REWRITES: Final = 2
# The share of further inputs that are results although parameters are usual there.
_PARAMETERS: Final = 0.1


def chains(request: GenRequest, seed: int) -> Case:
    """Make the program of a seed."""
    return finish(grow_chains(request, seed), request, NAME, seed)


def grow_chains(request: GenRequest, seed: int) -> graph_builder.GraphBuilder:
    """Grow chains and rewrites up to the requested nodes, and other nodes where operators are missing."""
    builder = start(request, seed, NAME, palettes=_PALETTES)
    builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    there, bodied = _list_drawable(builder.opset, request.only, request.dtypes)
    planter = Planter(seed * _REWRITES)
    builder.program.plant = planter.plant_rewrite
    rng, ends = builder.rng, list[Tensor]()
    span = max(1, round(request.nodes * _READ))
    symbols, waiting = iterate_symbols(seed * span), list[OpChoice]()
    # A symbol that fits no live tensor is skipped, so there are more turns than nodes.
    for _ in range(4 * request.nodes):
        if builder.size >= request.nodes or builder.program.elements >= request.budget.elements:
            break
        if bodied and rng.chance(_RATES.in_body):
            builder.grow(rng.choice(bodied))
        if len(ends) > 1 and rng.chance(_RATES.shared):
            ends.append(ends.pop(rng.below(len(ends) - 1)))
        if rng.chance(_RATES.listed):
            _add_row(builder, there, ends)
            continue
        if rng.chance(_RATES.planted):
            made = planter.plant_rewrite(builder, ends[-1] if ends else None)
            ends[:] = [*ends[-_ENDS:], made] if made is not None else ends
            continue
        waiting += [
            there[name]
            for name in (OPERATORS[symbol] for symbol in islice(symbols, _AHEAD - len(waiting)))
            if name in there
        ]
        if waiting:
            choice, end = _choose_next(waiting, ends, builder.style.ranged)
            _extend_chain(builder, choice, end, ends)
    fill(builder, request)
    return builder


@functools.cache
def _list_drawable(
    opset: int, only: frozenset[str] | None, dtypes: frozenset[str] | None
) -> tuple[dict[str, OpChoice], list[OpChoice]]:
    """List the operators that may be drawn by name, and those with bodies."""
    table = choices(opset, only, dtypes)
    return {choice.op.name: choice for choice in table}, [
        each for each in table if each.op.family == _WITH_BODIES
    ]


def _add_row(builder: graph_builder.GraphBuilder, there: Mapping[str, OpChoice], ends: list[Tensor]) -> None:
    """Add the operators of a rewrite after the last result, with drawn parameters, or a near miss of them."""
    rng, style = builder.rng, builder.style
    drawn = [each for each in (rng.choice(_list_rows()) for _ in range(_AHEAD)) if each[0] in there]
    if not drawn:
        return
    first, end = _choose_next([there[each[0]] for each in drawn], ends, style.ranged)
    listed = list(next(each for each in drawn if each[0] == first.op.name))
    if rng.chance(_RATES.missed):
        place = rng.below(len(listed))
        listed[place : place + rng.below(2)] = rng.choice(([], [rng.choice(OPERATORS)]))
    if rng.chance(_RATES.fixed):
        builder.style = _use_parameters(style)
    for name in listed:
        if name in there:
            _extend_chain(builder, there[name], end, ends)
            end = ends[-1] if ends else None
    builder.style = style


def _extend_chain(
    builder: graph_builder.GraphBuilder, choice: OpChoice, end: Tensor | None, ends: list[Tensor]
) -> None:
    """Add an operator behind a result; its output becomes the last of the ends of chains."""
    made = _add_reader(builder, choice, end)
    if made is not None and graph.is_closed(made.shape):
        ends[:] = [*ends[-_ENDS:], made]
        if builder.rng.chance(_RATES.given) and builder.scope.outer is None:
            builder.program.exposed.append(made)


@functools.cache
def _list_rows() -> tuple[tuple[str, ...], ...]:
    """List the operators of each rewrite that has several."""
    return tuple(
        dict.fromkeys(rewrite.operators for rewrite in load_rewrites() if len(rewrite.operators) > 1)
    )


def _choose_next(
    waiting: list[OpChoice], ends: Sequence[Tensor], ranged: bool
) -> tuple[OpChoice, Tensor | None]:
    """Choose a waiting operator and a result that it takes unchanged, late results first; else the first
    operator.
    """
    for end in reversed(ends):
        for place, choice in enumerate(waiting):
            if not adapters.count_steps_first(end, choice, ranged):
                return waiting.pop(place), end
    return waiting.pop(0), ends[-1] if ends else None


def _add_reader(builder: graph_builder.GraphBuilder, choice: OpChoice, last: Tensor | None) -> Tensor | None:
    """Add an operator that reads the last result, adapted if necessary, and return its output; None if that
    fails.
    """
    mark, inner = len(builder.nodes), builder.program.inner
    x = adapters.adapt_first(builder, last, choice) if last is not None else None
    made = builder.instance(choice.op, builder.first(choice) if x is None else x)
    added = None if made is None else builder.add(choice.op, made.inputs, made.attributes, made.outputs)
    if not added:
        builder.undo(mark)
        builder.program.inner = inner
        return None
    return added[0]


def iterate_symbols(start: int) -> Iterator[int]:
    """Yield the symbols from a place on, without end; the recurrence begins with 0, 0, 1."""
    x, y, z = 0, 0, 1
    place, scale = start % _PERIOD, 1
    while place:
        place, digit = divmod(place, _LEAPS)
        if digit:
            a, b, c = _compute_power(digit * scale)
            x, y, z = _multiply_row(a, x, y, z), _multiply_row(b, x, y, z), _multiply_row(c, x, y, z)
        scale *= _LEAPS
    while True:
        yield x
        x, y, z = y, z, _multiply_row(_RECURRENCE, x, y, z)


def _multiply_row(row: Row, x: int, y: int, z: int) -> int:
    """Multiply a row with a column, modulo the size of the field."""
    return (row[0] * x + row[1] * y + row[2] * z) % _FIELD


@functools.cache
def _compute_power(steps: int) -> tuple[Row, Row, Row]:
    """Return the matrix of so many steps; some hundreds occur in all."""
    one = ((0, 1, 0), (0, 0, 1), _RECURRENCE)
    if steps == 1:
        return one
    half = _compute_power(steps // 2)
    found = _multiply_matrices(half, half)
    return _multiply_matrices(found, one) if steps % 2 else found


def _multiply_matrices(one: tuple[Row, Row, Row], other: tuple[Row, Row, Row]) -> tuple[Row, Row, Row]:
    """Multiply two matrices over the field."""
    first, second, third = zip(*other, strict=True)
    a, b, c = (
        (_multiply_row(row, *first), _multiply_row(row, *second), _multiply_row(row, *third)) for row in one
    )
    return a, b, c


@functools.lru_cache(maxsize=4096)
def _use_parameters(style: Style) -> Style:
    """Return a style in which further inputs are parameters."""
    return replace(style, pick=_PARAMETERS, computed=0.0)
