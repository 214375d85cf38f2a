"""Control flow with generated bodies: If, Loop, Scan.

A body is generated like a program, from its inputs and the tensors of the enclosing graph. The outputs of a
branch, and the values a loop carries, must have one fixed type: the generator picks a body tensor of that
type and limits its interval with a Clip. Sources: the ONNX operator pages of If, Loop and Scan.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import catalogue, declaration, instance
from opsieve.gen.declarations.builder import Builder
from opsieve.gen.declarations.tensor import (
    LARGEST,
    LEAST,
    NUMERIC,
    Attributes,
    Domain,
    Ins,
    Tensor,
    Typed,
    exact,
)
from opsieve.gen.graph.graph import BodyGraph
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.operators.elementwise import OPERATORS as ELEMENTWISE

# The deepest nesting of bodies; each level multiplies the nodes of a program.
_DEPTH = 2
_DTYPES = (*NUMERIC, "bool")
_SIMPLE = tuple(
    catalogue.OpChoice(
        operator,
        frozenset(("float32",)),
        ("float32",),
        *operator.ranks,
        operator.safe[0] if operator.safe else Domain(),
    )
    for operator in ELEMENTWISE
    if operator.name in ("Add", "Mul", "Sub", "Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Max", "Min")
)


def _grow(body: GraphBuilder) -> None:
    """Add a few nodes of the requested operators, or a structure that the strategy plants."""
    rng, plant = body.rng, body.program.plant
    if plant is not None and rng.random() < body.style.rates.planted_body:
        plant(body)
        if body.nodes:
            return
    from_all = body.program.choices or _SIMPLE
    for _ in range(rng.between(1, 3)):
        body.grow(from_all[rng.below(len(from_all))])


def _give_output(body: GraphBuilder, tensor: Tensor) -> Tensor:
    """Return the tensor under a name that the body itself makes, because a body cannot output an outer value
    or its own input.
    """
    made = {id(out) for node in body.nodes for out in node.outs}
    if id(tensor) in made:
        return tensor
    return body.emit("Identity", "", [tensor], {}, [(tensor.dtype, tensor.shape)], (tensor.low, tensor.high))[
        0
    ]


def _distinct(given: Sequence[Tensor]) -> bool:
    """Return whether all tensors are different: the outputs of a graph need names of their own."""
    return len({id(tensor) for tensor in given}) == len(given)


def _own(body: GraphBuilder, dtypes: tuple[str, ...] = _DTYPES) -> list[Tensor]:
    """List the tensors that the body's nodes make, if their sizes are known and their dtype is one of
    `dtypes`.
    """
    return [
        out
        for node in body.nodes
        for out in node.outs
        if out.name and out.dtype in dtypes and str not in map(type, out.shape)
    ]


def _typed_like(body: GraphBuilder, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of a type, preferably one that the body itself makes."""
    own = [tensor for tensor in _own(body) if tensor.dtype == dtype and tensor.shape == shape]
    return body.rng.choice(own) if own else body.match(dtype, shape)


def _clip_tensor(body: GraphBuilder, tensor: Tensor, low: float, high: float) -> Tensor | None:
    """Clip the tensor to an interval; returns `None` if Clip does not support its type."""
    if low <= tensor.low and tensor.high <= high:
        return tensor
    had = catalogue.form("Clip", body.opset)
    if had is None or tensor.dtype not in had.dtypes(0) or tensor.dtype == "bool":
        return None
    bounds = [body.ints([bound], tensor.dtype, ()) for bound in (low, high)]
    return body.emit("Clip", "", [tensor, *bounds], {}, [(tensor.dtype, tensor.shape)], (low, high))[0]


def in_graph(sample: Callable[[GraphBuilder, Tensor], instance.Instance | None]) -> declaration.Sampler:
    """Make a sampler that adds nodes of its own, which requires numeric sizes."""

    def sampler(builder: Builder, x: Tensor) -> instance.Instance | None:
        assert isinstance(builder, GraphBuilder), "nodes with bodies are not drawn with open sizes"
        return sample(builder, x)

    return sampler


