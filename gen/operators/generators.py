"""Operators that make tensors from sizes and numbers, and those whose result has a size that only a run tells.

Sources: the ONNX operator pages of ConstantOfShape, Range, the window functions, NonZero, Unique, NonMaxSuppression.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.build.graph_builder import Sketch
from opsieve.gen.model.tensors import DTYPES
from opsieve.gen.operators.data_movement import Instance, values_of
from opsieve.gen.operators.reductions import axis_of
from opsieve.gen.spec.declaration import OUTPUTS, Attributes, Bounds, Ins, Operator, Tensor, Typed
from opsieve.gen.spec.dtype_facts import NUMBER, NUMERIC
from opsieve.gen.spec.symbolic_arith import Truth

_UNKNOWN = "?"  # written as a symbolic size of its own name


def _filled(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    shape = sketch.shape(0, 4)
    asked = sketch.ints(shape)
    if draw.random() < 0.2:
        return [asked], {}
    dtype = draw.choice(("float32", "float16", "float64", "int64", "int32", "uint8", "bool"))
    return [asked], {"value": np.array([draw.between(0, 3)]).astype(dtype)}


def _filled_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(attrs["value"].dtype.name if "value" in attrs else "float32", tuple(values_of(ins[0])))]


def _filled_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    value = float(attrs["value"][0]) if "value" in attrs else 0.0
    return value, value


def _not_below_zero(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    return [size >= 0 for size in values_of(ins[0])]


def _boxes_fit(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    boxes, scores = ins[0].shape, ins[1].shape
    return [len(scores) == 3, boxes[2] == 4, boxes[0] == scores[0], boxes[1] == scores[2]]


def _range(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    start, count, step = draw.between(-4, 4), draw.between(1, 12), draw.choice((1, 1, 2, 3, -1, -2))
    dtype = x.dtype
    ins = [sketch.ints([value], dtype, ()) for value in (start, start + count * step, step)]
    return ins, {}


def _range_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    start, end, step = (values_of(tensor)[0] for tensor in ins)
    return [(ins[0].dtype, (max(0, math.ceil((end - start) / step)),))]


def _taper(sketch: Sketch, x: Tensor) -> Instance:
    draw, attrs = sketch.draw, Attributes()
    if draw.random() < 0.5:
        attrs["periodic"] = draw.below(2)
    if draw.random() < 0.3:
        attrs["output_datatype"] = NUMBER[draw.choice(("float32", "float64", "float16"))]
    return [sketch.ints([draw.between(2, 16)], draw.choice(("int64", "int32")), ())], attrs


def _taper_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [(DTYPES[attrs.get("output_datatype", 1)], (values_of(ins[0])[0],))]


def taper(name: str) -> Operator:
    """A window function of signal processing."""
    return Operator(
        name,
        _taper,
        infer=_taper_type,
        bounds=lambda ins, attrs: (-0.01, 1.01),
        dtypes=("int64", "int32"),
        ranks=(0, 0),
        family="source",
    )


def _mel(sketch: Sketch, x: Tensor) -> Instance:
    draw = sketch.draw
    dtype = "int64"
    numbers = [draw.between(3, 8), draw.choice((8, 16, 32)), draw.choice((8000, 16000))]
    ends = [float(draw.choice((0, 20))), float(draw.choice((3000, 4000)))]
    ins = [sketch.ints([value], dtype, ()) for value in numbers]
    return [*ins, *(sketch.ints([value], "float32", ()) for value in ends)], {}


def _mel_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [("float32", (values_of(ins[1])[0] // 2 + 1, values_of(ins[0])[0]))]


def _nonzero_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    return 0.0, max(ins[0].shape, default=1) - 1


def _unique(sketch: Sketch, x: Tensor) -> Instance:
    draw, attrs = sketch.draw, Attributes()
    if x.rank and draw.random() < 0.5:
        attrs["axis"] = axis_of(sketch, x)
    if draw.random() < 0.4:
        attrs["sorted"] = draw.below(2)
    return [x], {OUTPUTS: draw.between(1, 4), **attrs}


def _unique_types(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    shape = ins[0].shape
    if "axis" in attrs:
        axis = attrs["axis"] % len(shape)
        found: tuple[Any, ...] = (*shape[:axis], _UNKNOWN, *shape[axis + 1 :])
    else:
        found = (_UNKNOWN,)
    count = (shape[attrs["axis"]] if "axis" in attrs else math.prod(shape),)
    return [(ins[0].dtype, found), ("int64", (_UNKNOWN,)), ("int64", count), ("int64", (_UNKNOWN,))]


def _unique_bounds(ins: Ins, attrs: Mapping[str, Any]) -> list[Bounds]:
    count = float(math.prod(ins[0].shape))
    return [(ins[0].low, ins[0].high), (0.0, count), (0.0, count), (0.0, count)]


def _boxes(sketch: Sketch, x: Tensor) -> Instance:
    draw, attrs = sketch.draw, Attributes()
    batch, count, classes = draw.between(1, 2), draw.between(1, 6), draw.between(1, 3)
    rows: list[float] = []
    for _ in range(batch * count):
        top, left = draw.random(), draw.random()
        rows += [top, left, top + 0.05 + draw.random(), left + 0.05 + draw.random()]
    boxes = sketch.ints([round(value, 3) for value in rows], "float32", (batch, count, 4))
    scores = sketch.match("float32", (batch, classes, count))
    ins: list[Tensor | None] = [boxes, scores, sketch.ints([draw.between(1, 4)], "int64", draw.choice(((), (1,))))]
    if draw.random() < 0.6:
        ins.append(sketch.ints([draw.choice((0.3, 0.5, 0.7))], "float32", ()))
        if draw.random() < 0.5:
            ins.append(sketch.ints([draw.choice((-1.0, 0.0, 0.4))], "float32", ()))
    if draw.random() < 0.3:
        attrs["center_point_box"] = 1
    return ins, attrs


def source(name: str, sample: Any, infer: Any, bounds: Any, **more: Any) -> Operator:
    """An operator that makes a tensor."""
    return Operator(name, sample, infer=infer, bounds=bounds, family="source", **more)


OPERATORS = (
    source(
        "ConstantOfShape",
        _filled,
        _filled_type,
        _filled_bounds,
        requires=_not_below_zero,
        ranks=(1, 1),
        dtypes=("int64",),
    ),
    source("Range", _range, _range_type, lambda ins, attrs: (-40.0, 40.0), ranks=(0, 0)),
    *map(taper, ("HannWindow", "HammingWindow", "BlackmanWindow")),
    source("MelWeightMatrix", _mel, _mel_type, lambda ins, attrs: (0.0, 1.01), ranks=(0, 0), dtypes=("int64",)),
    source(
        "NonZero",
        lambda sketch, x: ([x], {}),
        lambda ins, attrs: [("int64", (len(ins[0].shape), _UNKNOWN))],
        _nonzero_bounds,
        ranks=(1, 5),
        dtypes=(*NUMERIC, "bool"),
    ),
    source("Unique", _unique, _unique_types, _unique_bounds, ranks=(0, 4), dtypes=NUMERIC),
    source(
        "NonMaxSuppression",
        _boxes,
        lambda ins, attrs: [("int64", (_UNKNOWN, 3))],
        lambda ins, attrs: (0.0, 6.0),
        requires=_boxes_fit,
        ranks=(3, 3),
        dtypes=("float32",),
    ),
)
