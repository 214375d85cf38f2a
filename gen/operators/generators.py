"""Operators that make tensors from sizes and numbers, and those whose result has a size that only a run
tells.

Sources: the ONNX operator pages of ConstantOfShape, Range, the window functions, NonZero, Unique,
NonMaxSuppression.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from opsieve.gen.declarations.declaration import Operator, RankEnds, SizeRule
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    Draft,
    Input,
    Numbers,
    OutputCount,
    between,
    drawn_axis,
    flag,
    look_up,
    some,
)
from opsieve.gen.declarations.properties import Rounding, nan_input
from opsieve.gen.declarations.shape_patterns import agree
from opsieve.gen.declarations.tensor import (
    NUMBER,
    NUMERIC,
    Bounds,
    Domain,
    Ins,
    Site,
    Typed,
    exact,
    like_output,
    size_of,
)
from opsieve.gen.model.tensors import DTYPES
from opsieve.gen.operators.reshaping import values_of

# A size that is known only after a run; it is declared as a dimension with a name of its own.
_UNKNOWN = "?"


def _filling(draft: Draft) -> Any:
    # ConstantOfShape's page: the value is a tensor of one element.
    dtype = draft.rng.choice(("float32", "float16", "float64", "int64", "int32", "uint8", "bool"))
    return np.array([draft.rng.between(0, 3)]).astype(dtype)


def _filled_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    # Without `value` the page fills with 0 of float32.
    value = float(attrs["value"][0]) if "value" in attrs else 0.0
    return value, value


def _range_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    # The page: number of elements = max(ceil((limit - start) / delta), 0).
    start, end, step = (values_of(tensor)[0] for tensor in ins)
    return [(ins[0].dtype, (max(0, math.ceil((end - start) / step)),))]


_TAPER = (
    flag("periodic", 0.5),
    Attr("output_datatype", tuple(NUMBER[dtype] for dtype in ("float32", "float64", "float16")), 0.3),
    Numbers(between(2, 16), ("int64", "int32"), scalar=True, first=True),
)


def taper(name: str) -> Operator:
    """Return a window function of signal processing."""
    return Operator(
        name,
        parts=_TAPER,
        infer=lambda ins, attrs: [(DTYPES[attrs.get("output_datatype", 1)], (values_of(ins[0])[0],))],
        # Blackman windows touch 0 and 1, and rounding may go beyond.
        bounds=lambda ins, attrs: (-0.01, 1.01),
        dtypes=("int64", "int32"),
        usual={0: lambda site: exact([size_of(site.output(), 0) or 4])},
        ranks=(0, 0),
        family="source",
        rank_ends=RankEnds.LARGEST,
    )


def _unique_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    if "axis" in attrs:
        axis = attrs["axis"] % len(shape)
        found: tuple[Any, ...] = (*shape[:axis], _UNKNOWN, *shape[axis + 1 :])
    else:
        found = (_UNKNOWN,)
    # The third output, inverse_indices, has one entry for each element of the input, so its size is known.
    count = (shape[attrs["axis"]] if "axis" in attrs else math.prod(shape),)
    return [(ins[0].dtype, found), ("int64", (_UNKNOWN,)), ("int64", count), ("int64", (_UNKNOWN,))]


def _corners(draft: Draft) -> list[float]:
    """Draw boxes whose second corner lies beyond the first: the page wants (y1, x1, y2, x2)."""
    random, rows = draft.rng.random, list[float]()
    for _ in range(draft["batch"] * draft["count"]):
        top, left = random(), random()
        rows += [top, left, top + 0.05 + random(), left + 0.05 + random()]
    return [round(value, 3) for value in rows]


_BOXES, _SCORES = "batch count 4", "batch classes count"


def source(name: str, infer: Any, bounds: Any, **more: Any) -> Operator:
    """Return an operator that makes a tensor."""
    return Operator(name, infer=infer, bounds=bounds, family="source", **more)


def _range_ends(site: Site) -> Domain:
    """Return a range from 0 in steps of 1 to the result's size, if that is known."""
    length = size_of(site.output(), 0)
    if length is not None:
        return exact([(0, length, 1)[site.position]])
    return (Domain(0, 1), Domain(2, 6), Domain(1, 2))[site.position]


def _mel_numbers(site: Site) -> Domain:
    """Return bins, length, rate and edges that make a matrix of the wanted size."""
    out = site.output() or (9, 4)
    return exact([(out[-1], 2 * (out[0] - 1), 8192, 0.0, 4096.0)[site.position]])


