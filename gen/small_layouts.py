"""Further operators of the small generator: those that move elements about, and those with windows and statistics."""

import math
from collections.abc import Callable
from typing import Any

from opsieve.gen.small_graph import Graph, Shape, Val
from opsieve.gen.small_operators import broadcast


def _like(g: Graph, operator: str, inputs: list[Val], shape: Shape, **attributes: Any) -> bool:
    """A node that moves the elements of its first input."""
    value = inputs[0]
    g.emit(operator, inputs, value.dtype, shape, value.low, value.high, **attributes)
    return True


def _anything(g: Graph, least_rank: int = 0) -> Val | None:
    return g.pick(lambda v: v.rank >= least_rank)


def _reshape(g: Graph) -> bool:
    value = _anything(g)
    if value is None:
        return False
    left, shape = math.prod(value.shape), list[int]()
    for _ in range(g.draw.between(0, 3)):
        side = g.draw.choice([n for n in range(1, left + 1) if left % n == 0][:6])
        shape.append(side)
        left //= side
    shape.append(left)
    asked = list(shape)
    if g.draw.chance(40):
        asked[g.draw.below(len(asked))] = -1
    return _like(g, "Reshape", [value, g.numbers(asked)], tuple(shape))


def _flatten(g: Graph) -> bool:
    value = _anything(g, 1)
    if value is None:
        return False
    axis = g.draw.between(0, value.rank)
    shape = (math.prod(value.shape[:axis]), math.prod(value.shape[axis:]))
    return _like(g, "Flatten", [value], shape, axis=axis)


def _transpose(g: Graph) -> bool:
    value = _anything(g, 2)
    if value is None:
        return False
    left = list(range(value.rank))
    order = [left.pop(g.draw.below(len(left))) for _ in range(value.rank)]
    return _like(g, "Transpose", [value], tuple(value.shape[axis] for axis in order), perm=order)


def _unsqueeze(g: Graph) -> bool:
    value = g.pick(lambda v: v.rank <= 3)
    if value is None:
        return False
    axis = g.draw.between(0, value.rank)
    return _like(g, "Unsqueeze", [value, g.numbers([axis])], (*value.shape[:axis], 1, *value.shape[axis:]))


def _squeeze(g: Graph) -> bool:
    value = g.pick(lambda v: 1 in v.shape)
    if value is None:
        return False
    axis = g.draw.choice([axis for axis, side in enumerate(value.shape) if side == 1])
    return _like(g, "Squeeze", [value, g.numbers([axis])], (*value.shape[:axis], *value.shape[axis + 1 :]))


def _expand(g: Graph) -> bool:
    value = g.pick(lambda v: v.rank <= 3)
    if value is None:
        return False
    asked = [g.draw.between(2, 3) if side == 1 else g.draw.choice((1, side)) for side in value.shape]
    asked = [*([g.draw.between(1, 3)] if g.draw.chance(40) else []), *asked]
    shape = broadcast(value.shape, tuple(asked))
    if shape is None or not g.fits(value.dtype, shape, value.low, value.high):
        return False
    return _like(g, "Expand", [value, g.numbers(asked)], shape)


def _tile(g: Graph) -> bool:
    value = _anything(g, 1)
    if value is None or value.dtype == "float16":  # no kernel of onnxruntime
        return False
    repeats = [g.draw.choice((1, 1, 2)) for _ in value.shape]
    shape = tuple(side * times for side, times in zip(value.shape, repeats, strict=True))
    if not g.fits(value.dtype, shape, value.low, value.high):
        return False
    return _like(g, "Tile", [value, g.numbers(repeats)], shape)


def _pad(g: Graph) -> bool:
    value = g.pick(lambda v: v.rank > 0 and v.dtype != "bool")
    if value is None:
        return False
    mode = g.draw.choice(("constant", "constant", "edge", "reflect"))
    most = [min(2, side - 1) if mode == "reflect" else 2 for side in value.shape]
    before, after = ([g.draw.between(0, each) for each in most] for _ in range(2))
    shape = tuple(a + side + b for a, side, b in zip(before, value.shape, after, strict=True))
    if not g.fits(value.dtype, shape, value.low, value.high):
        return False
    inputs = [value, g.numbers([*before, *after])]
    if mode == "constant":
        inputs.append(g.numbers([1], value.dtype, ()))
    low, high = (min(value.low, 1), max(value.high, 1)) if mode == "constant" else (value.low, value.high)
    g.emit("Pad", inputs, value.dtype, shape, low, high, mode=mode)
    return True


def _slice(g: Graph) -> bool:
    value = _anything(g, 1)
    if value is None:
        return False
    axis = g.draw.below(value.rank)
    side = value.shape[axis]
    start = g.draw.below(side)
    end = g.draw.between(start + 1, side)
    step = g.draw.between(1, 2)
    ends, kept = (start, end, step), len(range(start, end, step))
    if g.draw.chance(25):  # backwards, to before the first element
        ends, kept = (end - 1, start - 1 - side, -step), len(range(end - 1, start - 1, -step))
    inputs = [value, *(g.numbers([number]) for number in (ends[0], ends[1], axis, ends[2]))]
    return _like(g, "Slice", inputs, (*value.shape[:axis], kept, *value.shape[axis + 1 :]))