def _if(builder: GraphBuilder, condition: Tensor) -> instance.Instance | None:
    if builder.scope.depth >= _DEPTH:
        return None
    rng = builder.rng
    first, second = builder.start_body(), builder.start_body()
    _grow(first)
    # Without nodes of its own the branch only passes a value through.
    if rng.random() < builder.style.rates.branch_grown:
        _grow(second)
    allowed = builder.takes("If", "V")
    own = [tensor for tensor in _own(first) if tensor.dtype in allowed]
    chosen = [tensor for tensor in own if rng.random() < builder.style.rates.handed_on][:3] or own[-1:]
    if not chosen:
        chosen = [first.match(rng.choice(("float32", "int64")), builder.shape(0, 3))]
    others = [_give_output(second, _typed_like(second, tensor.dtype, tensor.shape)) for tensor in chosen]
    chosen = [_give_output(first, tensor) for tensor in chosen]
    # A graph cannot list one value twice among its outputs.
    if not (_distinct(others) and _distinct(chosen)):
        return None
    return instance.Instance(
        [condition],
        {
            "then_branch": BodyGraph((), first.nodes, chosen),
            "else_branch": BodyGraph((), second.nodes, others),
        },
    )


def _add_input(
    builder: GraphBuilder, body: GraphBuilder, dtype: str, shape: tuple[int, ...], low: float, high: float
) -> Tensor:
    """Add an input to the body."""
    tensor = Tensor(builder.program.make_name("b"), dtype, shape, low, high)
    body.scope.add_tensor(tensor)
    return tensor


def _draw_carried(builder: GraphBuilder, body: GraphBuilder, name: str) -> tuple[list[Tensor], list[Tensor]]:
    """Draw the values that a loop carries: their initial values, and body inputs whose interval holds in
    every iteration.
    """
    starts, inputs = [], []
    allowed = builder.takes(name, "V") & frozenset(_DTYPES)
    for _ in range(builder.rng.choice((0, 1, 1, 2))):
        start = builder.pick(allowed, 0, 4) or builder.leaf(
            builder.choose_dtype(allowed), builder.shape(0, 3)
        )
        # Tensors without elements hide differences, since any result of them compares equal.
        if math.prod(start.shape) == 0:
            continue
        # A carried value starts inside this interval and is clipped to it after each turn, so it holds in
        # every turn.
        low, high = (
            max(LEAST[start.dtype], min(start.low, -4.0)),
            min(LARGEST[start.dtype], max(start.high, 4.0)),
        )
        starts.append(start)
        inputs.append(_add_input(builder, body, start.dtype, start.shape, math.ceil(low), math.floor(high)))
    return starts, inputs


def _make_next_turn(body: GraphBuilder, inputs: Sequence[Tensor]) -> list[Tensor] | None:
    """Choose the carried values of the next iteration, one per body input; returns `None` if one cannot be
    clipped.
    """
    outputs = []
    for tensor in inputs:
        found = _clip_tensor(body, _typed_like(body, tensor.dtype, tensor.shape), tensor.low, tensor.high)
        if found is None:
            return None
        outputs.append(_give_output(body, found))
    return outputs


def _make_results(
    body: GraphBuilder, states: Sequence[Tensor], name: str
) -> tuple[list[Tensor], list[Tensor]] | None:
    """Fill a body and return its results: the next states, then the values that are stacked; `None` if there
    are neither.
    """
    _grow(body)
    outputs = _make_next_turn(body, states)
    if outputs is None:
        return None
    used = {id(tensor) for tensor in outputs}
    allowed = body.takes(name, "V")
    free = [tensor for tensor in _own(body) if tensor.dtype in allowed and id(tensor) not in used]
    collected = [tensor for tensor in free if body.rng.random() < body.style.rates.handed_on][:2]
    return (outputs, collected) if outputs or collected else None


def _loop(builder: GraphBuilder, x: Tensor) -> instance.Instance | None:
    if builder.scope.depth >= _DEPTH:
        return None
    rng, body = builder.rng, builder.start_body()
    trips = rng.between(1, 4)
    number = _add_input(builder, body, "int64", (), 0.0, trips - 1.0)
    going = _add_input(builder, body, "bool", (), 0.0, 1.0)
    starts, inputs = _draw_carried(builder, body, "Loop")
    results = _make_results(body, inputs, "Loop")
    if results is None:
        return None
    outputs, collected = results
    # Without a turn the stacked values would be empty tensors.
    if not collected and rng.random() < builder.style.rates.no_turn:
        trips = 0
    if not collected and rng.random() < builder.style.rates.early_end:
        last = body.ints([rng.between(0, 2)], "int64", ())
        go_on = body.emit("Less", "", [number, last], {}, [("bool", ())], (0.0, 1.0))[0]
    else:
        go_on = body.emit("Identity", "", [going], {}, [("bool", ())], (0.0, 1.0))[0]
    given = [go_on, *outputs, *collected]
    if not _distinct(given):
        return None
    condition = builder.ints([1], "bool", ()) if rng.random() < builder.style.rates.loop_condition else None
    attrs: Attributes = {"body": BodyGraph((number, going, *inputs), body.nodes, given)}
    return instance.Instance(
        [builder.ints([trips], "int64", rng.choice(((), (1,)))), condition, *starts], attrs
    )


