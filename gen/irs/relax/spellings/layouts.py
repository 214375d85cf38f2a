"""Spellings of operators that move, repeat, pick and replace elements."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.spellings.spelling import (
    Attrs,
    Onnx,
    Spelling,
    cast_to,
    reshape_to,
    spell_unary,
    to_constant,
    to_integers,
)


def _reshape(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return reshape_to(onnx, args[0], args[1])


def _expand_dims(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return onnx("Unsqueeze", args[0], to_integers(attrs["axis"]))


def _squeeze(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    axes = attrs["axis"]
    return onnx("Squeeze", args[0], None if axes is None else to_integers(axes))


def _permute(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    axes = attrs["axes"]
    return _transpose(onnx, args[0], range(args[0].ndim)[::-1] if axes is None else axes)


def _transpose(onnx: Onnx, value: Any, order: Sequence[int]) -> Any:
    return onnx("Transpose", value, perm=[axis % value.ndim for axis in order])


def _concat(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    axis = attrs["axis"]
    return onnx("Concat", *args[0], axis=0 if axis is None else axis)


def _stack(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    axis = attrs["axis"]
    return onnx("Concat", *(onnx("Unsqueeze", part, to_integers(axis)) for part in args[0]), axis=axis)


def _split(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    given, axis = attrs["indices_or_sections"], attrs["axis"]
    parts = np.split(np.arange(args[0].shape[axis]), list(given) if isinstance(given, tuple) else given)
    sizes = to_integers([len(part) for part in parts])
    return onnx.outputs("Split", len(sizes), args[0], sizes, axis=axis)


def _tile(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    repeats = attrs["repeats"]
    x, more = args[0], len(repeats) - args[0].ndim
    x = reshape_to(onnx, x, (*[1] * more, *x.shape)) if more > 0 else x
    return onnx("Tile", x, to_integers([*[1] * -more, *repeats]))


def _repeat(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    x, axis = (args[0], attrs["axis"])
    if axis is None:
        x, axis = reshape_to(onnx, x, [x.size]), 0
    return onnx("Gather", x, np.repeat(np.arange(x.shape[axis]), attrs["repeats"]), axis=axis)


def _broadcast_to(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return onnx("Expand", args[0], to_integers(args[1]))


def _collapse(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    """Add up what was broadcast to this shape."""
    value, shape = args[0], args[1].shape if isinstance(args[1], np.ndarray) else args[1]
    lead = value.ndim - len(shape)
    if lead:
        value = onnx("ReduceSum", value, to_integers(range(lead)), keepdims=0)
    axes = [axis for axis, size in enumerate(shape) if size == 1 and value.shape[axis] != 1]
    return onnx("ReduceSum", value, to_integers(axes), keepdims=1) if axes else value


def _flip(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    axis = attrs["axis"]
    return onnx("Gather", args[0], np.arange(args[0].shape[axis])[::-1].copy(), axis=axis)


def _reverse(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    """ONNX reverses along the first or second axis, so both are moved there and back."""
    data, lengths = args
    first: list[Any] = [attrs["batch_axis"], attrs["seq_axis"]]
    order = [*first, *(axis for axis in range(data.ndim) if axis not in first)]
    moved = onnx(
        "ReverseSequence",
        _transpose(onnx, data, order), cast_to(onnx, lengths, "int64"), batch_axis=0, time_axis=1,
    )  # fmt: skip
    return _transpose(onnx, moved, np.argsort(order).tolist())


def _meshgrid(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    sizes, count = [part.size for part in args[0]], len(args[0])
    order = [1, 0, *range(2, count)] if attrs["indexing"] == "xy" and count > 1 else list(range(count))
    shape = [sizes[axis] for axis in order]
    columns = (
        reshape_to(onnx, part, [part.size if axis == place else 1 for axis in order])
        for place, part in enumerate(args[0])
    )
    return tuple(onnx("Expand", column, to_integers(shape)) for column in columns)


_PAD_MODES = {"replicate": "edge", "circular": "wrap"}


def _pad(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    flat = attrs["pad_width"]
    mode = str(attrs["pad_mode"])
    value = (to_constant(args[0], attrs["pad_value"]),) if mode == "constant" else ()
    return onnx(
        "Pad", args[0], to_integers([*flat[::2], *flat[1::2]]), *value, mode=_PAD_MODES.get(mode, mode)
    )


def _pixel_shuffle(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    *lead, channels, height, width = args[0].shape
    factor = attrs["upscale_factor"]
    split = reshape_to(onnx, args[0], (*lead, channels // factor**2, factor, factor, height, width))
    n = len(lead)
    moved = _transpose(onnx, split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape_to(onnx, moved, (*lead, channels // factor**2, height * factor, width * factor))


def _layout(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    mapping = attrs["index_map"]
    initial = [id(item) for item in mapping["initial_indices"]]
    order = [id(item) for item in mapping["final_indices"]]
    if sorted(order) != sorted(initial):
        raise NotImplementedError("no spelling of a layout that is no permutation of the axes")
    return _transpose(onnx, args[0], [initial.index(item) for item in order])


def _tri(upper: int) -> Spelling:
    def spell_call(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
        return onnx("Trilu", args[0], np.array(args[1], np.int64), upper=upper)

    return spell_call


def _one_hot(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    indices, on, off = args
    depth = attrs["depth"]
    axis = attrs["axis"]
    places = np.arange(depth, dtype=indices.dtype)
    places = places.reshape(
        [depth if each == axis % (indices.ndim + 1) else 1 for each in range(indices.ndim + 1)]
    )
    hot = onnx("Equal", onnx("Unsqueeze", indices, to_integers(axis)), places)
    return onnx("Where", hot, *(to_constant(np.zeros((), dtype), value) for value in (on, off)))


def _take(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    x, indices, axis = args[0], to_constant(np.zeros((), np.int64), args[1]), attrs["axis"]
    if axis is None:
        x, axis = reshape_to(onnx, x, [x.size]), 0
    size = x.shape[axis]
    if attrs["mode"] == "wrap":
        indices = onnx("Mod", indices, to_constant(indices, size))
    elif attrs["mode"] == "clip":
        indices = onnx("Max", onnx("Min", indices, to_constant(indices, size - 1)), to_constant(indices, 0))
    return onnx("Gather", x, indices, axis=axis)


def _slice(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    data, axes, begins, ends, *steps = args
    return onnx("Slice", data, *map(to_integers, (begins, ends, axes, *steps)))


def _gather_elements(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return onnx("GatherElements", *args, axis=attrs["axis"])


def _gather_nd(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return onnx("GatherND", args[0], cast_to(onnx, args[1], "int64"), batch_dims=attrs["batch_dims"])


def _reduction(attrs: Attrs) -> str:
    said = str(attrs["reduction"])
    return "none" if said == "update" else said


def _scatter_elements(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return onnx("ScatterElements", *args, axis=attrs["axis"], reduction=_reduction(attrs))


def _scatter_nd(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    data, indices, updates = args
    return onnx("ScatterND", data, cast_to(onnx, indices, "int64"), updates, reduction=_reduction(attrs))


def _slice_scatter(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    data, source, *bounds = args
    axis = attrs["axis"]
    shape = [-1 if each == axis % data.ndim else 1 for each in range(data.ndim)]
    places = np.arange(data.shape[axis])[slice(*bounds)].reshape(shape)
    indices = np.broadcast_to(places, source.shape).copy()
    return onnx("ScatterElements", data, indices, source, axis=axis)


def _places(onnx: Onnx, indices: Sequence[Any]) -> Any:
    """Indices of the leading axes, one tensor each, as those of GatherND and ScatterND."""
    shape = np.broadcast_shapes(*(index.shape for index in indices))
    columns = (
        onnx("Unsqueeze", onnx("Expand", cast_to(onnx, index, "int64"), to_integers(shape)), to_integers(-1))
        for index in indices
    )
    return onnx("Concat", *columns, axis=-1)


def _index_tensor(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    return onnx("GatherND", args[0], _places(onnx, args[1]))


def _index_put(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
    data, indices, values = args
    places = _places(onnx, indices)
    shape = (*places.shape[:-1], *data.shape[len(indices) :])
    updates = onnx("Expand", values, to_integers(shape))
    return onnx("ScatterND", data, places, updates, reduction="add" if attrs["accumulate"] else "none")


SPELLINGS: Mapping[str, Spelling] = {
    "reshape": _reshape,
    "flatten": spell_unary(lambda onnx, x: reshape_to(onnx, x, [x.size])),
    "nn.batch_flatten": spell_unary(
        lambda onnx, x: reshape_to(onnx, x, [x.shape[0], math.prod(x.shape[1:])])
    ),
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "permute_dims": _permute,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "tile": _tile,
    "repeat": _repeat,
    "broadcast_to": _broadcast_to,
    "collapse_sum_to": _collapse,
    "collapse_sum_like": _collapse,
    "flip": _flip,
    "reverse_sequence": _reverse,
    "meshgrid": _meshgrid,
    "nn.pad": _pad,
    "nn.pixel_shuffle": _pixel_shuffle,
    "layout_transform": _layout,
    "tril": _tri(0),
    "triu": _tri(1),
    "shape_to_tensor": lambda onnx, args, attrs, dtype: to_integers(args[0]),
    "size": lambda onnx, args, attrs, dtype: np.array(args[0].size, np.int64),
    "one_hot": _one_hot,
    "take": _take,
    "strided_slice": _slice,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "slice_scatter": _slice_scatter,
    "index_tensor": _index_tensor,
    "index_put": _index_put,
}
