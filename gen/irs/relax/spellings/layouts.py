"""Spellings of operators that move, repeat, pick and replace elements."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.spellings.spelling import (
    Onnx,
    SpelledCall,
    Spelling,
    cast_to,
    reshape_to,
    spell_unary,
    to_constant,
    to_integers,
)


def _squeeze(call: SpelledCall) -> Any:
    axes = call["axis"]
    return call("Squeeze", call.args[0], None if axes is None else to_integers(axes))


def _permute(call: SpelledCall) -> Any:
    axes = call["axes"]
    return _transpose(call, call.args[0], range(call.args[0].ndim)[::-1] if axes is None else axes)


def _transpose(onnx: Onnx, value: Any, order: Sequence[int]) -> Any:
    return onnx("Transpose", value, perm=[axis % value.ndim for axis in order])


def _concat(call: SpelledCall) -> Any:
    axis = call["axis"]
    return call("Concat", *call.args[0], axis=0 if axis is None else axis)


def _stack(call: SpelledCall) -> Any:
    axis = call["axis"]
    return call("Concat", *(call("Unsqueeze", part, to_integers(axis)) for part in call.args[0]), axis=axis)


def _split(call: SpelledCall) -> Any:
    given, axis = call["indices_or_sections"], call["axis"]
    # TVM takes a number of parts or the places of cuts, ONNX the sizes of parts.
    parts = np.split(np.arange(call.args[0].shape[axis]), list(given) if isinstance(given, tuple) else given)
    sizes = to_integers([len(part) for part in parts])
    return call.outputs("Split", len(sizes), call.args[0], sizes, axis=axis)


def _tile(call: SpelledCall) -> Any:
    repeats = call["repeats"]
    # As in numpy, the shorter of shape and repeats is extended by leading ones; ONNX wants equal lengths.
    x, more = call.args[0], len(repeats) - call.args[0].ndim
    x = reshape_to(call, x, (*[1] * more, *x.shape)) if more > 0 else x
    return call("Tile", x, to_integers([*[1] * -more, *repeats]))


def _repeat(call: SpelledCall) -> Any:
    x, axis = (call.args[0], call["axis"])
    if axis is None:
        x, axis = reshape_to(call, x, [x.size]), 0
    return call("Gather", x, np.repeat(np.arange(x.shape[axis]), call["repeats"]), axis=axis)


def _collapse(call: SpelledCall) -> Any:
    """Sum the axes along which a value was broadcast, down to this shape."""
    value, shape = call.args[0], call.args[1].shape if isinstance(call.args[1], np.ndarray) else call.args[1]
    lead = value.ndim - len(shape)
    if lead:
        value = call("ReduceSum", value, to_integers(range(lead)), keepdims=0)
    axes = [axis for axis, size in enumerate(shape) if size == 1 and value.shape[axis] != 1]
    return call("ReduceSum", value, to_integers(axes), keepdims=1) if axes else value


def _flip(call: SpelledCall) -> Any:
    axis = call["axis"]
    return call("Gather", call.args[0], np.arange(call.args[0].shape[axis])[::-1].copy(), axis=axis)


def _reverse(call: SpelledCall) -> Any:
    """Move both axes to the front and back, since ONNX reverses along the first or second axis only."""
    data, lengths = call.args
    first: list[Any] = [call["batch_axis"], call["seq_axis"]]
    order = [*first, *(axis for axis in range(data.ndim) if axis not in first)]
    moved = call(
        "ReverseSequence",
        _transpose(call, data, order), cast_to(call, lengths, "int64"), batch_axis=0, time_axis=1,
    )  # fmt: skip
    return _transpose(call, moved, np.argsort(order).tolist())


def _meshgrid(call: SpelledCall) -> Any:
    sizes, count = [part.size for part in call.args[0]], len(call.args[0])
    # numpy: with "xy" indexing the first two axes are exchanged.
    order = [1, 0, *range(2, count)] if call["indexing"] == "xy" and count > 1 else list(range(count))
    shape = [sizes[axis] for axis in order]
    columns = (
        reshape_to(call, part, [part.size if axis == place else 1 for axis in order])
        for place, part in enumerate(call.args[0])
    )
    return tuple(call("Expand", column, to_integers(shape)) for column in columns)


_PAD_MODES = {"replicate": "edge", "circular": "wrap"}


def _pad(call: SpelledCall) -> Any:
    flat = call["pad_width"]
    mode = str(call["pad_mode"])
    value = (to_constant(call.args[0], call["pad_value"]),) if mode == "constant" else ()
    # TVM lists before and after per axis, ONNX all begins and then all ends.
    return call(
        "Pad", call.args[0], to_integers([*flat[::2], *flat[1::2]]), *value, mode=_PAD_MODES.get(mode, mode)
    )


def _pixel_shuffle(call: SpelledCall) -> Any:
    *lead, channels, height, width = call.args[0].shape
    factor = call["upscale_factor"]
    split = reshape_to(call, call.args[0], (*lead, channels // factor**2, factor, factor, height, width))
    n = len(lead)
    moved = _transpose(call, split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape_to(call, moved, (*lead, channels // factor**2, height * factor, width * factor))


def _layout(call: SpelledCall) -> Any:
    mapping = call["index_map"]
    initial = [id(item) for item in mapping["initial_indices"]]
    order = [id(item) for item in mapping["final_indices"]]
    if sorted(order) != sorted(initial):
        raise NotImplementedError("no spelling of a layout that is not a permutation of the axes")
    return _transpose(call, call.args[0], [initial.index(item) for item in order])


def _tri(upper: int) -> Spelling:
    def spell_call(call: SpelledCall) -> Any:
        return call("Trilu", call.args[0], np.array(call.args[1], np.int64), upper=upper)

    return spell_call


def _one_hot(call: SpelledCall) -> Any:
    indices, on, off = call.args
    depth = call["depth"]
    axis = call["axis"]
    # Not ONNX's OneHot, which counts negative indices from the end.
    places = np.arange(depth, dtype=indices.dtype)
    places = places.reshape(
        [depth if each == axis % (indices.ndim + 1) else 1 for each in range(indices.ndim + 1)]
    )
    hot = call("Equal", call("Unsqueeze", indices, to_integers(axis)), places)
    return call("Where", hot, *(to_constant(np.zeros((), call.dtype), value) for value in (on, off)))


def _take(call: SpelledCall) -> Any:
    x, indices, axis = call.args[0], to_constant(np.zeros((), np.int64), call.args[1]), call["axis"]
    if axis is None:
        x, axis = reshape_to(call, x, [x.size]), 0
    size = x.shape[axis]
    # ONNX's Gather has no modes, and an index outside the axis is an error.
    if call["mode"] == "wrap":
        indices = call("Mod", indices, to_constant(indices, size))
    elif call["mode"] == "clip":
        indices = call("Max", call("Min", indices, to_constant(indices, size - 1)), to_constant(indices, 0))
    return call("Gather", x, indices, axis=axis)


def _slice(call: SpelledCall) -> Any:
    data, axes, begins, ends, *steps = call.args
    return call("Slice", data, *map(to_integers, (begins, ends, axes, *steps)))


def _reduction(call: SpelledCall) -> str:
    said = str(call["reduction"])
    return "none" if said == "update" else said


def _scatter_nd(call: SpelledCall) -> Any:
    data, indices, updates = call.args
    return call("ScatterND", data, cast_to(call, indices, "int64"), updates, reduction=_reduction(call))


def _slice_scatter(call: SpelledCall) -> Any:
    data, source, *bounds = call.args
    axis = call["axis"]
    shape = [-1 if each == axis % data.ndim else 1 for each in range(data.ndim)]
    places = np.arange(data.shape[axis])[slice(*bounds)].reshape(shape)
    indices = np.broadcast_to(places, source.shape).copy()
    return call("ScatterElements", data, indices, source, axis=axis)


def _places(onnx: Onnx, indices: Sequence[Any]) -> Any:
    """Indices of the leading axes, one tensor each, as those of GatherND and ScatterND."""
    shape = np.broadcast_shapes(*(index.shape for index in indices))
    columns = (
        onnx("Unsqueeze", onnx("Expand", cast_to(onnx, index, "int64"), to_integers(shape)), to_integers(-1))
        for index in indices
    )
    return onnx("Concat", *columns, axis=-1)


def _index_put(call: SpelledCall) -> Any:
    data, indices, values = call.args
    places = _places(call, indices)
    shape = (*places.shape[:-1], *data.shape[len(indices) :])
    updates = call("Expand", values, to_integers(shape))
    return call("ScatterND", data, places, updates, reduction="add" if call["accumulate"] else "none")


SPELLINGS: Mapping[str, Spelling] = {
    "reshape": lambda call: reshape_to(call, call.args[0], call.args[1]),
    "flatten": spell_unary(lambda onnx, x: reshape_to(onnx, x, [x.size])),
    "nn.batch_flatten": spell_unary(
        lambda onnx, x: reshape_to(onnx, x, [x.shape[0], math.prod(x.shape[1:])])
    ),
    "expand_dims": lambda call: call("Unsqueeze", call.args[0], to_integers(call["axis"])),
    "squeeze": _squeeze,
    "permute_dims": _permute,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "tile": _tile,
    "repeat": _repeat,
    "broadcast_to": lambda call: call("Expand", call.args[0], to_integers(call.args[1])),
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
    "shape_of": lambda call: tuple(call.args[0].shape),
    "tensor_to_shape": lambda call: tuple(map(int, call.args[0])),
    "shape_to_tensor": lambda call: to_integers(call.args[0]),
    "size": lambda call: np.array(call.args[0].size, np.int64),
    "one_hot": _one_hot,
    "take": _take,
    "strided_slice": _slice,
    "gather_elements": lambda call: call("GatherElements", *call.args, axis=call["axis"]),
    "gather_nd": lambda call: call(
        "GatherND", call.args[0], cast_to(call, call.args[1], "int64"), batch_dims=call["batch_dims"]
    ),
    "scatter_elements": lambda call: call(
        "ScatterElements", *call.args, axis=call["axis"], reduction=_reduction(call)
    ),
    "scatter_nd": _scatter_nd,
    "slice_scatter": _slice_scatter,
    "index_tensor": lambda call: call("GatherND", call.args[0], _places(call, call.args[1])),
    "index_put": _index_put,
}