def _concat(g: Graph) -> bool:
    first = _anything(g, 1)
    if first is None:
        return False
    axis = g.draw.below(first.rank)
    around = (first.shape[:axis], first.shape[axis + 1 :])
    parts = [first]
    for _ in range(g.draw.between(1, 2)):
        other = g.pick(
            lambda v: (
                v.dtype == first.dtype and v.rank == first.rank and (v.shape[:axis], v.shape[axis + 1 :]) == around
            )
        )
        parts.append(other or first)
    shape = (*around[0], sum(part.shape[axis] for part in parts), *around[1])
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    if not g.fits(first.dtype, shape, low, high):
        return False
    g.emit("Concat", parts, first.dtype, shape, low, high, axis=axis)
    return True


def _split(g: Graph) -> bool:
    value = g.pick(lambda v: any(side > 1 for side in v.shape))
    if value is None:
        return False
    axis = g.draw.choice([axis for axis, side in enumerate(value.shape) if side > 1])
    cut = g.draw.between(1, value.shape[axis] - 1)
    sizes = [cut, value.shape[axis] - cut]
    shapes = [(*value.shape[:axis], size, *value.shape[axis + 1 :]) for size in sizes]
    outputs = [(value.dtype, shape, value.low, value.high) for shape in shapes]
    g.emit_all("Split", [value, g.numbers(sizes)], outputs, axis=axis)
    return True


def _gather(g: Graph) -> bool:
    value = _anything(g, 1)
    if value is None:
        return False
    axis = g.draw.below(value.rank)
    side = value.shape[axis]
    places = g.constant("int64", g.draw.choice(((), (1,), (2,), (3,))), -side, side - 1)
    shape = (*value.shape[:axis], *places.shape, *value.shape[axis + 1 :])
    if not g.fits(value.dtype, shape, value.low, value.high):
        return False
    return _like(g, "Gather", [value, places], shape, axis=axis)


def _image(g: Graph) -> Val | None:
    return g.pick_float(lambda v: v.rank == 4 and min(v.shape[2:]) >= 2)


def _conv(g: Graph) -> bool:
    value = _image(g)
    if value is None:
        return False
    channels = value.shape[1]
    group = channels if g.draw.chance(30) else 1
    made = channels if group > 1 else g.draw.between(1, 4)
    kernel = [g.draw.between(1, min(3, side)) for side in value.shape[2:]]
    pads, strides = [g.draw.below(2) for _ in range(4)], [g.draw.between(1, 2) for _ in range(2)]
    weight = g.constant(value.dtype, (made, channels // group, *kernel), -1, 1)
    inputs = [value, weight, *([g.constant(value.dtype, (made,), -1, 1)] if g.draw.chance(50) else [])]
    size = math.prod(weight.shape[1:]) * value.size + 1
    shape = (value.shape[0], made, *_windows(value.shape[2:], kernel, pads, strides))
    if not g.fits(value.dtype, shape, -size, size):
        return False
    attributes = {"kernel_shape": kernel, "pads": pads, "strides": strides, "group": group}
    g.emit("Conv", inputs, value.dtype, shape, -size, size, **attributes)
    return True


def _windows(sides: Shape, kernel: list[int], pads: list[int], strides: list[int]) -> Shape:
    return tuple((sides[i] + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i in range(2))


def _pool(g: Graph) -> bool:
    value = _image(g)
    if value is None:
        return False
    if g.draw.chance(20):
        return _like(g, "GlobalAveragePool", [value], (*value.shape[:2], 1, 1))
    kernel = [g.draw.between(1, min(3, side)) for side in value.shape[2:]]
    pads = [g.draw.below(min(2, kernel[place % 2])) for place in range(4)]  # less than the kernel
    strides = [g.draw.between(1, 2) for _ in range(2)]
    shape = (*value.shape[:2], *_windows(value.shape[2:], kernel, pads, strides))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "pads": pads, "strides": strides}
    operator = g.draw.choice(("MaxPool", "AveragePool"))
    if operator == "AveragePool":
        attributes["count_include_pad"] = g.draw.below(2)
    low, high = min(value.low, 0.0), max(value.high, 0.0)
    g.emit(operator, [value], value.dtype, shape, low, high, **attributes)
    return True


def _batch_normalization(g: Graph) -> bool:
    value = g.pick_float(lambda v: v.rank >= 2)
    if value is None:
        return False
    channels = (value.shape[1],)
    middle = [g.constant(value.dtype, channels, -1, 1) for _ in range(3)]
    variance = g.constant(value.dtype, channels, 0.5, 2)
    size = (value.size + 1) * 1.5 + 1
    if not g.fits(value.dtype, value.shape, -size, size):
        return False
    g.emit("BatchNormalization", [value, *middle, variance], value.dtype, value.shape, -size, size)
    return True


def _layer_normalization(g: Graph) -> bool:
    value = g.pick_float(lambda v: v.rank >= 1 and v.shape[-1] > 1)
    if value is None:
        return False
    scale, bias = (g.constant(value.dtype, value.shape[-1:], -1, 1) for _ in range(2))
    size = math.sqrt(value.shape[-1]) + 1
    # The epsilon keeps rows that are nearly constant from turning rounding errors into values.
    g.emit("LayerNormalization", [value, scale, bias], value.dtype, value.shape, -size, size, epsilon=0.01)
    return True


# (function, weight): how often each is tried
LAYOUTS: tuple[tuple[Callable[[Graph], bool], int], ...] = (
    (_reshape, 4),
    (_flatten, 1),
    (_transpose, 4),
    (_unsqueeze, 2),
    (_squeeze, 3),
    (_expand, 2),
    (_tile, 1),
    (_pad, 3),
    (_slice, 4),
    (_concat, 4),
    (_split, 2),
    (_gather, 3),
    (_conv, 5),
    (_pool, 3),
    (_batch_normalization, 2),
    (_layer_normalization, 2),
)
