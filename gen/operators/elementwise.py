"""Operators that work element by element: arithmetic, activations, comparisons, logic, bits, casts.

Sources: the ONNX operator pages. A unary operator is one line: where it is well-conditioned, and the bounds
of its result.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.declarations.catalogue import form
from opsieve.gen.declarations.declaration import Moves, Operator
from opsieve.gen.declarations.instance import Attr, Count, Draft, Numbers, Partner, look_up, some
from opsieve.gen.declarations.properties import (
    Rounding,
    cast_of_float,
    cast_rounding,
    far_shift,
    integer_division,
    integer_power,
    nan_element,
    overflow,
    sum_arrays,
)
from opsieve.gen.declarations.symbolic_arith import Size, Truth, broadcast, broadcasts, either
from opsieve.gen.declarations.tensor import (
    ANY,
    INTEGERS,
    LARGEST,
    LEAST,
    NUMBER,
    UNSIGNED,
    Bounds,
    Domain,
    Ins,
    Tensor,
    Typed,
    is_float,
    optional,
)
from opsieve.gen.model.tensors import DTYPES
from opsieve.gen.operators.unary import UNARY, absolute

_NONZERO = Domain(nonzero=True)


def _together(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, broadcast(ins[0].shape, ins[1].shape))]


def _go_together(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    return broadcasts(ins[0].shape, ins[1].shape)


def corners(a: Tensor, b: Tensor, function: Callable[[float, float], float]) -> Bounds:
    """Return the interval of a function that is monotone in each of two operands."""
    ends = (
        function(a.low, b.low),
        function(a.low, b.high),
        function(a.high, b.low),
        function(a.high, b.high),
    )
    return min(ends), max(ends)


def binary(
    name: str, bounds: Callable[[Tensor, Tensor], Bounds], safe: tuple[Domain, ...] = (), **more: Any
) -> Operator:
    """Return an operator with two inputs of one type that broadcast; they change places where no domain tells
    them apart.
    """
    return Operator(
        name,
        parts=more.pop("parts", (Partner(safe[1]),) if safe else (Partner(kept=0.6),)),
        infer=_together,
        requires=_go_together,
        bounds=lambda ins, attrs: bounds(ins[0], ins[1]),
        safe=safe,
        family=more.pop("family", "binary"),
        symbolic=True,
        **more,
    )


def _bound_product(a: Tensor, b: Tensor) -> Bounds:
    # The square of one tensor has no negative elements, which the corners would allow.
    if a is b:
        low, high = absolute(a.low, a.high)
        return low * low, high * high
    return corners(a, b, lambda p, q: p * q)


def _bound_quotient(a: Tensor, b: Tensor) -> Bounds:
    if b.low <= 0 <= b.high:
        return -math.inf, math.inf
    low, high = corners(a, b, lambda p, q: p / q)
    return (math.floor(low), math.ceil(high)) if not is_float(a.dtype) else (low, high)


def _exponent_type(draft: Draft) -> str:
    dtype = draft.x.dtype if draft.draws(0.7) else draft.rng.choice(("float32", "int64", "int32"))
    # Older opsets allow bfloat16 for a base, but not for an exponent.
    return dtype if dtype in draft.builder.takes("Pow", "T1") else "float32"


def _exponent(draft: Draft) -> float:
    x = draft.x
    exponent = draft.rng.choice(
        # A negative base has no fractional power, and a base near 0 no finite reciprocal.
        (0.5, 1.0, 2.0, -1.0, 1.5) if x.low >= 0.1 and is_float(x.dtype) else (1, 2, 2, 3)
    )
    return exponent if is_float(draft["type"]) else max(1, int(exponent))


def _bound_power(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    x, y = ins[0], ins[1]
    if y.low != y.high and x.low <= 0:
        return -math.inf, math.inf
    # Beyond that, Python's power may overflow, and the bound helps no later operator.
    if max(x.size, 1.0) ** max(abs(y.low), abs(y.high)) > 1e12:
        return -math.inf, math.inf
    ends = [
        x.low**y.low,
        x.low**y.high,
        x.high**y.low,
        x.high**y.high,
        *([0.0] if x.low <= 0 <= x.high else [1.0]),
    ]
    return min(ends), max(ends)


def _bits(a: Tensor, b: Tensor) -> Bounds:
    # Bits above the highest one of both operands stay 0; negative ones have all higher bits set.
    size = 2.0 ** math.ceil(math.log2(max(a.size, b.size) + 1))
    return (-size if a.low < 0 or b.low < 0 else 0.0, size - 1)


def comparison(name: str, **more: Any) -> Operator:
    """Return an operator with two inputs of one type that gives truths."""
    return Operator(
        name,
        parts=(Partner(kept=0.6),),
        infer=lambda ins, attrs: [("bool", broadcast(ins[0].shape, ins[1].shape))],
        requires=_go_together,
        bounds=lambda ins, attrs: (0.0, 1.0),
        family=more.pop("family", "comparison"),
        symbolic=True,
        **more,
    )


def _prelu_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    size = ins[0].size * max(ins[1].size, 1.0)
    return (-size if min(ins[0].low, 0) else min(ins[0].low, 0.0), size)


BINARY = (
    binary(
        "Add", lambda a, b: (a.low + b.low, a.high + b.high), undefined=(overflow(np.add),), commutes=True
    ),
    binary(
        "Sub",
        # Intervals forget that both operands are one tensor, whose difference is 0.
        lambda a, b: (0.0, 0.0) if a is b else (a.low - b.high, a.high - b.low),
        parts=(
            Partner(
                # Unsigned differences must not be negative, so the second is at most the least of the first.
                lambda draft: Domain(0, draft.x.low) if draft.x.dtype in UNSIGNED else ANY
            ),
        ),
        undefined=(overflow(np.subtract),),
    ),
    binary("Mul", _bound_product, undefined=(overflow(np.multiply),), commutes=True),
    binary("Div", _bound_quotient, (ANY, Domain(nonzero=True)), undefined=(integer_division,)),
    binary(
        "Mod",
        lambda a, b: (-b.size if a.low < 0 or b.low < 0 else 0.0, b.size),
        (ANY, _NONZERO),
        parts=(
            Partner(_NONZERO),
            some(
                Attr("fmod", lambda draft: 1),
                # The page demands `fmod` = 1 for floats; for integers it is optional.
                where=lambda draft: (
                    is_float(draft.x.dtype) or draft.rng.random() < draft.builder.style.rates.rare_attribute
                ),
            ),
        ),
        undefined=(integer_division,),
        rounding=Rounding.COMPUTES,
    ),
    # NNSmith, table 1: a positive base, and y log(x) small enough; asked where the bounds alone do not
    # promise finite results.
    Operator(
        "Pow",
        parts=(
            Count(
                "spread",
                # Whether the exponents are a tensor of their own: of a positive base.
                lambda draft: (
                    draft.draws(0.5)
                    and draft.x.low >= 0.1
                    and (draft.x.dtype in draft.builder.takes("Pow", "T1"))
                ),
            ),
            some(Partner(Domain(-2, 2)), where=look_up("spread")),
            some(
                Count("type", _exponent_type),
                Numbers(_exponent, look_up("type"), scalar=True),
                where=lambda draft: not draft["spread"],
            ),
        ),
        infer=_together,
        requires=_go_together,
        bounds=_bound_power,
        family="binary",
        relation=lambda x, y: (x - 0.01, 40 - y * x.log()),
        usual={0: Domain(0.1, 3), 1: Domain(0, 3)},
        undefined=(integer_power,),
        symbolic=True,
    ),
    binary("BitwiseAnd", _bits, family="bits", commutes=True),
    binary("BitwiseOr", _bits, family="bits", commutes=True),
    binary("BitwiseXor", _bits, family="bits", commutes=True),
    Operator(
        "BitShift",
        parts=(Partner(Domain(0, 3)), Attr("direction", ("LEFT", "RIGHT"))),
        infer=_together,
        requires=_go_together,
        bounds=lambda ins, attrs: (
            (0.0, ins[0].high * 2.0 ** ins[1].high) if attrs["direction"] == "LEFT" else (0.0, ins[0].high)
        ),
        family="bits",
        dtypes=UNSIGNED,
        usual={1: Domain(0, 7)},
        undefined=(far_shift,),
        symbolic=True,
    ),
    comparison("Equal", undefined=(nan_element,), rounding=Rounding.EXACT | Rounding.JUMPS, commutes=True),
    comparison("Less", undefined=(nan_element,), rounding=Rounding.EXACT | Rounding.JUMPS),
    comparison("LessOrEqual", undefined=(nan_element,), rounding=Rounding.EXACT | Rounding.JUMPS),
    comparison("Greater", undefined=(nan_element,), rounding=Rounding.EXACT | Rounding.JUMPS),
    comparison("GreaterOrEqual", undefined=(nan_element,), rounding=Rounding.EXACT | Rounding.JUMPS),
    comparison("And", family="logic", rounding=Rounding.EXACT, commutes=True),
    comparison("Or", family="logic", rounding=Rounding.EXACT, commutes=True),
    comparison("Xor", family="logic", rounding=Rounding.EXACT, commutes=True),
    Operator(
        "PRelu",
        parts=(Partner(Domain(-1, 2), oneway=True),),
        requires=lambda ins, attrs: [
            len(ins[1].shape) <= len(ins[0].shape),
            *(either(b == a, b == 1) for a, b in zip(ins[0].shape[::-1], ins[1].shape[::-1], strict=False)),
        ],
        bounds=_prelu_bounds,
        family="binary",
        undefined=(nan_element,),
        symbolic=True,
    ),
)


def _more_partners(draft: Draft) -> None:
    for _ in range(draft.rng.choice((0, 1, 1, 1, 2, 3))):
        other = draft.builder.partner(draft.x)
        # All of them are there
        if draft.builder.fits(_all(draft.inputs), other.shape, False):  # type: ignore[arg-type]
            draft.inputs.append(other)


def _all(ins: Ins) -> tuple[Size, ...]:
    shape = ins[0].shape
    for other in ins[1:]:
        shape = broadcast(shape, other.shape)
    return shape


def _all_together(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    shape, found = ins[0].shape, list[Truth]()
    for other in ins[1:]:
        found += broadcasts(shape, other.shape)
        shape = broadcast(shape, other.shape)
    return found


def variadic(name: str, bounds: Callable[[Ins], Bounds], **more: Any) -> Operator:
    """Return an operator with one or more inputs of one type that broadcast."""
    return Operator(
        name,
        parts=(_more_partners,),
        infer=lambda ins, attrs: [(ins[0].dtype, _all(ins))],
        requires=_all_together,
        bounds=lambda ins, attrs: bounds(ins),
        family="variadic",
        symbolic=True,
        merges=True,
        **more,
    )


VARIADIC = (
    variadic(
        "Max",
        lambda ins: (max(t.low for t in ins), max(t.high for t in ins)),
        undefined=(nan_element,),
        rounding=Rounding.EXACT,
        commutes=True,
    ),
    variadic(
        "Min",
        lambda ins: (min(t.low for t in ins), min(t.high for t in ins)),
        undefined=(nan_element,),
        rounding=Rounding.EXACT,
        commutes=True,
    ),
    variadic(
        "Sum",
        lambda ins: (sum(t.low for t in ins), sum(t.high for t in ins)),
        undefined=(overflow(sum_arrays),),
        commutes=True,
    ),
    variadic("Mean", lambda ins: (min(t.low for t in ins), max(t.high for t in ins)), commutes=True),
)


def _bound_clip(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    low, high, least, most = ins[0].low, ins[0].high, optional(ins, 1), optional(ins, 2)
    if least is not None:
        low, high = max(low, least.low), max(high, least.high)
    if most is not None:
        low, high = min(low, most.low), min(high, most.high)
    return low, high


def _branches(draft: Draft) -> None:
    builder, condition = draft.builder, draft.x
    a = builder.partner(condition, dtype=builder.choose_dtype(builder.takes("Where", "T")))
    b = builder.partner(a)
    if not builder.fits(condition.shape, _all([a, b]), False) or not builder.fits(a.shape, b.shape, False):
        b = a = builder.match(a.dtype, condition.shape)
    draft.inputs += [a, b]


def holds_all(dtype: str, x: Tensor) -> bool:
    """Return whether a type can hold every value of a tensor of another type. Bool converts to every type,
    although programs without intervals do not record that.
    """
    fits = "bool" in (dtype, x.dtype) or (LEAST[dtype] <= x.low and x.high <= LARGEST[dtype])
    return dtype != x.dtype and fits


def _target(draft: Draft) -> int:
    """Draw a type of the palette, or any, that holds all elements: a cast out of range is undefined."""
    had = form("Cast", draft.opset)
    assert had is not None
    dtype = draft.rng.choice(draft.builder.style.palette if draft.draws(0.5) else CAST_TARGETS)
    if dtype not in had.types["T2"] or not holds_all(dtype, draft.x):
        dtype = draft.rng.choice(
            [each for each in CAST_TARGETS if each in had.types["T2"] and holds_all(each, draft.x)]
        )
    return NUMBER[dtype]


def _cast_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    dtype = DTYPES[attrs["to"]]
    if dtype == "bool":
        return 0.0, 1.0
    low, high = ins[0].low, ins[0].high
    return (low, high) if is_float(dtype) else (math.floor(low), math.ceil(high))


CAST_TARGETS = ("float32", "float16", "float64", "bfloat16", *INTEGERS, "bool")

OTHERS = (
    Operator(
        "Clip",
        parts=(
            Count("low", lambda draft: draft.rng.between(0 if draft.x.dtype in UNSIGNED else -4, 0)),
            Numbers(look_up("low"), "", scalar=True, share=0.7, bound=True),
            Numbers(
                lambda draft: draft["low"] + draft.rng.between(1, 6), "", scalar=True, share=0.7, bound=True
            ),
        ),
        # The page demands scalars; the checker accepts vectors too.
        requires=lambda ins, attrs: [
            bound is None or bound.shape == () for bound in (optional(ins, 1), optional(ins, 2))
        ],
        bounds=_bound_clip,
        family="unary",
        usual={1: Domain(-2, 0), 2: Domain(1, 3)},
        undefined=(nan_element,),
        symbolic=True,
        rigid=True,
        rounding=Rounding.EXACT,
    ),
    Operator(
        "Where",
        parts=(_branches,),
        infer=lambda ins, attrs: [(ins[1].dtype, _all(ins))],
        requires=_all_together,
        bounds=lambda ins, attrs: (min(ins[1].low, ins[2].low), max(ins[1].high, ins[2].high)),
        family="logic",
        symbolic=True,
        merges=True,
        rounding=Rounding.EXACT,
    ),
    Operator(
        "Cast",
        parts=(Attr("to", _target),),
        same_shape=True,
        infer=lambda ins, attrs: [(DTYPES[attrs["to"]], ins[0].shape)],
        bounds=_cast_bounds,
        family="cast",
        usual={0: Domain(numeral=True)},
        moves=Moves.IN_ORDER,
        undefined=(cast_of_float,),
        symbolic=True,
        converts=True,
        rounding=cast_rounding,
    ),
)

OPERATORS = (*UNARY, *BINARY, *VARIADIC, *OTHERS)
