"""Sequences and optionals.

A sequence's elements all have one shape, the shape of its tensor here, and there is always one at least: what
would be empty is only made where something is put into it at once. Sources: the ONNX operator pages of
Sequence*, SplitToSequence, ConcatFromSequence, Optional*.
"""

from collections.abc import Mapping
from typing import Any

from opsieve.gen.declarations import catalogue, declaration, symbolic_arith
from opsieve.gen.declarations.builder import Builder
from opsieve.gen.declarations.instance import (
    Attr,
    AxisAttr,
    Count,
    Input,
    Instance,
    Numbers,
    drawn_axis,
    flag,
    look_up,
    one_of,
    some,
    whole,
)
from opsieve.gen.declarations.tensor import NUMBER, ZERO, Ins, Tensor, Typed
from opsieve.gen.graph import graph, graph_builder
from opsieve.gen.operators import control, reshaping, slice_concat

_ELEMENTS = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
_SEQUENCES = tuple(f"sequence({dtype})" for dtype in _ELEMENTS)
_OPTIONALS = tuple(f"optional({dtype})" for dtype in _ELEMENTS)


def element(dtype: str) -> str:
    """Return the dtype of a container's elements: `float32` for `sequence(float32)`."""
    return dtype.partition("(")[2][:-1]


def _place(builder: Builder, last: int = 0) -> Tensor:
    """Draw a position that every sequence has: the first, or `last`."""
    # The page: a position is in [-n, n-1], to insert at also n, so 0 and -1 exist in every sequence of one
    # element or more.
    return builder.ints([builder.rng.choice((0, last))], builder.rng.choice(("int64", "int32")), ())


def _insert(builder: graph_builder.GraphBuilder, x: Tensor) -> Instance:
    rng = builder.rng
    new = builder.match(element(x.dtype), x.shape)
    if rng.random() < builder.style.rates.into_empty:
        dtype = element(x.dtype)
        attrs = (
            {}
            # float32 is the default of `dtype`.
            if dtype == "float32" and rng.random() < builder.style.rates.default
            else {"dtype": NUMBER[dtype]}
        )
        # An empty sequence has no shape of elements, so it is made only where an element follows at once.
        made = Tensor(builder.program.make_name("v"), x.dtype, x.shape, new.low, new.high)
        builder.emit_as("SequenceEmpty", [], attrs, made)
        return Instance([made, new])
    return Instance(
        [x, new] if rng.random() < builder.style.rates.no_position else [x, new, _place(builder, -1)]
    )


def _erase(builder: graph_builder.GraphBuilder, x: Tensor) -> Instance:
    """Erase an element of a sequence that gets another one just before, so that it is never empty."""
    new = builder.match(element(x.dtype), x.shape)
    longer = Tensor(
        builder.program.make_name("v"), x.dtype, x.shape, min(x.low, new.low), max(x.high, new.high)
    )
    builder.emit_as("SequenceInsert", [x, new], {}, longer)
    return Instance(
        [longer] if builder.rng.random() < builder.style.rates.no_position else [longer, _place(builder, -1)]
    )


def _split_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    axis = attrs.get("axis", 0) % len(shape)
    if len(ins) > 1:
        part = (*shape[:axis], reshaping.values_of(ins[1])[0], *shape[axis + 1 :])
    else:
        part = (*shape[:axis], *((1,) if attrs.get("keepdims", 1) else ()), *shape[axis + 1 :])
    return [(f"sequence({ins[0].dtype})", part)]


def _infer_concat(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape, axis = ins[0].shape, attrs["axis"]
    if attrs.get("new_axis"):
        at = axis % (len(shape) + 1)
        return [(element(ins[0].dtype), (*shape[:at], "?", *shape[at:]))]
    at = axis % len(shape)
    return [(element(ins[0].dtype), (*shape[:at], "?", *shape[at + 1 :]))]


def _map(builder: graph_builder.GraphBuilder, x: Tensor) -> Instance | None:
    """Draw a body that applies one unary operator to every element, sometimes with a second tensor."""
    if builder.scope.depth >= 2:
        return None
    body, dtype = builder.start_body(), element(x.dtype)
    taken = Tensor(builder.program.make_name("b"), dtype, x.shape, x.low, x.high)
    ins, inputs = [x], [taken]
    name = builder.rng.choice(("Identity", "Relu", "Neg", "Add"))
    had = catalogue.form(name, builder.opset)
    operands = [taken, taken] if name == "Add" else [taken]
    if had is None or dtype not in had.dtypes(0) or not builder.has(name, operands, {}):
        name = "Identity"
    low, high = {"Relu": (max(x.low, 0.0), max(x.high, 0.0)), "Neg": (-x.high, -x.low)}.get(
        name, (x.low, x.high)
    )
    operands = [taken]
    if name == "Add":
        other = builder.match(dtype, x.shape)
        inputs.append(Tensor(builder.program.make_name("b"), dtype, x.shape, other.low, other.high))
        ins.append(other)
        operands.append(inputs[-1])
        low, high = x.low + other.low, x.high + other.high
    made = body.emit(name, "", operands, {}, [(dtype, x.shape)], (low, high))
    return Instance(ins, {"body": graph.BodyGraph(inputs, body.nodes, made)})


def _same(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, ins[0].shape)]


