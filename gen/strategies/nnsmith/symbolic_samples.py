"""Instances with open sizes, for operators whose usual sampler looks at numbers.

Each is a sampler like those of the declarations, on a `Draft` (gen/strategies/nnsmith/symbolic_builder.py): attributes and sizes that z3 is to choose are
`draft.number(...)`, what must hold among them is appended to `draft.relations` where the declaration's `requires` does not say it.
Factors (strides, dilations, groups, repeats) are drawn, so that all relations are linear and checks take a fraction of a millisecond.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.operators.conv_pool import placed, spatial
from opsieve.gen.spec.declaration import Attributes, Tensor
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.symbolic_arith import Size
from opsieve.gen.strategies.nnsmith.symbolic_builder import Draft, Sizes

Instance = tuple[Sequence[Tensor | None], Attributes]
Sampler = Callable[[Draft, Tensor], "Instance | None"]


def seen(x: Tensor, shape: Sizes) -> Tensor:
    """The same tensor with other terms for its sizes, which the caller asks to be equal."""
    return Tensor(x.name, x.dtype, shape, x.low, x.high, x.values, x.leaf)


def _axis(draft: Draft, x: Tensor) -> int:
    return draft.draw.below(x.rank)


def _signed(draft: Draft, axis: int, rank: int) -> int:
    return axis - rank if draft.draw.random() < 0.3 else axis


def _reshape(draft: Draft, x: Tensor) -> Instance:
    """An axis split by a factor, two merged, axes in another order, or ones put in; then a size left open or copied."""
    draw, view = draft.draw, list(x.shape)
    kind = draw.choice(("split", "split", "merge", "merge", "order", "ones"))
    if kind == "split" and x.rank in range(1, 5):
        axis, factor = _axis(draft, x), draw.between(2, 4)
        part = draft.number(1, spread=False)
        draft.relations.append(view[axis] == factor * part)
        view[axis] = factor * part
        asked = [*view[:axis], *draw.shuffled((factor, part)), *view[axis + 1 :]]
    elif kind == "merge" and x.rank > 1:
        axis = draw.below(x.rank - 1)
        view[axis + draw.below(2)] = draft.pinned(view[axis])
        view[axis : axis + 2] = _both_asked(draft, x, view, axis)
        asked = [*view[:axis], view[axis] * view[axis + 1], *view[axis + 2 :]]
    elif kind == "ones" and x.rank < 5:
        asked = list(view)
        asked.insert(draw.below(x.rank + 1), 1)
    else:
        asked = list(draw.shuffled(view))
    shape = draft.ints(asked)
    if asked and draw.random() < 0.4:
        draft.inferred.add((shape.name, draw.below(len(asked))))
    elif draw.random() < 0.3:
        draft.copied |= {(shape.name, place) for place, side in enumerate(asked[: x.rank]) if side is x.shape[place]}
    return [seen(x, tuple(view)), shape], {}


def _both_asked(draft: Draft, x: Tensor, view: list[Size], axis: int) -> list[Size]:
    """Of two axes one is a number by now, and asked to be."""
    pair = list(x.shape[axis : axis + 2])
    place = 0 if isinstance(view[axis], int) else 1
    pair[place] = draft.pinned(pair[place])
    return pair


def _flatten(draft: Draft, x: Tensor) -> Instance:
    axis = draft.draw.between(0, x.rank)
    view = list(x.shape)
    for group in (range(axis), range(axis, x.rank)):
        kept = draft.draw.choice(group) if group else 0
        for place in group:
            if place != kept:
                view[place] = draft.pinned(view[place])
    return [seen(x, tuple(view))], {"axis": _signed(draft, axis, x.rank) if axis < x.rank else axis}


def _squeeze(draft: Draft, x: Tensor) -> Instance:
    axes = draft.draw.some(range(x.rank), draft.draw.between(1, min(2, x.rank)))
    return [x, draft.ints([_signed(draft, axis, x.rank) for axis in axes])], {}


def _expand(draft: Draft, x: Tensor) -> Instance:
    draw, asked = draft.draw, list[Size]()
    for side in x.shape:
        kind = draw.choice(("one", "same", "grow"))
        if kind == "grow":
            draft.relations.append(side == 1)
        asked.append(1 if kind == "one" else side if kind == "same" else draft.number(1, 16))
    if x.rank < 5 and draw.random() < 0.4:
        asked.insert(0, draft.number(1, 8))
    view = tuple(1 if _grows(q, p) else p for p, q in zip(x.shape, asked[len(asked) - x.rank :], strict=True))
    return [seen(x, view), draft.ints(asked)], {}


def _grows(asked: Size, side: Size) -> bool:
    return asked is not side and not isinstance(asked, int)


def _tile(draft: Draft, x: Tensor) -> Instance:
    return [x, draft.ints([draft.draw.binned(1, 4) for _ in x.shape])], {}


def _slice(draft: Draft, x: Tensor) -> Instance:
    """Starts and ends anywhere in the axis, counted from either side; ends now and then beyond it."""
    draw = draft.draw
    axes = draw.some(range(x.rank), draw.between(1, min(2, x.rank)))
    starts, ends, steps = list[Size](), list[Size](), list[int]()
    for axis in axes:
        side, step = x.shape[axis], draw.choice((1, 1, 1, 2, 3, -1, -2))
        low, length = draft.number(0, own=(0,)), draft.number(1)
        draft.relations.append(low + length <= side)
        start, end = (low, low + length) if step > 0 else (low + length - 1, low - 1)
        if step < 0:
            draft.relations.append(low >= 1)  # an end before the first cannot be counted from the front
        elif draw.random() < 0.25:
            draft.relations.append(low + length == side)
            end = 2**31 - 1
        elif draw.random() < 0.25:
            draft.relations.append(low + length < side)
            end = end - side
        starts.append(start - side if draw.random() < 0.25 else start)
        ends.append(end)
        steps.append(step)
    given = [_signed(draft, axis, x.rank) for axis in axes]
    return [x, *(draft.ints(values) for values in (starts, ends, given, steps))], {}


def _pad(draft: Draft, x: Tensor) -> Instance:
    """Paddings of zero and below have bins of their own (NNSmith, section 4)."""
    draw = draft.draw
    mode = draw.choice(("constant", "constant", "edge", "reflect", *(["wrap"] if draft.opset >= 19 else [])))
    plain = mode == "constant"
    pads = [draft.number(-2 if plain else 0, 16, (0, -1, -2) if plain else (0,)) for _ in range(2 * x.rank)]
    ins: list[Tensor | None] = [x, draft.ints(pads)]
    if plain and draw.random() < 0.6:
        ins.append(draft.ints([draw.choice((0, 1, 2))], x.dtype, ()))
    for axis, side in enumerate(x.shape):
        for pad in (pads[axis], pads[axis + x.rank]):
            draft.relations.append(side + pad >= 1)
    return ins, {} if plain else {"mode": mode}


def _split(draft: Draft, x: Tensor) -> Instance:
    axis = _axis(draft, x)
    sizes = [draft.number(1) for _ in range(draft.draw.between(1, 4))]
    return [x, draft.ints(sizes)], {"axis": _signed(draft, axis, x.rank)}


def _top(draft: Draft, x: Tensor) -> Instance:
    attrs: Attributes = {"axis": _signed(draft, _axis(draft, x), x.rank)}
    if draft.draw.random() < 0.5:
        attrs["largest"] = draft.draw.below(2)
    return [x, draft.ints([draft.number(1)])], attrs


def _crop(draft: Draft, x: Tensor) -> Instance:
    axes = draft.draw.some(range(x.rank), draft.draw.between(1, x.rank))
    return [x, draft.ints([draft.number(1, 16) for _ in axes])], {"axes": axes}


def _resize(draft: Draft, x: Tensor) -> Instance:
    draw = draft.draw
    attrs: Attributes = {"mode": draw.choice(("nearest", "linear"))}
    if draw.random() < 0.6:
        attrs["coordinate_transformation_mode"] = draw.choice(("half_pixel", "asymmetric", "align_corners"))
    sizes = [side if axis < 2 else draft.number(1, 16) for axis, side in enumerate(x.shape)]
    return [x, None, None, draft.ints(sizes)], attrs


def _filled(draft: Draft, x: Tensor) -> Instance:
    return [draft.ints([draft.number(1, 16) for _ in range(draft.draw.between(1, 4))])], {}


def _depth(draft: Draft, x: Tensor) -> Instance:
    attrs: Attributes = {"blocksize": draft.draw.choice((1, 2, 2, 3))}
    if draft.draw.random() < 0.5:
        attrs["mode"] = draft.draw.choice(("DCR", "CRD"))
    return [x], attrs


def _space(draft: Draft, x: Tensor) -> Instance:
    return [x], {"blocksize": draft.draw.choice((1, 2, 2, 3))}


def _group_norm(draft: Draft, x: Tensor) -> Instance:
    groups = draft.draw.choice((1, 1, 2, 3, 4))
    draft.relations.append(x.shape[1] % groups == 0)
    parameters = (groups,) if draft.opset < 21 else (x.shape[1],)
    scale = draft.match(x.dtype, parameters, Domain(0.2, 2))
    return [x, scale, draft.match(x.dtype, parameters)], {"num_groups": groups}


def _square(draft: Draft, x: Tensor) -> Instance:
    draft.relations += [x.shape[-1] <= 4, x.shape[-1] == x.shape[-2]]
    return [x], {}


def _gather_elements(draft: Draft, x: Tensor) -> Instance:
    axis = _axis(draft, x)
    sides = [draft.number(1, 16) for _ in x.shape]
    for place, (p, q) in enumerate(zip(sides, x.shape, strict=True)):
        if place != axis:
            draft.relations.append(p <= q)
    index = draft.match("int64", tuple(sides), Domain(0, x.shape[axis] - 1))
    return [x, index], {"axis": _signed(draft, axis, x.rank)}


def _window(draft: Draft, count: int, keeps: bool, dilates: bool) -> tuple[list[Size], Attributes]:
    """A kernel with strides, dilations and paddings; with `keeps` paddings are smaller than the kernel."""
    draw, attrs = draft.draw, Attributes()
    kernel = [draft.number(1, 7) for _ in range(count)]
    if dilates and draw.random() < 0.3:
        attrs["dilations"] = [draw.binned(1, 3) for _ in range(count)]
    if draw.random() < 0.6:
        attrs["strides"] = [draw.binned(1, 4) for _ in range(count)]
    if draw.random() < 0.2:
        attrs["auto_pad"] = draw.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if attrs["auto_pad"] != "VALID":  # a stride beyond the window would ask for a negative padding
            strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
            draft.relations += [s <= (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations, strict=True)]
    elif draw.random() < 0.6:
        attrs["pads"] = [draft.number(0, 6, (0,)) for _ in range(2 * count)]
        draft.relations += [
            pad < kernel[place % count] if keeps else pad <= kernel[place % count]
            for place, pad in enumerate(attrs["pads"])
        ]
    return kernel, attrs


def _conv(draft: Draft, x: Tensor) -> Instance:
    draw, channels = draft.draw, x.shape[1]
    kernel, attrs = _window(draft, x.rank - 2, False, True)
    group = draw.choice((1, 1, 1, 2, 3, 4))
    each, features = draft.number(1, 16), group * draft.number(1, 16)
    if group > 1:
        attrs["group"] = group
        if draw.random() < 0.5:  # depthwise has a bin of its own
            draft.relations.append(channels == group)
    draft.relations.append(channels == each * group)
    w = draft.match(x.dtype, (features, each, *kernel), Domain(-1, 1))
    if draw.random() < 0.6:
        attrs["kernel_shape"] = kernel
    return [x, w, *([draft.match(x.dtype, (features,))] if draw.random() < 0.5 else [])], attrs


def _conv_transpose(draft: Draft, x: Tensor) -> Instance:
    draw, count = draft.draw, x.rank - 2
    kernel = [draft.number(1, 5) for _ in range(count)]
    attrs: Attributes = {"strides": [draw.binned(1, 3) for _ in range(count)]}
    if draw.random() < 0.5:
        attrs["pads"] = [draft.number(0, 4, (0,)) for _ in range(2 * count)]
        draft.relations += [pad < kernel[place % count] for place, pad in enumerate(attrs["pads"])]
    group = draw.choice((1, 1, 1, 2, 3))
    if group > 1:
        attrs["group"] = group
    each = draft.number(1, 8)
    w = draft.match(x.dtype, (x.shape[1], each, *kernel), Domain(-1, 1))
    return [x, w, *([draft.match(x.dtype, (each * group,))] if draw.random() < 0.5 else [])], attrs


def _pool(draft: Draft, x: Tensor, dilates: bool) -> Instance:
    """With ceil_mode no window may begin in the padding at the end: opsets and compilers differ over that."""
    kernel, attrs = _window(draft, x.rank - 2, True, dilates)
    if dilates and draft.draw.random() < 0.3 and "auto_pad" not in attrs:
        strides, pads = spatial(attrs, "strides", len(kernel)), spatial(attrs, "pads", 2 * len(kernel), 0)
        for axis, end in enumerate(placed(x.shape[2:], kernel, attrs, True)):
            draft.relations.append((end - 1) * strides[axis] < x.shape[2 + axis] + pads[axis])
        attrs["ceil_mode"] = 1
    return [x], {"kernel_shape": kernel, **attrs}


def _max_pool(draft: Draft, x: Tensor) -> Instance:
    return _pool(draft, x, True)


def _average_pool(draft: Draft, x: Tensor) -> Instance:
    ins, attrs = _pool(draft, x, draft.opset >= 19)
    return ins, attrs | ({"count_include_pad": draft.draw.below(2)} if draft.draw.random() < 0.5 else {})


def _lp_pool(draft: Draft, x: Tensor) -> Instance:
    ins, attrs = _pool(draft, x, draft.opset >= 18)
    return ins, attrs | ({"p": draft.draw.choice((1, 2, 3))} if draft.draw.random() < 0.5 else {})


def _integer_conv(draft: Draft, x: Tensor) -> Instance:
    kernel, attrs = _window(draft, x.rank - 2, False, True)
    other = "int8" if x.dtype == "int8" else draft.draw.choice(("uint8", "int8"))
    return [x, draft.match(other, (draft.number(1, 16), x.shape[1], *kernel))], attrs


OWN: Mapping[str, Sampler] = {
    "AveragePool": _average_pool,
    "CenterCropPad": _crop,
    "ConstantOfShape": _filled,
    "Conv": _conv,
    "ConvInteger": _integer_conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth,
    "Det": _square,
    "Expand": _expand,
    "Flatten": _flatten,
    "GatherElements": _gather_elements,
    "GroupNormalization": _group_norm,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _space,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top,
}
# Families and operators whose sampler of the declaration runs on open sizes as it is.
_FAMILIES = frozenset(("unary", "binary", "comparison", "logic", "bits", "variadic", "reduction", "axis"))
_AS_THEY_ARE = frozenset(
    [
        "Cast",
        "CastLike",
        "Transpose",
        "Unsqueeze",
        "Concat",
        "Shape",
        "Size",
        "Trilu",
        "EyeLike",
        "MatMul",
        "Gemm",
        "Einsum",
        "MatMulInteger",
        "SwiGLU",
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "RMSNormalization",
        "LRN",
        "Dropout",
        "DynamicQuantizeLinear",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GlobalLpPool",
        "Gather",
        "OneHot",
        "GridSample",
        "AffineGrid",
        "NegativeLogLikelihoodLoss",
        "SoftmaxCrossEntropyLoss",
    ]
)


@functools.cache
def sampler(name: str, family: str) -> Any:
    """The sampler for open sizes of an operator of ONNX's own: its own one, "declared" for that of its declaration, None for none."""
    if name in OWN:
        return OWN[name]
    return "declared" if family in _FAMILIES or name in _AS_THEY_ARE else None
