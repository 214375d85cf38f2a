"""Intervals of values for every tensor of a model, pushed from its leaves through the declarations' `bounds`.

Every tensor gets an interval that holds all its elements (one interval per tensor, in float64; rounding of a
narrower type may exceed it by a few units in the last place), as long as all operators before it stayed in
their domains. If an operator's `safe` domain does not contain an operand, or a result may leave its type,
there is a `DomainViolation`; after it the push continues as if the operand had stayed inside. Interval
arithmetic (R. E. Moore, Interval Analysis, 1966) ignores dependencies between elements, so a violation means
"may", no violation means "cannot".
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from opsieve.gen.analysis.reading import known_values
from opsieve.gen.analysis.typed_graph import ODD, TypedGraph, TypedNode, span
from opsieve.gen.declarations.catalogue import has_bodies
from opsieve.gen.declarations.tensor import LARGEST, Bounds, Domain, Tensor
from opsieve.gen.model.structure import read_ports

# The largest finite number of each floating-point type.
FINITE = {"float64": 1.7e308, "float32": 3.4e38, "bfloat16": 3.3e38, "float16": 65504.0}
# The position of a violation by the result, which may leave its type.
RESULT = -1
# The position of a violation by a relation between operands.
RELATION = -2
# Turns of a loop after which a state that still grows is widened to its whole type, so that the push ends.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class DomainViolation:
    """A node (`place` in the graph's order) where numbers may be undefined or infinite.

    `position` is the operand that may leave `domain`, RESULT or RELATION; `tensor`, `low` and `high` tell
    what may leave. `amount` is by how much, for comparing two of the same node: 0 is inside.
    """

    place: int
    node: str
    operator: str
    position: int
    tensor: str
    domain: Domain
    low: float
    high: float
    amount: float


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from `low` to `high`, with the arithmetic that declarations' `relation`s use; torch tensors
    have the same.
    """

    low: float
    high: float

    def __neg__(self) -> "Interval":
        return Interval(-self.high, -self.low)

    def __add__(self, other: "Interval | float") -> "Interval":
        b = _interval(other)
        return Interval(self.low + b.low, self.high + b.high)

    def __sub__(self, other: "Interval | float") -> "Interval":
        return self + -_interval(other)

    def __mul__(self, other: "Interval | float") -> "Interval":
        b = _interval(other)
        # An end of infinity stands for large finite numbers, so zero times it is zero, not NaN.
        ends = [p * q if p and q else 0.0 for p in (self.low, self.high) for q in (b.low, b.high)]
        return Interval(min(ends), max(ends))

    def __radd__(self, other: float) -> "Interval":
        return self + other

    def __rsub__(self, other: float) -> "Interval":
        return -self + other

    def __rmul__(self, other: float) -> "Interval":
        return self * other

    def log(self) -> "Interval":
        """Return the logarithm; -inf for an interval without positive numbers."""
        return Interval(
            math.log(self.low) if self.low > 0 else -math.inf,
            math.log(self.high) if self.high > 0 else -math.inf,
        )

    def abs(self) -> "Interval":
        """Return the magnitude."""
        low = 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))
        return Interval(low, max(abs(self.low), abs(self.high)))


def _interval(value: "Interval | float") -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)


def first_violation(graph: TypedGraph, excused: Collection[int] = ()) -> DomainViolation | None:
    """Push the leaves' intervals through a graph up to the first violation of a node that is not excused.

    The tensors up to there hold their intervals afterwards.
    """
    return next(_push_nodes(graph, excused), None)


def unknown(graph: TypedGraph) -> list[str]:
    """List, after a push, the float tensors without bounds (an operator without a declaration, a missing
    type).
    """
    return [
        tensor.name
        for tensor in graph.tensors()
        if (not tensor.dtype or "float" in tensor.dtype)
        and not (math.isfinite(tensor.low) and math.isfinite(tensor.high))
    ]


def _push_nodes(graph: TypedGraph, excused: Collection[int]) -> Iterator[DomainViolation]:
    for place, step in enumerate(graph.nodes):
        met = push(step, place)
        if met is not None and place not in excused:
            yield met


