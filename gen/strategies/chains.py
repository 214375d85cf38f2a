"""Programs of chains of operators which optimisers rewrite, so that all chains of three of them come up as
soon as may be.

Which operator comes next says a linear recurrence over a prime field whose period is as long as can be: each
window of three of its symbols comes once before any comes again (Golomb, Shift Register Sequences, 1967,
chapter III). A seed tells where in the sequence a program begins, without those before it. Of the next few
symbols that is taken first which a recent result fits as it is: what makes it fit would stand between the
two. Now and then what comes next is a rewrite that an optimiser lists (rewrites.txt), or a near miss of one,
so that rewrites meet.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from opsieve.gen.case.case import Case
from opsieve.gen.declarations.builder import Style
from opsieve.gen.declarations.catalogue import OpChoice, choices
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.graph.adapters import adapt_first, count_steps_first
from opsieve.gen.graph.graph import is_closed
from opsieve.gen.graph.graph_builder import GraphBuilder

NAME: Final = "chains"
_TABLE: Final = Path(__file__).with_name("rewrites.txt")
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
_FIELD: Final = 59
_RECURRENCE: Final = (2, 1, 3)  # of which the polynomial is primitive: the period is 59**3 - 1
_PERIOD: Final = _FIELD**3 - 1
_PALETTES: Final = (("float32",), ("float32",), ("float16",), ("float16",), ("float32", "int64"))
_AHEAD: Final = 4  # symbols that wait
_ENDS: Final = 1  # results before the last that a chain may go on from
_READ: Final = 0.55  # symbols for a node that is wished for: some take nodes that make the last result fit

_LEAPS = 64  # the place to begin at is reached by a leap for each digit of it in this base

Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ChainRates:
    """How often: `listed`, what comes next is a rewrite of the table, of which at the rate `missed` one
    operator is another, missing, or has a neighbour more; `fixed`, the further inputs of one are parameters
    rather than results; `in_body`, it stands in a body; `shared`, a chain goes on from a result before the
    last; `given`, a result on the chain is an output.
    """

    listed: float = 0.1
    missed: float = 0.3
    fixed: float = 0.6
    in_body: float = 0.03
    shared: float = 0.15
    given: float = 0.1


_RATES: Final = ChainRates()
_PARAMETERS: Final = 0.1  # of further inputs are results where they are to be parameters


def chains(request: GenRequest, seed: int) -> Case:
    """The program of a seed."""
    return finish(chained(request, seed), request, NAME, seed)


def chained(request: GenRequest, seed: int) -> GraphBuilder:
    """As much of the sequence and as many rewrites as the nodes wished for hold, and other nodes where
    operators are not there.
    """
    builder = start(request, seed, NAME, palettes=_PALETTES)
    builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    there, bodied = _table(builder.opset, request.only, request.dtypes)
    builder.program.plant = lambda body: _rewrite(body, there, [])
    rng, ends = builder.rng, list[Tensor]()
    span = max(1, round(request.nodes * _READ))
    symbols, waiting = sequence(seed * span), list[OpChoice]()
    for _ in range(4 * request.nodes):
        if builder.size >= request.nodes or builder.program.elements >= request.budget.elements:
            break
        if bodied and rng.chance(_RATES.in_body):
            builder.grow(rng.choice(bodied))
        if len(ends) > 1 and rng.chance(_RATES.shared):
            ends.append(ends.pop(rng.below(len(ends) - 1)))
        if rng.chance(_RATES.listed):
            _rewrite(builder, there, ends)
            continue
        waiting += [
            there[name]
            for name in (OPERATORS[symbol] for symbol in islice(symbols, _AHEAD - len(waiting)))
            if name in there
        ]
        if waiting:
            choice, end = _next(waiting, ends, builder.style.ranged)
            _go_on(builder, choice, end, ends)
    fill(builder, request)
    return builder


@functools.cache
def _table(
    opset: int, only: frozenset[str] | None, dtypes: frozenset[str] | None
) -> tuple[dict[str, OpChoice], list[OpChoice]]:
    """What may be drawn by name, and what has bodies."""
    table = choices(opset, only, dtypes)
    return {choice.op.name: choice for choice in table}, [
        each for each in table if each.op.family == _WITH_BODIES
    ]


def _rewrite(builder: GraphBuilder, there: Mapping[str, OpChoice], ends: list[Tensor]) -> None:
    """Lay what a rewrite looks for behind the last result, or a near miss of it."""
    rng, style = builder.rng, builder.style
    drawn = [each for each in (rng.choice(rewrites()) for _ in range(_AHEAD)) if each[0] in there]
    if not drawn:
        return
    first, end = _next([there[each[0]] for each in drawn], ends, style.ranged)
    listed = list(next(each for each in drawn if each[0] == first.op.name))
    if rng.chance(_RATES.missed):
        place = rng.below(len(listed))
        listed[place : place + rng.below(2)] = rng.choice(([], [rng.choice(OPERATORS)]))
    if rng.chance(_RATES.fixed):
        builder.style = _with_parameters(style)
    for name in listed:
        if name in there:
            _go_on(builder, there[name], end, ends)
            end = ends[-1] if ends else None
    builder.style = style


def _go_on(builder: GraphBuilder, choice: OpChoice, end: Tensor | None, ends: list[Tensor]) -> None:
    """Lay an operator behind a result; what it gives is the last of the ends of chains."""
    made = _laid(builder, choice, end)
    if made is not None and is_closed(made.shape):
        ends[:] = [*ends[-_ENDS:], made]
        if builder.rng.chance(_RATES.given) and builder.scope.outer is None:
            builder.program.exposed.append(made)


@functools.cache
def rewrites() -> tuple[tuple[str, ...], ...]:
    """What optimisers look for, by the table: operators in a row."""
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.partition(";")[0].split()) for line in lines if line and not line.startswith("#"))


def _next(waiting: list[OpChoice], ends: Sequence[Tensor], ranged: bool) -> tuple[OpChoice, Tensor | None]:
    """An operator that waits and a result that it takes as it is, late results first; else the first
    operator: what makes a result fit would stand between the two.
    """
    for end in reversed(ends):
        for place, choice in enumerate(waiting):
            if not count_steps_first(end, choice, ranged):
                return waiting.pop(place), end
    return waiting.pop(0), ends[-1] if ends else None


def _laid(builder: GraphBuilder, choice: OpChoice, last: Tensor | None) -> Tensor | None:
    """What a node of an operator gives that reads the last result, made to fit if need be; None where there
    is none.
    """
    mark, inner = len(builder.nodes), builder.program.inner
    x = adapt_first(builder, last, choice) if last is not None else None
    made = builder.instance(choice.op, builder.first(choice) if x is None else x)
    added = None if made is None else builder.add(choice.op, made.inputs, made.attributes, made.outputs)
    if not added:
        builder.undo(mark)
        builder.program.inner = inner
        return None
    return added[0]


def sequence(start: int) -> Iterator[int]:
    """The symbols from a place on, without end: the recurrence from 0, 0, 1."""
    x, y, z = 0, 0, 1
    place, scale = start % _PERIOD, 1
    while place:
        place, digit = divmod(place, _LEAPS)
        if digit:
            a, b, c = _leap(digit * scale)
            x, y, z = _dot(a, x, y, z), _dot(b, x, y, z), _dot(c, x, y, z)
        scale *= _LEAPS
    while True:
        yield x
        x, y, z = y, z, _dot(_RECURRENCE, x, y, z)


def _dot(row: Row, x: int, y: int, z: int) -> int:
    return (row[0] * x + row[1] * y + row[2] * z) % _FIELD


@functools.cache
def _leap(steps: int) -> tuple[Row, Row, Row]:
    """The matrix of so many steps: some hundreds are asked for in all."""
    one = ((0, 1, 0), (0, 0, 1), _RECURRENCE)
    if steps == 1:
        return one
    half = _leap(steps // 2)
    found = _product(half, half)
    return _product(found, one) if steps % 2 else found


def _product(one: tuple[Row, Row, Row], other: tuple[Row, Row, Row]) -> tuple[Row, Row, Row]:
    first, second, third = zip(*other, strict=True)
    a, b, c = ((_dot(row, *first), _dot(row, *second), _dot(row, *third)) for row in one)
    return a, b, c


@functools.lru_cache(maxsize=4096)
def _with_parameters(style: Style) -> Style:
    """A style in which further inputs are parameters."""
    return replace(style, pick=_PARAMETERS)
