"""Normalisations, attention and losses."""

from opsieve.gen.irs.relax.declaration import (
    RATES,
    Declared,
    Draw,
    Recogniser,
    Solution,
    Want,
    attributes,
    static_sizes,
    tensor,
)
from opsieve.gen.irs.relax.types import RelaxTensorType, TupleType

_WIDE = ("float32", "float64")
# Values within which exp does not overflow in float32, nor does the sum of a row.
_INSIDE = (-20.0, 20.0)


def _layer(draw: Draw, kind: RelaxTensorType) -> Solution:
    shape = static_sizes(kind)
    first = draw.rng.randrange(kind.rank)
    axes = tuple(range(first - kind.rank, 0))
    scale = tuple(Want(tensor(kind.dtype, shape[first:])) for _ in range(2))
    attrs = attributes("LayerNormAttrs", axes=axes, epsilon=1e-5, center=True, scale=True)
    return Solution((Want(kind, _INSIDE), *scale), attrs)


def _rms(draw: Draw, kind: RelaxTensorType) -> Solution:
    first = draw.rng.randrange(kind.rank)
    attrs = attributes("RMSNormAttrs", axes=tuple(range(first - kind.rank, 0)), epsilon=1e-5)
    return Solution((Want(kind, _INSIDE), Want(tensor(kind.dtype, static_sizes(kind)[first:]))), attrs)


def _group(draw: Draw, kind: RelaxTensorType) -> Solution:
    channels = static_sizes(kind)[1]
    groups = draw.rng.choice([n for n in (1, 2, 3, channels) if channels % n == 0])
    attrs = attributes(
        "GroupNormAttrs",
        num_groups=groups,
        channel_axis=1,
        axes=tuple(range(2, kind.rank)),
        epsilon=1e-5,
        center=True,
        scale=True,
    )
    scale = tuple(Want(tensor(kind.dtype, (channels,))) for _ in range(2))
    return Solution((Want(kind, _INSIDE), *scale), attrs)


def _instance(draw: Draw, kind: RelaxTensorType) -> Solution:
    channels = static_sizes(kind)[1]
    axes = tuple(range(2, kind.rank))
    attrs = attributes("InstanceNormAttrs", channel_axis=1, axes=axes, epsilon=1e-5, center=True, scale=True)
    scale = tuple(Want(tensor(kind.dtype, (channels,))) for _ in range(2))
    return Solution((Want(kind, _INSIDE), *scale), attrs)


def _batch(draw: Draw, kind: RelaxTensorType) -> Solution:
    channels = static_sizes(kind)[1]
    part = tensor(kind.dtype, (channels,))
    attrs = attributes(
        "BatchNormAttrs",
        axis=1,
        epsilon=1e-5,
        center=True,
        scale=True,
        momentum=0.1,
        training=draw.chance(RATES.flag),
    )
    wants = (Want(kind, _INSIDE), Want(part), Want(part), Want(part), Want(part, (0.1, 5.0)))
    return Solution(wants, attrs, TupleType((kind, part, part)))


def _attention(draw: Draw, kind: RelaxTensorType) -> Solution:
    """Query (batch, length, heads, width), key and value with a length of their own, the value with its own
    width.
    """
    batch, length, heads, width = static_sizes(kind)
    other, inner = draw.size(4), draw.size(4)
    query = tensor(kind.dtype, (batch, length, heads, inner))
    key, value = (
        tensor(kind.dtype, (batch, other, heads, inner)),
        tensor(kind.dtype, (batch, other, heads, width)),
    )
    scale = draw.rng.choice((None, 0.5))
    mask = draw.rng.choice((None, None, "TopLeft", "BottomRight"))
    attrs = attributes("AttentionAttrs", scale=scale, causal_mask=mask, window_size=None)
    return Solution((Want(query, (-3, 3)), Want(key, (-3, 3)), Want(value)), attrs)


def _attention_bias(draw: Draw, kind: RelaxTensorType) -> Solution:
    plain = _attention(draw, kind)
    batch, length, heads, _ = static_sizes(kind)
    key = plain.args[1]
    assert isinstance(key, Want)
    assert isinstance(key.type, RelaxTensorType)
    bias = tensor(kind.dtype, (batch, heads, length, static_sizes(key.type)[1]))
    return Solution((*plain.args, Want(bias)), plain.attrs)


def _cross_entropy(draw: Draw, kind: RelaxTensorType) -> Solution:
    shape = (draw.size(), draw.size())
    return Solution((Want(tensor(kind.dtype, shape), _INSIDE), Want(tensor(kind.dtype, shape), (0, 1))))


def _nll(draw: Draw, kind: RelaxTensorType) -> Solution:
    rows, classes = draw.size(), draw.size()
    # "none" is left out: the recogniser accepts scalars only.
    attrs = attributes("NLLLossAttrs", reduction=draw.rng.choice(("mean", "sum")), ignore_index=-100)
    weights = draw.constant(kind.dtype, (classes,), 0.5, 2)
    return Solution(
        (Want(tensor(kind.dtype, (rows, classes)), _INSIDE), draw.indices((rows,), classes), weights), attrs
    )


# TVM 0.27: "only support float32 and float16 for now"
_LOWERED = ("float32", "float16")
_CHANNELLED = Recogniser(_LOWERED, (3, 5), condition=lambda shape: min(shape) >= 1)
_RANKED = Recogniser(_LOWERED, (1, 4), condition=lambda shape: min(shape) >= 1)
_BATCHED = Recogniser(_WIDE, (2, 5), condition=lambda shape: min(shape) >= 1)
_HEADED = Recogniser(_WIDE, (4, 4), condition=lambda shape: min(shape) >= 1)
_LOSS = Recogniser(_WIDE, (0, 0))

OPERATORS: tuple[Declared, ...] = (
    Declared("relax.nn.layer_norm", _RANKED, _layer, "LayerNormalization"),
    Declared("relax.nn.rms_norm", _RANKED, _rms, "RMSNormalization"),
    Declared("relax.nn.group_norm", _CHANNELLED, _group, "GroupNormalization"),
    Declared("relax.nn.instance_norm", _CHANNELLED, _instance, "InstanceNormalization"),
    Declared("relax.nn.batch_norm", _BATCHED, _batch, "BatchNormalization"),
    Declared("relax.nn.attention", _HEADED, _attention, "Attention"),
    Declared("relax.nn.attention_bias", _HEADED, _attention_bias, "Attention"),
    Declared("relax.nn.cross_entropy_with_logits", _LOSS, _cross_entropy),
    Declared("relax.nn.nll_loss", _LOSS, _nll, "NegativeLogLikelihoodLoss"),
)
