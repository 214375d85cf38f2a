"""Normalisations over channels, features or groups, and dropout in inference.

Sources: the ONNX operator pages of BatchNormalization, InstanceNormalization, LayerNormalization,
GroupNormalization, RMSNormalization, LRN, MeanVarianceNormalization, Dropout.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.declarations import declaration, shape_patterns, symbolic_arith
from opsieve.gen.declarations.builder import Sizes
from opsieve.gen.declarations.instance import (
    Attr,
    AxisAttr,
    Count,
    Draft,
    Input,
    Numbers,
    OutputCount,
    channels,
    from_axis,
    look_up,
    some,
)
from opsieve.gen.declarations.properties import (
    dropout,
    long_sum,
    normalised_size,
)
from opsieve.gen.declarations.tensor import ANY, FLOATS, Bounds, Domain, Ins, Typed, exact, optional

# Scales away from 0: a scale near 0 would hide errors of everything before it.
_SCALE = Domain(0.2, 2)
# Away from 0, where the reciprocal of the root magnifies rounding.
_VARIANCE = Domain(0.3, 4)


# The default, 1e-5, is among them: written down it must give the same result as left out.
_EPSILON = Attr("epsilon", (1e-3, 1e-2, 1e-5), 0.4)


def normal(ins: Ins, terms: int) -> Bounds:
    """Bounds of a normalised operand times a scale (second input) plus a bias (third)."""
    scale, bias = optional(ins, 1), optional(ins, 2)
    # An element lies at most sqrt(n) standard deviations from the mean of n elements.
    size = math.sqrt(max(terms, 1)) * (1.0 if scale is None else scale.size) + (
        0.0 if bias is None else bias.size
    )
    return -size, size


def _statistics(draft: Draft) -> None:
    """Draw the optional outputs, mean and deviation, rarely and for float32 only."""
    seldom = draft.rng.random() < draft.builder.style.rates.no_statistics or draft.x.dtype != "float32"
    draft.outputs = 1 if seldom else draft.rng.between(2, 3)


def _scale_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    """Require the scale, and the bias if given, to broadcast to the normalised axes."""
    shape, axis = ins[0].shape, attrs.get("axis", -1)
    if not -len(shape) <= axis < len(shape):
        return [False]
    found: list[symbolic_arith.Truth] = []
    for parameter in ins[1:]:
        found.append(len(parameter.shape) <= len(shape[axis:]))
        found += [
            symbolic_arith.either(p == q, q == 1)
            for p, q in zip(shape[::-1], parameter.shape[::-1], strict=False)
        ]
    return found


def _layer_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    axis = attrs.get("axis", -1) % len(shape)
    # The page keeps the normalised axes in Mean and InvStdDev, with size 1; `stash_type` makes them float32.
    statistics = (*shape[:axis], *(1 for _ in shape[axis:]))
    return [(ins[0].dtype, shape), ("float32", statistics), ("float32", statistics)]


def _layer_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    terms = math.prod(ins[0].shape[attrs.get("axis", -1) :])
    return [normal(ins, terms), (ins[0].low, ins[0].high), (0.0, 1 / math.sqrt(attrs.get("epsilon", 1e-5)))]


def _groups(draft: Draft) -> int:
    if draft.open is None:
        return draft.rng.choice(symbolic_arith.divisors(draft.x.shape[1]))
    groups = draft.rng.choice((1, 1, 2, 3, 4))
    draft.holds(draft.x.shape[1] % groups == 0)
    return groups


def _group_parameters(draft: Draft) -> Sizes:
    """Return the length of scale and bias: the groups before opset 21, the channels since then."""
    return (draft.attrs["num_groups"] if draft.builder.opset < 21 else draft.x.shape[1],)


def _groups_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[symbolic_arith.Truth]:
    """Require as many parameters as groups (before opset 21) or as channels (since then)."""
    groups, channels = attrs["num_groups"], ins[0].shape[1]
    if groups < 1 or any(len(parameter.shape) != 1 for parameter in ins[1:]):
        return [False]
    found = [channels % groups == 0, ins[1].shape[0] == ins[2].shape[0]]
    return [*found, symbolic_arith.either(ins[1].shape[0] == groups, ins[1].shape[0] == channels)]


# Elements of a leaf: fewer are all equal now and then, since some styles draw them from three numbers.
_UNEQUAL = 6


def _unequal(draft: Draft) -> None:
    """Begin with a leaf of different elements.

    The operator's function takes the root of E[x^2] - E[x]^2, which rounding makes negative for equal
    elements.
    """
    x = draft.x
    if math.prod(x.shape) < _UNEQUAL or not x.leaf or x.leaf == "constant" or x.high - x.low < 1:
        shape = (
            x.shape
            if math.prod(x.shape) >= _UNEQUAL
            else (2, 3, *(draft.rng.between(1, 3) for _ in x.shape[2:]))
        )
        draft.begin(draft.builder.leaf(x.dtype, shape, Domain(-2, 2), ("input", "input", "initializer")))


def _axes_of_several(draft: Draft) -> list[int]:
    """Draw axes with so many elements that some differ. They are always given, because the checker of onnx
    1.23 refuses the default.
    """
    shape = draft.x.shape
    axes = draft.rng.some(range(len(shape)), draft.rng.between(1, len(shape)))
    return axes if math.prod(shape[axis] for axis in axes) >= _UNEQUAL else list(range(len(shape)))


def _mean_variance_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """Bound the output. It is unbounded if each element stands alone: the variance is then a rounded
    difference, which may be negative.
    """
    x = ins[0]
    axes = attrs.get("axes", [axis for axis in (0, 2, 3) if axis < x.rank])
    if math.prod(x.shape[axis] for axis in axes) < 2:
        return -math.inf, math.inf
    return normal(ins[:1], math.prod(x.shape))


def norm(name: str, **more: Any) -> declaration.Operator:
    """Return a normalisation of floats; the result has the type of the first input."""
    return declaration.Operator(name, family="normalisation", dtypes=more.pop("dtypes", FLOATS), **more)


def _wide_scale(ins: Ins, attrs: Mapping[str, Any]) -> bool:
    """Return whether the scale has more dimensions than are normalised, which compilers broadcast."""
    axis = attrs.get("axis", -1)
    return bool(len(ins[1].shape) > (-axis if axis < 0 else len(ins[0].shape) - axis))


OPERATORS = (
    norm(
        "BatchNormalization",
        parts=(
            Count(
                "type",
                # Since opset 15 scale and bias may have another type than the input.
                lambda draft: (
                    draft.x.dtype
                    if draft.opset < 15 or draft.draws(0.9)
                    else draft.builder.choose_dtype(draft.builder.takes("BatchNormalization", "T1"))
                ),
            ),
            *(Input(channels, domain, look_up("type")) for domain in (_SCALE, ANY, Domain(-2, 2), _VARIANCE)),
            _EPSILON,
            # Further outputs are for training only.
            OutputCount(1),
        ),
        requires=shape_patterns.agree("batch channels sides...", *["channels"] * 4),
        bounds=declaration.magnitude(
            lambda ins, attrs: (
                (ins[0].size + ins[3].size) * ins[1].size / math.sqrt(max(ins[4].low, 1e-3)) + ins[2].size
            )
        ),
        safe=(ANY, ANY, ANY, ANY, _VARIANCE),
        ranks=(2, 5),
        symbolic=True,
        rank_ends=declaration.RankEnds.LEAST,
    ),
    norm(
        "InstanceNormalization",
        parts=(Input(channels, _SCALE), Input(channels), _EPSILON),
        requires=shape_patterns.agree("batch channels sides...", *["channels"] * 4),
        bounds=lambda ins, attrs: normal(ins, math.prod(ins[0].shape[2:])),
        ranks=(3, 5),
        undefined=(long_sum(normalised_size),),
        symbolic=True,
    ),
    norm(
        "LayerNormalization",
        parts=(_EPSILON, AxisAttr(-1), Input(from_axis, _SCALE), Input(from_axis, share=0.6), _statistics),
        same_shape=True,
        infer=_layer_types,
        requires=_scale_fits,
        bounds=_layer_bounds,
        ranks=(1, 5),
        undefined=(long_sum(normalised_size),),
        symbolic=True,
        rank_ends=declaration.RankEnds.LEAST,
        unmodelled=_wide_scale,
    ),
    norm(
        "GroupNormalization",
        parts=(
            Attr("num_groups", _groups),
            Input(_group_parameters, _SCALE),
            Input(_group_parameters),
            _EPSILON,
        ),
        requires=_groups_fit,
        bounds=lambda ins, attrs: normal(ins, math.prod(ins[0].shape[1:])),
        ranks=(3, 5),
        symbolic=True,
        varied=True,
    ),
    norm(
        "RMSNormalization",
        parts=(_EPSILON, AxisAttr(-1), Input(from_axis, _SCALE)),
        # ONNX gives the scale, and the result, a type of their own; its inference gives the result that
        # of the input, so that only one type passes.
        requires=lambda ins, attrs: [*_scale_fits(ins, attrs), ins[0].dtype == ins[1].dtype],
        bounds=lambda ins, attrs: normal(ins, math.prod(ins[0].shape[attrs.get("axis", -1) :])),
        ranks=(1, 5),
        undefined=(long_sum(normalised_size),),
        symbolic=True,
        unmodelled=lambda ins, attrs: _wide_scale(ins, attrs) or ins[0].dtype != ins[1].dtype,
    ),
    norm(
        "LRN",
        parts=(
            # The page sums over floor((size-1)/2) channels below and ceil((size-1)/2) above; odd sizes are
            # symmetric.
            Attr("size", (1, 3, 5)),
            Attr("alpha", (1e-3, 0.1), 0.4),
            Attr("beta", (0.5, 0.75), 0.4),
            Attr("bias", (1.0, 2.0), 0.4),
        ),
        bounds=lambda ins, attrs: (min(ins[0].low, 0.0), max(ins[0].high, 0.0)),
        ranks=(4, 4),
        symbolic=True,
    ),
    # ONNX's own definition of it, a function, is only well-typed in float32.
    norm(
        "MeanVarianceNormalization",
        parts=(_unequal, Attr("axes", _axes_of_several)),
        dtypes=("float32",),
        requires=lambda ins, attrs: [
            -len(ins[0].shape) <= axis < len(ins[0].shape) for axis in attrs.get("axes", (0, 2, 3))
        ],
        bounds=_mean_variance_bounds,
        ranks=(2, 5),
        varied=True,
    ),
    declaration.Operator(
        "Dropout",
        # In inference mode the ratio has no effect and the mask is all true.
        parts=(
            some(Numbers((0.0, 0.5), "float32", True), Numbers((0,), "bool", True, share=0.4), share=0.4),
            some(OutputCount(1), share=0.7),
        ),
        same_shape=True,
        infer=lambda ins, attrs: [(ins[0].dtype, ins[0].shape), ("bool", ins[0].shape)],
        bounds=lambda ins, attrs: [declaration.hull(ins, attrs), (0.0, 1.0)],
        family="normalisation",
        usual={1: Domain(0, 0.5), 2: exact([0])},
        moves=declaration.Moves.FIRST,
        undefined=(dropout,),
        symbolic=True,
        rigid=True,
        random=True,
    ),
)
