"""Losses, and what the newest opsets brought for language models.

Sources: the ONNX operator pages of NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss, SwiGLU, LinearAttention, CausalConvWithState.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.spec.builder import Builder, Sizes
from opsieve.gen.spec.declaration import Operator, RankEnds
from opsieve.gen.spec.domains import Domain, dim_index
from opsieve.gen.spec.dtype_facts import FLOATS
from opsieve.gen.spec.instance import Attr, Draft, Input, Instance, OutputCount, Part, channels, whole
from opsieve.gen.spec.symbolic_arith import Truth, divisors
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed

_WEIGHTS = Domain(0.5, 2)


def _places(draft: Draft) -> Sizes:
    """A number for each element of the batch at each place, whatever its class."""
    return (draft.x.shape[0], *draft.x.shape[2:])


def _loss_parts(outputs: int) -> tuple[Part, ...]:
    return (
        Input(_places, lambda draft: Domain(0, draft.x.shape[1] - 1), ("int64", "int32")),
        Input(channels, _WEIGHTS, share=0.4),
        Attr("reduction", ("none", "sum", "mean"), 0.7),
        OutputCount(1, outputs),
    )


def _loss_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    kept = (shape[0], *shape[2:]) if attrs.get("reduction") == "none" else ()
    return [(ins[0].dtype, kept), (ins[0].dtype, shape)]


def _loss_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """One target for each place, one weight for each class."""
    wanted = (ins[0].shape[0], *ins[0].shape[2:])
    found = [len(ins[1].shape) == len(wanted), *(p == q for p, q in zip(ins[1].shape, wanted, strict=False))]
    return [*found, ins[2].shape[0] == ins[0].shape[1]] if len(ins) > 2 else found


def _same_shapes(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    a, b = ins[0].shape, ins[1].shape
    return [len(a) == len(b), *(p == q for p, q in zip(a, b, strict=False))]


def _causal_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    channels, w = ins[0].shape[1], ins[1].shape
    bias = [ins[2].shape[0] == channels] if len(ins) > 2 and ins[2] is not None else []
    return [len(w) == 3, w[0] == channels, w[1] == 1, *bias]


def _heads_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    heads, groups = attrs["q_num_heads"], attrs["kv_num_heads"]
    if heads < 1 or groups < 1:
        return [False]
    (batch, length, width), k, v = ins[0].shape, ins[1].shape, ins[2].shape
    return [
        *(k[0] == batch, v[0] == batch, k[1] == length, v[1] == length),
        *(width % heads == 0, heads % groups == 0, k[2] * heads == width * groups, v[2] % groups == 0),
    ]


def _loss_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    spread = ins[0].high - ins[0].low + math.log(ins[0].shape[1]) + ins[0].size
    weight = ins[2].size if len(ins) > 2 else 1.0
    terms = math.prod(ins[0].shape) / ins[0].shape[1]
    size = spread * max(weight, 1.0) * (terms if attrs.get("reduction", "mean") == "sum" else 1.0)
    return [(-size, size), (-spread, 0.0)]


def _gated_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    size = max(ins[0].high, 1.0) * ins[1].size
    return -size, size


def _linear_attention(builder: Builder, q: Tensor) -> Instance:
    """Every head has its own key; a state is carried in half of the time."""
    rng, attrs = builder.rng, Attributes()
    batch, length, width = q.shape
    heads = rng.choice(divisors(width))
    size, value_size = width // heads, rng.between(1, 3)
    groups = rng.choice(divisors(heads))
    rule = rng.choice(("linear", "gated", "delta", "gated_delta"))
    if rule != "gated_delta" or rng.random() < builder.style.rates.attribute:
        attrs["update_rule"] = rule
    small = Domain(-1, 1)
    ins: list[Tensor | None] = [
        q,
        builder.match(q.dtype, (batch, length, groups * size), small),
        builder.match(q.dtype, (batch, length, groups * value_size), small),
        builder.match(q.dtype, (batch, groups, size, value_size), small)
        if rng.random() < builder.style.rates.optional_input
        else None,
        builder.match(q.dtype, (batch, length, groups), Domain(-2, 0)) if rule.startswith("gated") else None,
        builder.match(q.dtype, (batch, length, groups), Domain(0, 1)) if rule.endswith("delta") else None,
    ]
    while ins[-1] is None:
        ins.pop()
    return Instance(ins, {"q_num_heads": heads, "kv_num_heads": groups, **attrs})


def _linear_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    batch, length, width = ins[0].shape
    heads, groups = attrs["q_num_heads"], attrs["kv_num_heads"]
    value = ins[2].shape[2] // groups
    return [(ins[0].dtype, (batch, length, heads * value)), (ins[0].dtype, (batch, groups, width // heads, value))]


def _linear_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    length, size = ins[0].shape[1], ins[0].shape[2] // attrs["q_num_heads"]
    state = (
        (1 + size) ** length * (length + 1.0) if "delta" in attrs.get("update_rule", "gated_delta") else length + 1.0
    )
    return [(-ins[0].size * size * state, ins[0].size * size * state), (-state, state)]


def _causal(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    batch, channels, _ = x.shape
    kernel = rng.between(2, 4)
    bias = builder.match(x.dtype, (channels,)) if rng.random() < builder.style.rates.bias else None
    past = (
        builder.match(x.dtype, (batch, channels, kernel - 1))
        if rng.random() < builder.style.rates.optional_input
        else None
    )
    ins = [x, builder.match(x.dtype, (channels, 1, kernel), Domain(-1, 1)), bias, past]
    while ins[-1] is None:
        ins.pop()
    attrs: Attributes = (
        {"activation": rng.choice(("silu", "swish", "none"))} if rng.random() < builder.style.rates.attribute else {}
    )
    return Instance(ins, attrs)


def _causal_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    batch, channels, length = ins[0].shape
    return [(ins[0].dtype, (batch, channels, length)), (ins[0].dtype, (batch, channels, ins[1].shape[2] - 1))]


def _causal_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    taps, size = ins[1].shape[2], ins[0].size
    past = ins[3].size if len(ins) > 3 and ins[3] is not None else 0.0
    bias = ins[2].size if len(ins) > 2 and ins[2] is not None else 0.0
    most = taps * max(size, past) * ins[1].size + bias
    return [(-most, most), (-max(size, past), max(size, past))]


OPERATORS = (
    Operator(
        "NegativeLogLikelihoodLoss",
        parts=_loss_parts(1),
        infer=lambda ins, attrs: _loss_type(ins, attrs)[:1],
        requires=_loss_fits,
        bounds=lambda ins, attrs: _loss_bounds(ins, attrs)[:1],
        ranks=(2, 4),
        family="loss",
        dtypes=FLOATS,
        usual={1: dim_index(0, 1)},
        symbolic=True,
    ),
    Operator(
        "SoftmaxCrossEntropyLoss",
        parts=_loss_parts(2),
        infer=_loss_type,
        requires=_loss_fits,
        bounds=_loss_bounds,
        ranks=(2, 4),
        family="loss",
        dtypes=FLOATS,
        usual={1: dim_index(0, 1)},
        symbolic=True,
    ),
    Operator(
        "SwiGLU",
        parts=(Input(whole), Attr("alpha", (0.5, 1.702), 0.4)),
        requires=_same_shapes,
        bounds=_gated_bounds,
        family="attention",
        dtypes=FLOATS,
        symbolic=True,
    ),
    Operator(
        "LinearAttention",
        _linear_attention,
        infer=_linear_types,
        requires=_heads_fit,
        bounds=_linear_bounds,
        safe=(Domain(-4, 4),),
        ranks=(3, 3),
        family="attention",
        dtypes=("float32", "float16"),
        rank_ends=RankEnds.BOTH,
    ),
    Operator(
        "CausalConvWithState",
        _causal,
        infer=_causal_types,
        requires=_causal_fits,
        bounds=_causal_bounds,
        ranks=(3, 3),
        family="window",
        dtypes=("float32", "float16"),
        rank_ends=RankEnds.BOTH,
    ),
)