OPERATORS = (
    source(
        "ConstantOfShape",
        lambda ins, attrs: [
            (attrs["value"].dtype.name if "value" in attrs else "float32", tuple(values_of(ins[0])))
        ],
        _filled_bounds,
        parts=(Numbers(lambda draft: draft.builder.shape(0, 4), first=True), Attr("value", _filling, 0.8)),
        requires=lambda ins, attrs: [size >= 0 for size in values_of(ins[0])],
        ranks=(1, 1),
        dtypes=("int64",),
        usual={0: like_output(Domain(1, 3))},
        symbolic=True,
        rank_ends=RankEnds.BOTH,
        size_rule=SizeRule.FILLED,
        shape_input=0,
        per_axis=(0,),
        rounding=Rounding.EXACT,
    ),
    source(
        "Range",
        _range_type,
        # At most 12 steps of 3 from at most 4, see `parts`.
        lambda ins, attrs: (-40.0, 40.0),
        parts=(
            Count("start", between(-4, 4)),
            Count("step", (1, 1, 2, 3, -1, -2)),
            Numbers(look_up("start"), "", scalar=True, first=True),
            Numbers(lambda draft: draft["start"] + draft.rng.between(1, 12) * draft["step"], "", scalar=True),
            Numbers(look_up("step"), "", scalar=True),
        ),
        ranks=(0, 0),
        usual={0: _range_ends, 1: _range_ends, 2: _range_ends},
        rank_ends=RankEnds.LARGEST,
        scalars=(0, 1, 2),
        rounding=Rounding.JUMPS,
    ),
    *map(taper, ("HannWindow", "HammingWindow", "BlackmanWindow")),
    source(
        "MelWeightMatrix",
        # The page: [floor(dft_length / 2) + 1][num_mel_bins].
        lambda ins, attrs: [("float32", (values_of(ins[1])[0] // 2 + 1, values_of(ins[0])[0]))],
        lambda ins, attrs: (0.0, 1.01),
        parts=(
            Numbers(between(3, 8), scalar=True, first=True),
            Numbers((8, 16, 32), scalar=True),
            Numbers((8000, 16000), scalar=True),
            Numbers((0.0, 20.0), "float32", scalar=True),
            # The upper edge is at most half of the lowest sample rate.
            Numbers((3000.0, 4000.0), "float32", scalar=True),
        ),
        ranks=(0, 0),
        dtypes=("int64",),
        usual={0: _mel_numbers, 1: _mel_numbers, 2: _mel_numbers, 3: _mel_numbers, 4: _mel_numbers},
    ),
    source(
        "NonZero",
        lambda ins, attrs: [("int64", (len(ins[0].shape), _UNKNOWN))],
        lambda ins, attrs: (0.0, max(ins[0].shape, default=1) - 1),
        ranks=(1, 5),
        dtypes=(*NUMERIC, "bool"),
        undefined=(nan_input,),
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
    source(
        "Unique",
        _unique_types,
        lambda ins, attrs: [(ins[0].low, ins[0].high), *[(0.0, float(math.prod(ins[0].shape)))] * 3],
        parts=(
            some(
                Attr("axis", drawn_axis),
                where=lambda draft: draft.x.rank and draft.draws(draft.builder.style.rates.attribute),
            ),
            flag("sorted", 0.4),
            OutputCount(1, 4),
        ),
        ranks=(0, 4),
        dtypes=NUMERIC,
        undefined=(nan_input,),
        rounding=Rounding.EXACT | Rounding.JUMPS,
    ),
    source(
        "NonMaxSuppression",
        lambda ins, attrs: [("int64", (_UNKNOWN, 3))],
        # Rows are [batch, class, box], each an index below the counts drawn here.
        lambda ins, attrs: (0.0, 6.0),
        parts=(
            Count("batch", between(1, 2)),
            Count("count", between(1, 6)),
            Count("classes", between(1, 3)),
            Numbers(_corners, "float32", first=True, shape=_BOXES),
            Input(_SCORES),
            Numbers(
                lambda draft: [draft.rng.between(1, 4)], shape=lambda draft: draft.rng.choice(((), (1,)))
            ),
            some(
                Numbers((0.3, 0.5, 0.7), "float32", scalar=True),
                Numbers((-1.0, 0.0, 0.4), "float32", scalar=True, share=0.5),
                share=0.6,
            ),
            Attr("center_point_box", (1,), 0.3),
        ),
        requires=agree(_BOXES, _SCORES),
        ranks=(3, 3),
        dtypes=("float32",),
        usual={2: Domain(1, 3), 3: Domain(0, 1), 4: Domain(0, 0.5)},
        undefined=(nan_input,),
        rank_ends=RankEnds.BOTH,
        sizes_unsaid=True,
        rounding=Rounding.COMPUTES,
    ),
)