def push(step: TypedNode, place: int) -> DomainViolation | None:
    """Set the intervals of a step's outputs from those of its inputs; what may leave a domain."""
    if step.bodies and has_bodies(step.operator):
        return _bodies(step, place)
    op = step.op
    if op is None or not step.is_typed:
        _set(step, None, False)
        return None
    met = None
    kept: list[tuple[Tensor, float, float]] = []
    for position, domain in enumerate(op.safe):
        tensor = step.ins[position] if position < len(step.ins) else None
        if tensor is None or tensor.dtype == "bool" or tensor.within(domain) or not math.prod(tensor.shape):
            continue
        met = met or _operand(step, place, position, tensor, domain)
        kept.append((tensor, tensor.low, tensor.high))
        tensor.low, tensor.high = _inside(tensor, domain)
    try:
        found = op.bounds(step.ins, step.attrs)  # type: ignore[arg-type]
    except ODD:
        # Instances that the rules do not cover are left open.
        found = None
    for tensor, low, high in reversed(kept):
        tensor.low, tensor.high = low, high
    finite = all(
        tensor is None or (math.isfinite(tensor.low) and math.isfinite(tensor.high))
        for tensor in step.ins
        if tensor is None or "float" in tensor.dtype
    )
    left = _set(step, found, finite)
    values = known_values(step.operator, step.ins, step.attrs, step.outs[0]) if len(step.outs) == 1 else None
    if values:
        step.outs[0].values, step.outs[0].low, step.outs[0].high = values, min(values), max(values)
    if met is None and left is not None:
        met = _result(step, place, left)
    return met


def _set(
    step: TypedNode, found: Bounds | Sequence[Bounds] | None, finite: bool
) -> tuple[Tensor, float, float] | None:
    """Give the outputs their intervals; returns the first float output that may leave its type, with its
    interval before clipping.

    If operands are not `finite` it is ignored: an earlier violation already reported it, or their intervals
    are unknown.
    """
    left = None
    for place, tensor in enumerate(step.outs):
        widest = span(tensor.dtype)
        low, high = widest
        if found is not None:
            if isinstance(found, list):
                low, high = found[place] if place < len(found) else widest
            else:
                low, high = found  # type: ignore[assignment]
            if isinstance(low, complex) or isinstance(high, complex) or math.isnan(low) or math.isnan(high):
                low, high = widest
        limit = FINITE.get(tensor.dtype)
        if limit is None:
            if low < widest[0] or high > widest[1]:
                # Integers wrap around, so the result may be anything.
                low, high = widest
        elif finite and (low < -limit or high > limit):
            left = left or (tensor, low, high)
            room = LARGEST[tensor.dtype]
            low, high = (-room, room) if found is not None else widest
        tensor.low, tensor.high = low, high
    return left


def _inside(tensor: Tensor, domain: Domain) -> Bounds:
    """Return the part of a tensor's interval inside a domain, or the nearer end of the domain."""
    low, high = max(tensor.low, domain.low), min(tensor.high, domain.high)
    if low > high:
        low = high = domain.low if tensor.high < domain.low else domain.high
    if domain.nonzero and low <= 0 <= high:
        low, high = _nonzero(tensor, low, high)
    return low, high


def _nonzero(tensor: Tensor, low: float, high: float) -> Bounds:
    least = 1.0 if "int" in tensor.dtype else 1e-3
    if high >= least:
        return least, high
    return (low, -least) if low <= -least else (least, least)


def _operand(step: TypedNode, place: int, position: int, tensor: Tensor, domain: Domain) -> DomainViolation:
    low, high = tensor.low, tensor.high
    amount = _measure(max(domain.low - low, 0.0)) + _measure(max(high - domain.high, 0.0))
    if domain.nonzero and low <= 0 <= high:
        amount += _measure(min(-low, high) + 1e-3)
    return DomainViolation(place, step.name, step.operator, position, tensor.name, domain, low, high, amount)


