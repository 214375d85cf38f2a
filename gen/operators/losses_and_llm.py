"""Losses, and the operators that the newest opsets added for language models.

Sources: the ONNX operator pages of NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss, SwiGLU,
LinearAttention, CausalConvWithState.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import declaration, shape_patterns, symbolic_arith
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    Draft,
    First,
    Input,
    OutputCount,
    Part,
    between,
    whole,
)
from opsieve.gen.declarations.tensor import FLOATS, Bounds, Domain, Ins, Typed, dim_index, optional

_WEIGHTS, _SMALL = Domain(0.5, 2), Domain(-1, 1)


# One target for each place, one weight for each class.
_LOSS = ("batch classes places...", "batch places...", "classes")


def _loss_parts(outputs: int) -> tuple[Part, ...]:
    return (
        First(_LOSS[0]),
        Input(_LOSS[1], lambda draft: Domain(0, draft["classes"] - 1), ("int64", "int32")),
        Input(_LOSS[2], _WEIGHTS, share=0.4),
        Attr("reduction", ("none", "sum", "mean"), 0.7),
        OutputCount(1, outputs),
    )


def _loss_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    # The page: without a reduction the loss has the shape of the targets, otherwise it is a scalar.
    kept = (shape[0], *shape[2:]) if attrs.get("reduction") == "none" else ()
    return [(ins[0].dtype, kept), (ins[0].dtype, shape)]


_SIGNAL, _FILTER = "batch channels length", "channels 1 kernel"
_KEY = "batch length kv_num_heads*size"
_VALUE, _STATE = "batch length kv_num_heads*width", "batch kv_num_heads size width"
_GATES = "batch length kv_num_heads"


def _rule(word: str) -> Callable[[Draft], bool]:
    return lambda draft: word in draft.attrs.get("update_rule", "gated_delta")


# Each group of query heads shares a key; half of the drawn nodes get an initial state.
_LINEAR = (
    Attr("q_num_heads", lambda draft: draft.rng.choice(symbolic_arith.divisors(draft.x.shape[2]))),
    Attr("kv_num_heads", lambda draft: draft.rng.choice(symbolic_arith.divisors(draft["q_num_heads"]))),
    First("batch length _"),
    Count("size", lambda draft: draft.x.shape[2] // draft["q_num_heads"]),
    Count("width", between(1, 3)),
    Attr("update_rule", ("linear", "gated", "delta", "gated_delta"), 0.9),
    Input(_KEY, _SMALL),
    Input(_VALUE, _SMALL),
    Input(_STATE, _SMALL, share=0.5),
    # The decay is given as a logarithm, so numbers up to 0 make the state shrink.
    Input(_GATES, Domain(-2, 0), share=_rule("gated")),
    Input(_GATES, Domain(0, 1), share=_rule("delta")),
)


def _heads_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    heads, groups = attrs["q_num_heads"], attrs["kv_num_heads"]
    if heads < 1 or groups < 1:
        return [False]
    (batch, length, width), k, v = ins[0].shape, ins[1].shape, ins[2].shape
    return [
        *(k[0] == batch, v[0] == batch, k[1] == length, v[1] == length),
        *(width % heads == 0, heads % groups == 0, k[2] * heads == width * groups, v[2] % groups == 0),
    ]


def _loss_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    # -log softmax is at most the spread of the scores plus the logarithm of the number of classes.
    spread = ins[0].high - ins[0].low + math.log(ins[0].shape[1]) + ins[0].size
    weight = ins[2].size if len(ins) > 2 else 1.0
    terms = math.prod(ins[0].shape) / ins[0].shape[1]
    size = spread * max(weight, 1.0) * (terms if attrs.get("reduction", "mean") == "sum" else 1.0)
    return [(-size, size), (-spread, 0.0)]


def _linear_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    batch, length, width = ins[0].shape
    heads, groups = attrs["q_num_heads"], attrs["kv_num_heads"]
    value = ins[2].shape[2] // groups
    return [
        (ins[0].dtype, (batch, length, heads * value)),
        (ins[0].dtype, (batch, groups, width // heads, value)),
    ]


def _linear_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    length, size = ins[0].shape[1], ins[0].shape[2] // attrs["q_num_heads"]
    state = (
        (1 + size) ** length * (length + 1.0)
        if "delta" in attrs.get("update_rule", "gated_delta")
        else length + 1.0
    )
    return [(-ins[0].size * size * state, ins[0].size * size * state), (-state, state)]


def _causal_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    # The second output is the state for the next call: the last kernel - 1 elements of the signal.
    batch, channels, length = ins[0].shape
    return [(ins[0].dtype, (batch, channels, length)), (ins[0].dtype, (batch, channels, ins[1].shape[2] - 1))]


def _causal_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    bias, past = optional(ins, 2), optional(ins, 3)
    size = max(ins[0].size, 0.0 if past is None else past.size)
    most = ins[1].shape[2] * size * ins[1].size + (0.0 if bias is None else bias.size)
    return [(-most, most), (-size, size)]


OPERATORS = (
    declaration.Operator(
        "NegativeLogLikelihoodLoss",
        parts=_loss_parts(1),
        infer=lambda ins, attrs: _loss_type(ins, attrs)[:1],
        requires=shape_patterns.agree(*_LOSS),
        bounds=lambda ins, attrs: _loss_bounds(ins, attrs)[:1],
        ranks=(2, 4),
        family="loss",
        dtypes=FLOATS,
        usual={1: dim_index(0, 1)},
        symbolic=True,
    ),
    declaration.Operator(
        "SoftmaxCrossEntropyLoss",
        parts=_loss_parts(2),
        infer=_loss_type,
        requires=shape_patterns.agree(*_LOSS),
        bounds=_loss_bounds,
        ranks=(2, 4),
        family="loss",
        dtypes=FLOATS,
        usual={1: dim_index(0, 1)},
        symbolic=True,
    ),
    declaration.Operator(
        "SwiGLU",
        parts=(Input(whole), Attr("alpha", (0.5, 1.702), 0.4)),
        requires=shape_patterns.agree("all...", "all..."),
        bounds=declaration.magnitude(lambda ins, attrs: max(ins[0].high, 1.0) * ins[1].size),
        family="attention",
        dtypes=FLOATS,
        symbolic=True,
    ),
    declaration.Operator(
        "LinearAttention",
        parts=_LINEAR,
        infer=_linear_types,
        requires=_heads_fit,
        bounds=_linear_bounds,
        safe=(Domain(-4, 4),),
        ranks=(3, 3),
        family="attention",
        dtypes=("float32", "float16"),
        rank_ends=declaration.RankEnds.BOTH,
    ),
    declaration.Operator(
        "CausalConvWithState",
        parts=(
            First(_SIGNAL),
            Count("kernel", between(2, 4)),
            Input(_FILTER, _SMALL),
            Input("channels", share=0.5),
            Input(lambda draft: (*draft.x.shape[:2], draft["kernel"] - 1), share=0.5),
            Attr("activation", ("silu", "swish", "none"), 0.5),
        ),
        infer=_causal_types,
        requires=shape_patterns.agree(_SIGNAL, _FILTER, "channels"),
        bounds=_causal_bounds,
        ranks=(3, 3),
        family="window",
        dtypes=("float32", "float16"),
        rank_ends=declaration.RankEnds.BOTH,
    ),
)