def declare_container(name: str, infer: Any, **more: Any) -> declaration.Operator:
    """Declare an operator on sequences or optionals."""
    return declaration.Operator(name, infer=infer, family="container", **more)


OPERATORS = (
    declare_container(
        "SequenceConstruct",
        lambda ins, attrs: [(f"sequence({ins[0].dtype})", ins[0].shape)],
        parts=(some(Input(whole), some(Input(whole), share=0.5), share=0.7),),
        bounds=reshaping.all_hull,
        dtypes=_ELEMENTS,
        moves=declaration.Moves.EVERY,
    ),
    declare_container(
        "SequenceAt",
        lambda ins, attrs: [(element(ins[0].dtype), ins[0].shape)],
        parts=(Numbers(lambda draft: draft.rng.choice((0, -1)), ("int64", "int32"), scalar=True),),
        dtypes=_SEQUENCES,
        usual={1: ZERO},
        moves=declaration.Moves.FIRST,
        scalars=(1,),
    ),
    declare_container(
        "SequenceInsert",
        _same,
        sample=control.in_graph(_insert),
        bounds=lambda ins, attrs: reshaping.all_hull(ins[:2], attrs),
        dtypes=_SEQUENCES,
        usual={2: ZERO},
    ),
    declare_container(
        "SequenceErase", _same, sample=control.in_graph(_erase), dtypes=_SEQUENCES, usual={1: ZERO}
    ),
    declare_container(
        "SequenceLength",
        lambda ins, attrs: [("int64", ())],
        bounds=lambda ins, attrs: (0.0, 100.0),
        dtypes=_SEQUENCES,
    ),
    declare_container(
        "SplitToSequence",
        _split_type,
        parts=(
            AxisAttr(0),
            # The page: keepdims is ignored if `split` is given.
            one_of(
                some(flag("keepdims", 0.5)),
                Numbers(
                    # A divisor of the side: all elements of a sequence have one shape here.
                    lambda draft: draft.rng.choice(symbolic_arith.divisors(draft.side)),
                    scalar=True,
                ),
            ),
        ),
        ranks=(1, 5),
        dtypes=_ELEMENTS,
        usual={1: slice_concat.split_sizes},
        moves=declaration.Moves.FIRST,
    ),
    declare_container(
        "ConcatFromSequence",
        _infer_concat,
        parts=(
            Count("joins", lambda draft: draft.x.rank and draft.draws(0.6)),
            # The page: axis is in [-r, r-1], and in [-r-1, r] if new_axis is 1.
            some(Attr("axis", drawn_axis), where=look_up("joins")),
            some(
                Attr("axis", lambda draft: draft.rng.between(-draft.x.rank - 1, draft.x.rank)),
                Attr("new_axis", (1,)),
                where=lambda draft: not draft["joins"],
            ),
        ),
        dtypes=_SEQUENCES,
        moves=declaration.Moves.EVERY,
    ),
    declare_container(
        "SequenceMap",
        lambda ins, attrs: [(ins[0].dtype, ins[0].shape)],
        sample=control.in_graph(_map),
        bounds=lambda ins, attrs: (attrs["body"].outputs[0].low, attrs["body"].outputs[0].high),
        dtypes=_SEQUENCES,
    ),
    declare_container(
        "Optional",
        lambda ins, attrs: [(f"optional({ins[0].dtype})", ins[0].shape)],
        dtypes=_ELEMENTS,
        moves=declaration.Moves.IN_ORDER,
    ),
    declare_container(
        "OptionalGetElement",
        lambda ins, attrs: [(element(ins[0].dtype), ins[0].shape)],
        dtypes=_OPTIONALS,
        moves=declaration.Moves.IN_ORDER,
    ),
    declare_container(
        "OptionalHasElement",
        lambda ins, attrs: [("bool", ())],
        bounds=lambda ins, attrs: (0.0, 1.0),
        dtypes=_OPTIONALS,
    ),
)
