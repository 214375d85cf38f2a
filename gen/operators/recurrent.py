"""Recurrent networks and attention.

Sources: the ONNX operator pages of RNN, GRU, LSTM, Attention, RotaryEmbedding, TensorScatter.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import declaration, properties, symbolic_arith
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    Draft,
    First,
    Input,
    Numbers,
    OutputCount,
    Part,
    between,
    one_of,
    since,
    some,
)
from opsieve.gen.declarations.shape_patterns import agree, match_sizes, shape_of
from opsieve.gen.declarations.tensor import (
    FLOATS,
    Bounds,
    Domain,
    Ins,
    Site,
    Typed,
    dim_index,
    lengths,
    optional,
    size_of,
)

_SMALL, _SAFE = Domain(-1, 1), Domain(-4, 4)
_QUERY, _KEY, _VALUE = "batch heads queries size", "batch groups keys size", "batch groups keys width"
# The weights of all gates are stacked in one tensor: one gate for an RNN, three for a GRU, four for an LSTM.
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@functools.cache
def _shapes(gates: int, batch_first: bool) -> tuple[str, ...]:
    """Return the shapes of all inputs; those of the sequence and the states depend on `layout`."""
    state = "batch directions hidden_size" if batch_first else "directions batch hidden_size"
    return (
        "batch length features" if batch_first else "length batch features",
        f"directions {gates}*hidden_size features",
        f"directions {gates}*hidden_size hidden_size",
        # The bias of the input and that of the recurrence, one behind the other.
        f"directions {2 * gates}*hidden_size",
        "batch",
        state,
        state,
        # The peepholes of an LSTM: one for each of three gates.
        "directions 3*hidden_size",
    )


def _with_directions(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {**attrs, "directions": 2 if attrs.get("direction") == "bidirectional" else 1}


def _states(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    *_, state, _ = texts = _shapes(1, bool(attrs.get("layout")))
    directed = _with_directions(attrs)
    known = match_sizes(texts, ins[:3], directed)[0]
    all_states = f"batch length {state[6:]}" if attrs.get("layout") else f"length {state}"
    shapes = (shape_of(text, known, directed) for text in (all_states, state, state))
    return [(ins[0].dtype, shape) for shape in shapes]


def _state_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    steps = ins[0].shape[1 if attrs.get("layout") else 0]
    size = 1.0
    # Tanh and Sigmoid keep the state within 1; with Relu it may grow in every step.
    if "Relu" in attrs.get("activations", ()):
        hidden = attrs["hidden_size"]
        step = ins[0].shape[2] * ins[0].size * ins[1].size + hidden * ins[2].size + 2
        size = step * (1 + hidden * ins[2].size) ** min(steps, 12)
    # Each step adds at most 1 to the cell state of an LSTM, because its gates and its candidate lie within 1.
    return [(-size, size), (-size, size), (-steps - 1.0, steps + 1.0)]


_OWN: dict[str, tuple[Part, ...]] = {
    "RNN": (
        Attr(
            "activations",
            lambda draft: [draft.rng.choice(("Relu", "Tanh", "Sigmoid")) for _ in range(draft["directions"])],
            0.4,
        ),
        OutputCount(1, 2),
    ),
    "GRU": (Attr("linear_before_reset", (1,), 0.4), OutputCount(1, 2)),
    "LSTM": (Attr("input_forget", (1,), 0.1), OutputCount(1, 3)),
}


def _recurrent_parts(name: str) -> tuple[Part, ...]:
    """Make the parts of a recurrent operator, mostly with `layout` 0, the only one onnxruntime supports."""

    def shape_of(place: int) -> Callable[[Draft], str]:
        return lambda draft: _shapes(_GATES[name], "layout" in draft.attrs)[place]

    return (
        Attr("hidden_size", between(1, 4)),
        Attr("direction", ("forward", "reverse", "reverse", "bidirectional", "bidirectional"), 0.6),
        since(14, Attr("layout", (1,), 0.1)),
        Count("directions", lambda draft: _with_directions(draft.attrs)["directions"]),
        First(
            shape_of(0),
            fits=lambda draft: draft["features"] <= 16,
            other=lambda draft: (*draft.x.shape[:2], draft.rng.between(1, 8)),
        ),
        *(Input(shape_of(place), _SMALL) for place in (1, 2)),
        Input(shape_of(3), _SMALL, share=0.5),
        Numbers(
            lambda draft: [draft.rng.between(1, draft["length"]) for _ in range(draft["batch"])],
            "int32",
            share=0.2,
        ),
        Input(shape_of(5), _SMALL, share=0.4),
        *(
            (Input(shape_of(6), _SMALL, share=0.4), Input(shape_of(7), _SMALL, share=0.2))
            if name == "LSTM"
            else ()
        ),
        *_OWN[name],
    )


def recurrent(name: str) -> declaration.Operator:
    """RNN, GRU or LSTM."""
    return declaration.Operator(
        name,
        parts=_recurrent_parts(name),
        requires=lambda ins, attrs: agree(*_shapes(_GATES[name], bool(attrs.get("layout"))))(
            ins, _with_directions(attrs)
        ),
        infer=_states if name == "LSTM" else lambda ins, attrs: _states(ins, attrs)[:2],
        bounds=_state_bounds if name == "LSTM" else lambda ins, attrs: _state_bounds(ins, attrs)[:2],
        safe=(Domain(-20, 20),),
        ranks=(3, 3),
        family="recurrent",
        rounding=properties.Rounding.BOUNDED,
        usual={4: lengths("layout", 0)},
        dtypes=("float32", "float64", "float16"),
        cost=lambda ins, attrs, outs: (
            math.prod(ins[0].shape[:2]) * (math.prod(ins[1].shape) + math.prod(ins[2].shape))
        ),
        rank_ends=declaration.RankEnds.BOTH,
    )


# Key heads may be shared by groups of query heads.
_ATTENTION = (
    First(
        _QUERY,
        fits=lambda draft: max(draft.x.shape) <= 8,
        other=lambda draft: tuple(min(side, 6) for side in draft.x.shape),
        domain=_SAFE,
    ),
    Count("groups", lambda draft: draft.rng.choice(symbolic_arith.divisors(draft["heads"]))),
    Count("keys", between(1, 6)),
    Count("width", between(1, 5)),
    Input(_KEY, _SAFE),
    Input(_VALUE),
    one_of(
        some(Attr("is_causal", (1,))),
        some(),
        some(),
        Numbers(
            # The first column is kept: the softmax of a row that is masked out whole is NaN.
            lambda draft: [
                1 if column == 0 else draft.rng.below(2)
                for _ in range(draft["queries"])
                for column in range(draft["keys"])
            ],
            "bool",
            shape="queries keys",
        ),
        Input("queries keys", Domain(-2, 2), share=0.5),
    ),
    Attr("scale", (0.5, 1.0, 0.125), 0.3),
    Attr("softcap", (1.0, 5.0), 0.2),
    OutputCount(1),
)


def _attention_cost(ins: Ins, attrs: Mapping[str, Any], outs: Sequence[Typed]) -> int:
    batch, heads, queries, size = ins[0].shape
    count: int = batch * heads * queries * ins[1].shape[2] * (size + ins[2].shape[3])
    return count


def _draw_rotated_columns(draft: Draft) -> None:
    """Draw how many columns are rotated: all of them, or an even number."""
    size = draft["size"]
    if size >= 4 and draft.rng.random() < draft.builder.style.rates.rare_attribute:
        draft.attrs["rotary_embedding_dim"] = size = 2 * draft.rng.between(1, size // 2)
    draft.sizes["half"] = size // 2


_ROTARY = (
    First(
        "batch heads length size",
        fits=lambda draft: draft["size"] % 2 == 0,
        other=lambda draft: (*draft.x.shape[:3], 2 * draft.rng.between(1, 4)),
    ),
    _draw_rotated_columns,
    Attr("interleaved", (1,), 0.4),
    one_of(
        some(Input("batch length half", _SMALL), Input("batch length half", _SMALL)),
        some(
            Count("rows", lambda draft: draft["length"] + draft.rng.between(0, 2)),
            Input("rows half", _SMALL),
            Input("rows half", _SMALL),
            Numbers(
                lambda draft: [
                    draft.rng.below(draft["rows"]) for _ in range(draft["batch"] * draft["length"])
                ],
                shape="batch length",
            ),
        ),
    ),
)


def _rotary_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    """Require two caches with half as many columns as are rotated, and a row for each place or position."""
    if len(ins[0].shape) != 4:
        return ()
    batch, _, length, size = ins[0].shape
    half = (attrs.get("rotary_embedding_dim") or size) // 2
    positions = optional(ins, 3)
    found = [
        len(cache.shape) == (3 if positions is None else 2) and cache.shape[-1] == half for cache in ins[1:3]
    ]
    found += [p == q for p, q in zip(ins[1].shape, ins[2].shape, strict=False)]
    places = ins[1].shape[:2] if positions is None else positions.shape
    return [*found, *(p == q for p, q in zip(places, (batch, length), strict=False))]


def _cache_axis(draft: Draft) -> None:
    """Draw any axis except that of the batch; the last but one is the default."""
    rng, rates, rank = draft.rng, draft.builder.style.rates, draft.x.rank
    draft.axis = rng.between(1, rank - 1)
    if draft.axis != rank - 2 or rng.random() < rates.unlikely_attribute:
        draft.attrs["axis"] = draft.axis - rank if rng.random() < rates.negative_cache_axis else draft.axis


def _write_start(site: Site) -> Domain:
    """Return the starts at which an update of this length fits."""
    axis = site.attribute("axis", -2)
    past, update = size_of(site.shape(0), axis), size_of(site.shape(1), axis)
    return Domain(0, max((past or 0) - (update or 0), 0))


OPERATORS = (
    *map(recurrent, _GATES),
    declaration.Operator(
        "Attention",
        parts=_ATTENTION,
        infer=lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape[:3], ins[2].shape[3]))],
        requires=lambda ins, attrs: [
            *agree(_QUERY, _KEY, _VALUE)(ins, attrs),
            ins[0].shape[1] % ins[1].shape[1] == 0,
        ],
        bounds=lambda ins, attrs: (ins[2].low, ins[2].high),
        # With three dimensions the heads are folded into the last axis, by the attributes.
        unmodelled=lambda ins, attrs: len(ins[0].shape) == 3,
        safe=(_SAFE,),
        ranks=(4, 4),
        family="attention",
        dtypes=FLOATS,
        cost=_attention_cost,
        usual={6: lambda site: Domain(1, max(size_of(site.shape(1), -2) or 1, 1))},
    ),
    declaration.Operator(
        "RotaryEmbedding",
        parts=_ROTARY,
        requires=_rotary_fits,
        bounds=declaration.magnitude(lambda ins, attrs: ins[0].size * max(1.0, ins[1].size + ins[2].size)),
        ranks=(4, 4),
        family="attention",
        dtypes=FLOATS,
        usual={3: dim_index(1, 0)},
    ),
    declaration.Operator(
        "TensorScatter",
        parts=(
            _cache_axis,
            Count("length", lambda draft: draft.rng.between(1, draft.side)),
            Input(
                lambda draft: (
                    *draft.x.shape[: draft.axis],
                    draft["length"],
                    *draft.x.shape[draft.axis + 1 :],
                )
            ),
            some(
                Attr("mode", ("circular",), 0.4),
                Numbers(
                    # A circular update may begin anywhere, a linear one must fit behind its start.
                    lambda draft: [
                        draft.rng.between(0, draft.side - (1 if "mode" in draft.attrs else draft["length"]))
                        for _ in range(draft.x.shape[0])
                    ]
                ),
                share=0.7,
            ),
        ),
        bounds=lambda ins, attrs: (min(ins[0].low, ins[1].low), max(ins[0].high, ins[1].high)),
        ranks=(2, 5),
        family="attention",
        usual={2: _write_start},
    ),
)
