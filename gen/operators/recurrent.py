"""Recurrent networks and attention.

Sources: the ONNX operator pages of RNN, GRU, LSTM, Attention, RotaryEmbedding, TensorScatter.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.spec.builder import Builder
from opsieve.gen.spec.declaration import Operator, RankEnds
from opsieve.gen.spec.domains import Domain, Site, dim_index, lengths, size_of
from opsieve.gen.spec.dtype_facts import FLOATS
from opsieve.gen.spec.instance import Instance
from opsieve.gen.spec.rounding import Rounding
from opsieve.gen.spec.symbolic_arith import Truth
from opsieve.gen.spec.tensor import Attributes, Bounds, Ins, Tensor, Typed

_SMALL = Domain(-1, 1)
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _recurrent(name: str) -> Any:
    gates = _GATES[name]

    def sample(builder: Builder, x: Tensor) -> Instance:
        rng, attrs = builder.rng, Attributes()
        hidden = rng.between(1, 4)
        attrs["hidden_size"] = hidden
        direction = rng.choice(("forward", "forward", "reverse", "bidirectional"))
        if direction != "forward" or rng.random() < builder.style.rates.rare_attribute:
            attrs["direction"] = direction
        directions = 2 if direction == "bidirectional" else 1
        # 0 is all that onnxruntime has.
        layout = rng.below(2) if builder.opset >= 14 and rng.random() < builder.style.rates.batch_first else 0
        if layout:
            attrs["layout"] = 1
        if x.shape[2] > 16:
            x = builder.match(x.dtype, (*x.shape[:2], rng.between(1, 8)))
        length, batch, features = (x.shape[1], x.shape[0], x.shape[2]) if layout else x.shape
        ins: list[Tensor | None] = [
            x,
            builder.match(x.dtype, (directions, gates * hidden, features), _SMALL),
            builder.match(x.dtype, (directions, gates * hidden, hidden), _SMALL),
        ]
        state = (batch, directions, hidden) if layout else (directions, batch, hidden)
        ins.append(
            builder.match(x.dtype, (directions, 2 * gates * hidden), _SMALL)
            if rng.random() < builder.style.rates.bias
            else None
        )
        ins.append(
            builder.ints([rng.between(1, length) for _ in range(batch)], "int32")
            if rng.random() < builder.style.rates.sequence_lengths
            else None
        )
        ins.append(builder.match(x.dtype, state, _SMALL) if rng.random() < builder.style.rates.unlikely_input else None)
        if name == "LSTM":
            ins.append(
                builder.match(x.dtype, state, _SMALL) if rng.random() < builder.style.rates.unlikely_input else None
            )
            ins.append(
                builder.match(x.dtype, (directions, 3 * hidden), _SMALL)
                if rng.random() < builder.style.rates.peepholes
                else None
            )
            if rng.random() < builder.style.rates.coupled_gates:
                attrs["input_forget"] = 1
        if name == "GRU" and rng.random() < builder.style.rates.unlikely_attribute:
            attrs["linear_before_reset"] = 1
        if name == "RNN" and rng.random() < builder.style.rates.unlikely_attribute:
            attrs["activations"] = [rng.choice(("Relu", "Tanh", "Sigmoid")) for _ in range(directions)]
        while ins[-1] is None:
            ins.pop()
        return Instance(ins, attrs, rng.between(1, 3 if name == "LSTM" else 2))

    return sample


def _weights_fit(name: str) -> Any:
    gates = _GATES[name]

    def requires(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
        hidden, directions = attrs["hidden_size"], 2 if attrs.get("direction") == "bidirectional" else 1
        w, r = ins[1].shape, ins[2].shape
        found = [
            *(w[0] == directions, w[1] == gates * hidden, w[2] == ins[0].shape[2]),
            *(r[0] == directions, r[1] == gates * hidden, r[2] == hidden),
        ]
        if len(ins) > 3 and ins[3] is not None:
            found += [ins[3].shape[0] == directions, ins[3].shape[1] == 2 * gates * hidden]
        batch = ins[0].shape[0 if attrs.get("layout") else 1]
        if len(ins) > 4 and ins[4] is not None:
            found.append(ins[4].shape[0] == batch)
        wanted = (batch, directions, hidden) if attrs.get("layout") else (directions, batch, hidden)
        found += [p == q for state in ins[5:7] if state is not None for p, q in zip(state.shape, wanted, strict=True)]
        if len(ins) > 7 and ins[7] is not None:
            found += [ins[7].shape[0] == directions, ins[7].shape[1] == 3 * hidden]
        return found

    return requires


def _states(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    hidden, directions = attrs["hidden_size"], 2 if attrs.get("direction") == "bidirectional" else 1
    if attrs.get("layout"):
        batch, length, _ = ins[0].shape
        all_, last = (batch, length, directions, hidden), (batch, directions, hidden)
    else:
        length, batch, _ = ins[0].shape
        all_, last = (length, directions, batch, hidden), (directions, batch, hidden)
    return [(ins[0].dtype, all_), (ins[0].dtype, last), (ins[0].dtype, last)]


def _state_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    steps = ins[0].shape[1 if attrs.get("layout") else 0]
    size = 1.0
    if "Relu" in attrs.get("activations", ()):
        hidden = attrs["hidden_size"]
        step = ins[0].shape[2] * ins[0].size * ins[1].size + hidden * ins[2].size + 2
        size = step * (1 + hidden * ins[2].size) ** min(steps, 12)
    return [(-size, size), (-size, size), (-steps - 1.0, steps + 1.0)]


def _recurrent_cost(ins: Ins, attrs: Mapping[str, Any], outs: Sequence[Typed]) -> int:
    return math.prod(ins[0].shape[:2]) * (math.prod(ins[1].shape) + math.prod(ins[2].shape))


def recurrent(name: str) -> Operator:
    """RNN, GRU or LSTM."""
    return Operator(
        name,
        _recurrent(name),
        requires=_weights_fit(name),
        infer=_states if name == "LSTM" else lambda ins, attrs: _states(ins, attrs)[:2],
        bounds=_state_bounds if name == "LSTM" else lambda ins, attrs: _state_bounds(ins, attrs)[:2],
        safe=(Domain(-20, 20),),
        ranks=(3, 3),
        family="recurrent",
        rounding=Rounding.BOUNDED,
        usual={4: lengths("layout", 0)},
        dtypes=("float32", "float64", "float16"),
        cost=_recurrent_cost,
        rank_ends=RankEnds.BOTH,
    )


def _attention(builder: Builder, q: Tensor) -> Instance:
    """Query, key and value with four dimensions; key heads may be shared by groups of query heads."""
    rng, attrs = builder.rng, Attributes()
    if max(q.shape) > 8:
        q = builder.match(q.dtype, tuple(min(side, 6) for side in q.shape), Domain(-4, 4))
    batch, heads, queries, size = q.shape
    key_heads = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    keys, value_size = rng.between(1, 6), rng.between(1, 5)
    k = builder.match(q.dtype, (batch, key_heads, keys, size), Domain(-4, 4))
    v = builder.match(q.dtype, (batch, key_heads, keys, value_size))
    ins: list[Tensor | None] = [q, k, v]
    if rng.random() < builder.style.rates.rare_attribute:
        attrs["is_causal"] = 1
    elif rng.random() < builder.style.rates.unlikely_input:
        kind = rng.choice(("bool", q.dtype))
        if kind == "bool":  # no row may be masked out whole: nothing would be left to attend to
            ins.append(
                builder.ints(
                    [1 if column == 0 else rng.below(2) for _ in range(queries) for column in range(keys)],
                    "bool",
                    (queries, keys),
                )
            )
        else:
            ins.append(builder.match(q.dtype, (queries, keys), Domain(-2, 2)))
    if rng.random() < builder.style.rates.rare_attribute:
        attrs["scale"] = rng.choice((0.5, 1.0, 0.125))
    if rng.random() < builder.style.rates.softcap:
        attrs["softcap"] = rng.choice((1.0, 5.0))
    return Instance(ins, attrs, 1)


def _attended(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(ins[0].dtype, (*ins[0].shape[:3], ins[2].shape[3]))]


def _attention_cost(ins: Ins, attrs: Mapping[str, Any], outs: Sequence[Typed]) -> int:
    batch, heads, queries, size = ins[0].shape
    count: int = batch * heads * queries * ins[1].shape[2] * (size + ins[2].shape[3])
    return count


def _rotary(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    if x.shape[3] % 2:
        x = builder.match(x.dtype, (*x.shape[:3], 2 * rng.between(1, 4)))
    batch, _, length, size = x.shape
    turned = size
    if size >= 4 and rng.random() < builder.style.rates.rare_attribute:
        turned = 2 * rng.between(1, size // 2)
        attrs["rotary_embedding_dim"] = turned
    if rng.random() < builder.style.rates.unlikely_attribute:
        attrs["interleaved"] = 1
    if rng.random() < builder.style.rates.optional_input:
        caches = [builder.match(x.dtype, (batch, length, turned // 2), _SMALL) for _ in range(2)]
        return Instance([x, *caches], attrs)
    rows = length + rng.between(0, 2)
    caches = [builder.match(x.dtype, (rows, turned // 2), _SMALL) for _ in range(2)]
    places = builder.ints([rng.below(rows) for _ in range(batch * length)], "int64", (batch, length))
    return Instance([x, *caches, places], attrs)


def _rotary_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """Two caches of half as many columns as are turned, a row for each place or for each position that is asked for."""
    if len(ins[0].shape) != 4:
        return ()
    batch, _, length, size = ins[0].shape
    half = (attrs.get("rotary_embedding_dim") or size) // 2
    asked = len(ins) > 3 and ins[3] is not None
    found = [len(cache.shape) == (2 if asked else 3) and cache.shape[-1] == half for cache in ins[1:3]]
    found += [p == q for p, q in zip(ins[1].shape, ins[2].shape, strict=False)]
    places = ins[3].shape if asked else ins[1].shape[:2]
    return [*found, *(p == q for p, q in zip(places, (batch, length), strict=False))]


def _rotary_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    size = ins[0].size * max(1.0, ins[1].size + ins[2].size)
    return -size, size


def _tensor_scatter(builder: Builder, x: Tensor) -> Instance:
    rng, attrs = builder.rng, Attributes()
    axis = rng.between(1, x.rank - 1)
    length = rng.between(1, x.shape[axis])
    if axis != x.rank - 2 or rng.random() < builder.style.rates.unlikely_attribute:
        attrs["axis"] = axis - x.rank if rng.random() < builder.style.rates.negative_cache_axis else axis
    update = builder.match(x.dtype, tuple(length if place == axis else side for place, side in enumerate(x.shape)))
    if rng.random() < builder.style.rates.no_write_index:
        return Instance([x, update], attrs)
    circular = rng.random() < builder.style.rates.unlikely_attribute
    if circular:
        attrs["mode"] = "circular"
    last = x.shape[axis] - 1 if circular else x.shape[axis] - length
    return Instance([x, update, builder.ints([rng.between(0, last) for _ in range(x.shape[0])])], attrs)


def _attention_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    q, k, v = (tensor.shape for tensor in ins[:3])
    return [
        *(len(k) == len(q) and len(v) == len(q), k[0] == q[0], v[0] == q[0]),
        *(k[1] == v[1], q[1] % k[1] == 0, k[2] == v[2], k[3] == q[3]),
    ]


def _write_start(site: Site) -> Domain:
    """Where an update of this length fits."""
    axis = site.attribute("axis", -2)
    past, update = size_of(site.shape(0), axis), size_of(site.shape(1), axis)
    return Domain(0, max((past or 0) - (update or 0), 0))


OPERATORS = (
    *map(recurrent, _GATES),
    Operator(
        "Attention",
        _attention,
        infer=_attended,
        requires=_attention_fits,
        bounds=lambda ins, attrs: (ins[2].low, ins[2].high),
        safe=(Domain(-4, 4),),
        ranks=(4, 4),
        family="attention",
        dtypes=FLOATS,
        cost=_attention_cost,
        usual={6: lambda site: Domain(1, max(size_of(site.shape(1), -2) or 1, 1))},
    ),
    Operator(
        "RotaryEmbedding",
        _rotary,
        requires=_rotary_fits,
        bounds=_rotary_bounds,
        ranks=(4, 4),
        family="attention",
        dtypes=FLOATS,
        usual={3: dim_index(1, 0)},
    ),
    Operator(
        "TensorScatter",
        _tensor_scatter,
        bounds=lambda ins, attrs: (min(ins[0].low, ins[1].low), max(ins[0].high, ins[1].high)),
        ranks=(2, 5),
        family="attention",
        usual={2: _write_start},
    ),
)