def _result(step: TypedNode, place: int, left: tuple[Tensor, float, float]) -> DomainViolation:
    """Describe a result that may leave its type: by the declaration's relation if it has one, else by the
    sizes of the operands.
    """
    tensor, low, high = left
    limit = FINITE[tensor.dtype]
    op = step.op
    given = [t for t in step.ins if t is not None]
    if op is not None and op.relation is not None and len(given) == len(step.ins):
        asked = op.relation(*(Interval(t.low, t.high) for t in given))
        amount = sum(_measure(-found.low) for found in asked if found.low < 0)
        if amount:
            return DomainViolation(
                place,
                step.name,
                step.operator,
                RELATION,
                tensor.name,
                Domain(-limit, limit),
                low,
                high,
                amount,
            )
    amount = sum(_measure(t.high - t.low) + _measure(t.size) for t in given if "float" in t.dtype)
    return DomainViolation(
        place, step.name, step.operator, RESULT, tensor.name, Domain(-limit, limit), low, high, amount + 1
    )


def _measure(distance: float) -> float:
    """Map a distance to a logarithmic scale, so that 1e-3 and 1e30 can be added; 1e9 if it is infinite."""
    return math.log1p(distance * 1e3) if math.isfinite(distance) else 1e9


# Bodies: their inputs take the intervals of what they are handed, states are joined turn by turn until they
# no longer grow.


def _bodies(step: TypedNode, place: int) -> DomainViolation | None:
    met: list[DomainViolation] = []

    def turn(body: TypedGraph) -> None:
        met.extend(_push_nodes(body, ()))

    if step.operator == "If":
        for body in step.bodies.values():
            turn(body)
        for at, out in enumerate(step.outs):
            ends = [body.outputs[at] for body in step.bodies.values() if at < len(body.outputs)]
            if ends:
                out.low, out.high = min(t.low for t in ends), max(t.high for t in ends)
    elif step.operator == "SequenceMap":
        body = step.bodies["body"]
        _hand(body.inputs, step.ins)
        turn(body)
        _take(step.outs, body.outputs)
    else:
        _push_loop(step, turn)
    if not met:
        return None
    inner = met[0]
    return DomainViolation(
        place,
        step.name,
        step.operator,
        RESULT,
        inner.tensor,
        inner.domain,
        inner.low,
        inner.high,
        sum(item.amount for item in met),
    )


def _push_loop(step: TypedNode, turn: "Callable[[TypedGraph], None]") -> None:
    body = step.bodies["body"]
    ports = read_ports(step.operator, len(step.ins), int(step.attrs.get("num_scan_inputs", 0)))
    if step.operator == "Loop":
        for tensor, (low, high) in zip(body.inputs, ((0.0, 2.0**31), (0.0, 1.0)), strict=False):
            tensor.low, tensor.high = low, high
        if step.ins and step.ins[0] is not None and body.inputs:
            # The first input of a Loop's body counts its turns from 0.
            body.inputs[0].high = max(step.ins[0].high - 1, 0.0)
    _hand(body.inputs[ports.inputs :], step.ins[ports.operands :])
    carried, made = body.inputs[ports.inputs :][: ports.states], body.outputs[ports.results :]
    starts = [(tensor.low, tensor.high) for tensor in carried]
    # From _ROUNDS on each turn widens at least one end for good, so twice as many turns as states suffice.
    for count in range(_ROUNDS + 2 * len(carried) + 1):
        turn(body)
        grows = [(a, b) for a, b in zip(carried, made, strict=False) if b.low < a.low or b.high > a.high]
        if not grows:
            break
        for a, b in grows:
            wide = span(a.dtype) if count >= _ROUNDS - 1 else (b.low, b.high)
            a.low, a.high = (
                min(a.low, wide[0]) if b.low < a.low else a.low,
                max(a.high, wide[1]) if b.high > a.high else a.high,
            )
    # The results of a turn from the widened states are sound too, and narrower.
    for a, b, (low, high) in zip(carried, made, starts, strict=False):
        a.low, a.high = min(low, b.low), max(high, b.high)
    _take(step.outs, [*carried, *made[ports.states :]])


def _hand(inputs: Sequence[Tensor], given: Sequence[Tensor | None]) -> None:
    for tensor, source in zip(inputs, given, strict=False):
        tensor.low, tensor.high = (source.low, source.high) if source is not None else span(tensor.dtype)
        if source is not None and (not tensor.dtype or (not tensor.shape and source.shape)):
            tensor.dtype = tensor.dtype or source.dtype.rpartition("(")[2].rstrip(")")


def _take(outs: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    for tensor, source in zip(outs, given, strict=False):
        tensor.low, tensor.high = source.low, source.high
