"""Instances with open sizes, for operators whose usual sampler looks at numbers.

Each is a sampler like those of the declarations, on a `SymbolicBuilder` (gen/strategies/nnsmith/symbolic_builder.py): attributes and sizes that z3 is to choose are
`builder.number(...)`, what must hold among them is appended to `builder.relations` where the declaration's `requires` does not say it.
Factors (strides, dilations, groups, repeats) are drawn, so that all relations are linear and checks take a fraction of a millisecond.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from opsieve.gen.operators.conv_pool import placed, spatial
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.instance import Instance
from opsieve.gen.spec.symbolic_arith import Size
from opsieve.gen.spec.tensor import Attributes, Tensor
from opsieve.gen.strategies.nnsmith.symbolic_builder import Sizes, SymbolicBuilder

Sampler = Callable[[SymbolicBuilder, Tensor], "Instance | None"]


def seen(x: Tensor, shape: Sizes) -> Tensor:
    """The same tensor with other terms for its sizes, which the caller asks to be equal."""
    return Tensor(x.name, x.dtype, shape, x.low, x.high, x.values, x.leaf)


def _axis(builder: SymbolicBuilder, x: Tensor) -> int:
    return builder.rng.below(x.rank)


def _signed(builder: SymbolicBuilder, axis: int, rank: int) -> int:
    return axis - rank if builder.rng.random() < 0.3 else axis


def _reshape(builder: SymbolicBuilder, x: Tensor) -> Instance:
    """An axis split by a factor, two merged, axes in another order, or ones put in; then a size left open or copied."""
    rng, view = builder.rng, list(x.shape)
    kind = rng.choice(("split", "split", "merge", "merge", "order", "ones"))
    if kind == "split" and x.rank in range(1, 5):
        axis, factor = _axis(builder, x), rng.between(2, 4)
        part = builder.number(1, spread=False)
        builder.relations.append(view[axis] == factor * part)
        view[axis] = factor * part
        asked = [*view[:axis], *rng.shuffled((factor, part)), *view[axis + 1 :]]
    elif kind == "merge" and x.rank > 1:
        axis = rng.below(x.rank - 1)
        view[axis + rng.below(2)] = builder.pinned(view[axis])
        view[axis : axis + 2] = _both_asked(builder, x, view, axis)
        asked = [*view[:axis], view[axis] * view[axis + 1], *view[axis + 2 :]]
    elif kind == "ones" and x.rank < 5:
        asked = list(view)
        asked.insert(rng.below(x.rank + 1), 1)
    else:
        asked = list(rng.shuffled(view))
    shape = builder.ints(asked)
    if asked and rng.random() < 0.4:
        builder.inferred.add((shape.name, rng.below(len(asked))))
    elif rng.random() < 0.3:
        builder.copied |= {(shape.name, place) for place, side in enumerate(asked[: x.rank]) if side is x.shape[place]}
    return Instance([seen(x, tuple(view)), shape])


def _both_asked(builder: SymbolicBuilder, x: Tensor, view: list[Size], axis: int) -> list[Size]:
    """Of two axes one is a number by now, and asked to be."""
    pair = list(x.shape[axis : axis + 2])
    place = 0 if isinstance(view[axis], int) else 1
    pair[place] = builder.pinned(pair[place])
    return pair


def _flatten(builder: SymbolicBuilder, x: Tensor) -> Instance:
    axis = builder.rng.between(0, x.rank)
    view = list(x.shape)
    for group in (range(axis), range(axis, x.rank)):
        kept = builder.rng.choice(group) if group else 0
        for place in group:
            if place != kept:
                view[place] = builder.pinned(view[place])
    return Instance([seen(x, tuple(view))], {"axis": _signed(builder, axis, x.rank) if axis < x.rank else axis})


def _squeeze(builder: SymbolicBuilder, x: Tensor) -> Instance:
    axes = builder.rng.some(range(x.rank), builder.rng.between(1, min(2, x.rank)))
    return Instance([x, builder.ints([_signed(builder, axis, x.rank) for axis in axes])])


def _expand(builder: SymbolicBuilder, x: Tensor) -> Instance:
    rng, asked = builder.rng, list[Size]()
    for side in x.shape:
        kind = rng.choice(("one", "same", "grow"))
        if kind == "grow":
            builder.relations.append(side == 1)
        asked.append(1 if kind == "one" else side if kind == "same" else builder.number(1, 16))
    if x.rank < 5 and rng.random() < 0.4:
        asked.insert(0, builder.number(1, 8))
    view = tuple(1 if _grows(q, p) else p for p, q in zip(x.shape, asked[len(asked) - x.rank :], strict=True))
    return Instance([seen(x, view), builder.ints(asked)])


def _grows(asked: Size, side: Size) -> bool:
    return asked is not side and not isinstance(asked, int)


def _tile(builder: SymbolicBuilder, x: Tensor) -> Instance:
    return Instance([x, builder.ints([builder.rng.binned(1, 4) for _ in x.shape])])


def _slice(builder: SymbolicBuilder, x: Tensor) -> Instance:
    """Starts and ends anywhere in the axis, counted from either side; ends now and then beyond it."""
    rng = builder.rng
    axes = rng.some(range(x.rank), rng.between(1, min(2, x.rank)))
    starts, ends, steps = list[Size](), list[Size](), list[int]()
    for axis in axes:
        side, step = x.shape[axis], rng.choice((1, 1, 1, 2, 3, -1, -2))
        low, length = builder.number(0, own=(0,)), builder.number(1)
        builder.relations.append(low + length <= side)
        start, end = (low, low + length) if step > 0 else (low + length - 1, low - 1)
        if step < 0:
            builder.relations.append(low >= 1)  # an end before the first cannot be counted from the front
        elif rng.random() < 0.25:
            builder.relations.append(low + length == side)
            end = 2**31 - 1
        elif rng.random() < 0.25:
            builder.relations.append(low + length < side)
            end = end - side
        starts.append(start - side if rng.random() < 0.25 else start)
        ends.append(end)
        steps.append(step)
    given = [_signed(builder, axis, x.rank) for axis in axes]
    return Instance([x, *(builder.ints(values) for values in (starts, ends, given, steps))])


def _pad(builder: SymbolicBuilder, x: Tensor) -> Instance:
    """Paddings of zero and below have bins of their own (NNSmith, section 4)."""
    rng = builder.rng
    mode = rng.choice(("constant", "constant", "edge", "reflect", *(["wrap"] if builder.opset >= 19 else [])))
    plain = mode == "constant"
    pads = [builder.number(-2 if plain else 0, 16, (0, -1, -2) if plain else (0,)) for _ in range(2 * x.rank)]
    ins: list[Tensor | None] = [x, builder.ints(pads)]
    if plain and rng.random() < 0.6:
        ins.append(builder.ints([rng.choice((0, 1, 2))], x.dtype, ()))
    for axis, side in enumerate(x.shape):
        for pad in (pads[axis], pads[axis + x.rank]):
            builder.relations.append(side + pad >= 1)
    return Instance(ins, {} if plain else {"mode": mode})


def _split(builder: SymbolicBuilder, x: Tensor) -> Instance:
    axis = _axis(builder, x)
    sizes = [builder.number(1) for _ in range(builder.rng.between(1, 4))]
    return Instance([x, builder.ints(sizes)], {"axis": _signed(builder, axis, x.rank)})


def _top(builder: SymbolicBuilder, x: Tensor) -> Instance:
    attrs: Attributes = {"axis": _signed(builder, _axis(builder, x), x.rank)}
    if builder.rng.random() < 0.5:
        attrs["largest"] = builder.rng.below(2)
    return Instance([x, builder.ints([builder.number(1)])], attrs)


def _crop(builder: SymbolicBuilder, x: Tensor) -> Instance:
    axes = builder.rng.some(range(x.rank), builder.rng.between(1, x.rank))
    return Instance([x, builder.ints([builder.number(1, 16) for _ in axes])], {"axes": axes})


def _resize(builder: SymbolicBuilder, x: Tensor) -> Instance:
    rng = builder.rng
    attrs: Attributes = {"mode": rng.choice(("nearest", "linear"))}
    if rng.random() < 0.6:
        attrs["coordinate_transformation_mode"] = rng.choice(("half_pixel", "asymmetric", "align_corners"))
    sizes = [side if axis < 2 else builder.number(1, 16) for axis, side in enumerate(x.shape)]
    return Instance([x, None, None, builder.ints(sizes)], attrs)


def _filled(builder: SymbolicBuilder, x: Tensor) -> Instance:
    return Instance([builder.ints([builder.number(1, 16) for _ in range(builder.rng.between(1, 4))])])


def _depth(builder: SymbolicBuilder, x: Tensor) -> Instance:
    attrs: Attributes = {"blocksize": builder.rng.choice((1, 2, 2, 3))}
    if builder.rng.random() < 0.5:
        attrs["mode"] = builder.rng.choice(("DCR", "CRD"))
    return Instance([x], attrs)


def _space(builder: SymbolicBuilder, x: Tensor) -> Instance:
    return Instance([x], {"blocksize": builder.rng.choice((1, 2, 2, 3))})


def _group_norm(builder: SymbolicBuilder, x: Tensor) -> Instance:
    groups = builder.rng.choice((1, 1, 2, 3, 4))
    builder.relations.append(x.shape[1] % groups == 0)
    parameters = (groups,) if builder.opset < 21 else (x.shape[1],)
    scale = builder.match(x.dtype, parameters, Domain(0.2, 2))
    return Instance([x, scale, builder.match(x.dtype, parameters)], {"num_groups": groups})


def _square(builder: SymbolicBuilder, x: Tensor) -> Instance:
    builder.relations += [x.shape[-1] <= 4, x.shape[-1] == x.shape[-2]]
    return Instance([x])


def _gather_elements(builder: SymbolicBuilder, x: Tensor) -> Instance:
    axis = _axis(builder, x)
    sides = [builder.number(1, 16) for _ in x.shape]
    for place, (p, q) in enumerate(zip(sides, x.shape, strict=True)):
        if place != axis:
            builder.relations.append(p <= q)
    index = builder.match("int64", tuple(sides), Domain(0, x.shape[axis] - 1))
    return Instance([x, index], {"axis": _signed(builder, axis, x.rank)})


def _window(builder: SymbolicBuilder, count: int, keeps: bool, dilates: bool) -> tuple[list[Size], Attributes]:
    """A kernel with strides, dilations and paddings; with `keeps` paddings are smaller than the kernel."""
    rng, attrs = builder.rng, Attributes()
    kernel = [builder.number(1, 7) for _ in range(count)]
    if dilates and rng.random() < 0.3:
        attrs["dilations"] = [rng.binned(1, 3) for _ in range(count)]
    if rng.random() < 0.6:
        attrs["strides"] = [rng.binned(1, 4) for _ in range(count)]
    if rng.random() < 0.2:
        attrs["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if attrs["auto_pad"] != "VALID":  # a stride beyond the window would ask for a negative padding
            strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
            builder.relations += [s <= (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations, strict=True)]
    elif rng.random() < 0.6:
        attrs["pads"] = [builder.number(0, 6, (0,)) for _ in range(2 * count)]
        builder.relations += [
            pad < kernel[place % count] if keeps else pad <= kernel[place % count]
            for place, pad in enumerate(attrs["pads"])
        ]
    return kernel, attrs


def _conv(builder: SymbolicBuilder, x: Tensor) -> Instance:
    rng, channels = builder.rng, x.shape[1]
    kernel, attrs = _window(builder, x.rank - 2, False, True)
    group = rng.choice((1, 1, 1, 2, 3, 4))
    each, features = builder.number(1, 16), group * builder.number(1, 16)
    if group > 1:
        attrs["group"] = group
        if rng.random() < 0.5:  # depthwise has a bin of its own
            builder.relations.append(channels == group)
    builder.relations.append(channels == each * group)
    w = builder.match(x.dtype, (features, each, *kernel), Domain(-1, 1))
    if rng.random() < 0.6:
        attrs["kernel_shape"] = kernel
    return Instance([x, w, *([builder.match(x.dtype, (features,))] if rng.random() < 0.5 else [])], attrs)


def _conv_transpose(builder: SymbolicBuilder, x: Tensor) -> Instance:
    rng, count = builder.rng, x.rank - 2
    kernel = [builder.number(1, 5) for _ in range(count)]
    attrs: Attributes = {"strides": [rng.binned(1, 3) for _ in range(count)]}
    if rng.random() < 0.5:
        attrs["pads"] = [builder.number(0, 4, (0,)) for _ in range(2 * count)]
        builder.relations += [pad < kernel[place % count] for place, pad in enumerate(attrs["pads"])]
    group = rng.choice((1, 1, 1, 2, 3))
    if group > 1:
        attrs["group"] = group
    each = builder.number(1, 8)
    w = builder.match(x.dtype, (x.shape[1], each, *kernel), Domain(-1, 1))
    return Instance([x, w, *([builder.match(x.dtype, (each * group,))] if rng.random() < 0.5 else [])], attrs)


def _pool(builder: SymbolicBuilder, x: Tensor, dilates: bool) -> Instance:
    """With ceil_mode no window may begin in the padding at the end: opsets and compilers differ over that."""
    kernel, attrs = _window(builder, x.rank - 2, True, dilates)
    if dilates and builder.rng.random() < 0.3 and "auto_pad" not in attrs:
        strides, pads = spatial(attrs, "strides", len(kernel)), spatial(attrs, "pads", 2 * len(kernel), 0)
        for axis, end in enumerate(placed(x.shape[2:], kernel, attrs, True)):
            builder.relations.append((end - 1) * strides[axis] < x.shape[2 + axis] + pads[axis])
        attrs["ceil_mode"] = 1
    return Instance([x], {"kernel_shape": kernel, **attrs})


def _max_pool(builder: SymbolicBuilder, x: Tensor) -> Instance:
    return _pool(builder, x, True)


def _average_pool(builder: SymbolicBuilder, x: Tensor) -> Instance:
    made = _pool(builder, x, builder.opset >= 19)
    if builder.rng.random() < 0.5:
        made.attributes["count_include_pad"] = builder.rng.below(2)
    return made


def _lp_pool(builder: SymbolicBuilder, x: Tensor) -> Instance:
    made = _pool(builder, x, builder.opset >= 18)
    if builder.rng.random() < 0.5:
        made.attributes["p"] = builder.rng.choice((1, 2, 3))
    return made


def _integer_conv(builder: SymbolicBuilder, x: Tensor) -> Instance:
    kernel, attrs = _window(builder, x.rank - 2, False, True)
    other = "int8" if x.dtype == "int8" else builder.rng.choice(("uint8", "int8"))
    return Instance([x, builder.match(other, (builder.number(1, 16), x.shape[1], *kernel))], attrs)


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