def _loop_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    values = ins[0].values
    assert values is not None
    # A Loop's first two inputs are the trip count and the condition; its body yields the condition first.
    outputs, count = attrs["body"].outputs[1:], len(ins) - 2
    return [
        (tensor.dtype, tensor.shape if place < count else (int(values[0]), *tensor.shape))
        for place, tensor in enumerate(outputs)
    ]


def _scan(builder: GraphBuilder, x: Tensor) -> instance.Instance | None:
    """Draw a Scan: states first, then tensors that are scanned along an axis, forwards or backwards."""
    if builder.scope.depth >= _DEPTH:
        return None
    rng, body = builder.rng, builder.start_body()
    starts, states = _draw_carried(builder, body, "Scan")
    axis = rng.below(x.rank) if rng.random() < builder.style.rates.other_scan_axis else 0
    length = x.shape[axis]
    apart = [(x, axis)]
    if rng.random() < builder.style.rates.second_scan:
        apart.append((builder.match(x.dtype, (length, *x.shape[:axis], *x.shape[axis + 1 :])), 0))
    slices = [
        _add_input(
            builder,
            body,
            tensor.dtype,
            (*tensor.shape[:at], *tensor.shape[at + 1 :]),
            tensor.low,
            tensor.high,
        )
        for tensor, at in apart
    ]
    results = _make_results(body, states, "Scan")
    if results is None:
        return None
    outputs, collected = results
    given = [*outputs, *collected]
    if not _distinct(given):
        return None
    attrs: Attributes = {
        "num_scan_inputs": len(apart),
        "body": BodyGraph((*states, *slices), body.nodes, given),
    }
    # The page: by default every scanned input is scanned along axis 0.
    if axis or len(apart) > 1:
        attrs["scan_input_axes"] = [at for _, at in apart]
    if rng.random() < builder.style.rates.unlikely_attribute:
        attrs["scan_input_directions"] = [rng.below(2) for _ in apart]
    if collected and rng.random() < builder.style.rates.unlikely_attribute:
        attrs["scan_output_directions"] = [rng.below(2) for _ in collected]
    if collected and rng.random() < builder.style.rates.rare_attribute:
        attrs["scan_output_axes"] = [rng.between(0, tensor.rank) for tensor in collected]
    return instance.Instance([*starts, *(tensor for tensor, _ in apart)], attrs)


def _scan_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    apart = attrs["num_scan_inputs"]
    states = len(ins) - apart
    length = ins[states].shape[attrs.get("scan_input_axes", [0] * apart)[0]]
    outputs = attrs["body"].outputs
    axes = attrs.get("scan_output_axes", [0] * (len(outputs) - states))
    types: list[Typed] = [(tensor.dtype, tensor.shape) for tensor in outputs[:states]]
    for tensor, at in zip(outputs[states:], axes, strict=True):
        types.append((tensor.dtype, (*tensor.shape[:at], length, *tensor.shape[at:])))
    return types


OPERATORS = (
    declaration.Operator(
        "If",
        in_graph(_if),
        infer=lambda ins, attrs: [(tensor.dtype, tensor.shape) for tensor in attrs["then_branch"].outputs],
        bounds=lambda ins, attrs: [
            (min(a.low, b.low), max(a.high, b.high))
            for a, b in zip(attrs["then_branch"].outputs, attrs["else_branch"].outputs, strict=True)
        ],
        ranks=(0, 0),
        dtypes=("bool",),
        family="control",
        scalars=(0,),
    ),
    declaration.Operator(
        "Loop",
        in_graph(_loop),
        infer=_loop_types,
        bounds=lambda ins, attrs: [
            # The states as the body is given them, and what it collects.
            (each.low, each.high)
            for each in (*attrs["body"].inputs[2:], *attrs["body"].outputs[len(ins) - 1 :])
        ],
        ranks=(0, 0),
        dtypes=("int64",),
        family="control",
        usual={0: Domain(1, 3), 1: exact([1])},
        scalars=(0, 1),
    ),
    declaration.Operator(
        "Scan",
        in_graph(_scan),
        infer=_scan_types,
        bounds=lambda ins, attrs: [
            (each.low, each.high)
            for each in (
                *attrs["body"].inputs[: len(ins) - attrs["num_scan_inputs"]],
                *attrs["body"].outputs[len(ins) - attrs["num_scan_inputs"] :],
            )
        ],
        ranks=(1, 4),
        dtypes=_DTYPES,
        family="control",
    ),
)
