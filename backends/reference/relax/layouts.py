"""Rules of operators that move, repeat and pick elements."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.tree import Attributes

Rule = Callable[[Any, Attributes, str], Any]


def _get(attrs: Attributes, name: str) -> Any:
    return attrs.get(name)


def _split(args: Any, attrs: Attributes, dtype: str) -> Any:
    return tuple(np.split(args[0], _cuts(_get(attrs, "indices_or_sections")), _get(attrs, "axis")))


def _cuts(given: Any) -> Any:
    return list(given) if isinstance(given, tuple) else given


def _collapse(value: Any, shape: tuple[int, ...]) -> Any:
    lead = value.ndim - len(shape)
    folded = value.sum(axis=tuple(range(lead)), dtype=value.dtype)
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and folded.shape[axis] != 1)
    return folded.sum(axis=axes, keepdims=True, dtype=value.dtype) if axes else folded


def _reverse(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, lengths = args
    along, batch = _get(attrs, "seq_axis"), _get(attrs, "batch_axis")
    result = np.moveaxis(data, (batch, along), (0, 1)).copy()
    for row, length in enumerate(lengths):
        result[row, :length] = result[row, :length][::-1].copy()
    return np.moveaxis(result, (0, 1), (batch, along))


def _pad(args: Any, attrs: Attributes, dtype: str) -> Any:
    flat = _get(attrs, "pad_width")
    widths = list(zip(flat[::2], flat[1::2], strict=True))
    mode = {"replicate": "edge", "circular": "wrap"}.get(_get(attrs, "pad_mode"), _get(attrs, "pad_mode"))
    more = {"constant_values": _get(attrs, "pad_value")} if mode == "constant" else {}
    return np.pad(args[0], widths, mode=mode, **more)


def _pixel_shuffle(args: Any, attrs: Attributes, dtype: str) -> Any:
    *lead, channels, height, width = args[0].shape
    factor = _get(attrs, "upscale_factor")
    split = args[0].reshape((*lead, channels // factor**2, factor, factor, height, width))
    n = len(lead)
    moved = split.transpose((*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return moved.reshape((*lead, channels // factor**2, height * factor, width * factor))


def _layout(args: Any, attrs: Attributes, dtype: str) -> Any:
    mapping = _get(attrs, "index_map")
    initial = [id(item) for item in mapping["initial_indices"]]
    return args[0].transpose([initial.index(id(item)) for item in mapping["final_indices"]])


def _one_hot(args: Any, attrs: Attributes, dtype: str) -> Any:
    indices, on, off = args
    depth, axis = _get(attrs, "depth"), _get(attrs, "axis")
    hot = np.where(indices[..., None] == np.arange(depth), on, off).astype(dtype)
    return np.moveaxis(hot, -1, axis)


def _take(args: Any, attrs: Attributes, dtype: str) -> Any:
    return np.take(args[0], args[1], _get(attrs, "axis"))


def _slice(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, axes, begins, ends, steps = args
    cut = [slice(None)] * data.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        cut[axis] = slice(begin, end, step)
    return data[tuple(cut)]


def _gather_nd(args: Any, attrs: Attributes, dtype: str) -> Any:
    return args[0][tuple(np.moveaxis(args[1], -1, 0))]


def _combined(old: Any, new: Any, how: str) -> Any:
    if how == "update":
        return new
    return {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[how](old, new)


def _scatter_elements(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, indices, updates = args
    axis, how = _get(attrs, "axis"), _get(attrs, "reduction")
    result = data.copy()
    for place in np.ndindex(indices.shape):
        to = list(place)
        to[axis] = int(indices[place])
        result[tuple(to)] = _combined(result[tuple(to)], updates[place], how)
    return result


def _scatter_nd(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, indices, updates = args
    result = data.copy()
    for row in np.ndindex(indices.shape[:-1]):
        to = tuple(int(item) for item in indices[row])
        result[to] = _combined(result[to], updates[row], _get(attrs, "reduction"))
    return result


def _slice_scatter(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, source, start, end, step = args
    cut = [slice(None)] * data.ndim
    cut[_get(attrs, "axis")] = slice(start, end, step)
    result = data.copy()
    result[tuple(cut)] = source
    return result


def _index_put(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, indices, values = args
    result = data.copy()
    places = tuple(index.astype(np.int64) for index in indices)
    if _get(attrs, "accumulate"):
        np.add.at(result, places, values)
    else:
        result[places] = values
    return result


RULES: Mapping[str, Rule] = {
    "reshape": lambda args, attrs, dtype: args[0].reshape(args[1]),
    "flatten": lambda args, attrs, dtype: args[0].reshape(-1),
    "nn.batch_flatten": lambda args, attrs, dtype: args[0].reshape(args[0].shape[0], -1),
    "expand_dims": lambda args, attrs, dtype: np.expand_dims(args[0], _get(attrs, "axis")),
    "squeeze": lambda args, attrs, dtype: np.squeeze(args[0], _get(attrs, "axis")),
    "permute_dims": lambda args, attrs, dtype: np.transpose(args[0], _get(attrs, "axes")),
    "concat": lambda args, attrs, dtype: np.concatenate(args[0], _get(attrs, "axis")),
    "stack": lambda args, attrs, dtype: np.stack(args[0], _get(attrs, "axis")),
    "split": _split,
    "tile": lambda args, attrs, dtype: np.tile(args[0], _get(attrs, "repeats")),
    "repeat": lambda args, attrs, dtype: np.repeat(args[0], _get(attrs, "repeats"), _get(attrs, "axis")),
    "broadcast_to": lambda args, attrs, dtype: np.broadcast_to(args[0], args[1]),
    "collapse_sum_to": lambda args, attrs, dtype: _collapse(args[0], args[1]),
    "collapse_sum_like": lambda args, attrs, dtype: _collapse(args[0], args[1].shape),
    "flip": lambda args, attrs, dtype: np.flip(args[0], _get(attrs, "axis")),
    "reverse_sequence": _reverse,
    "meshgrid": lambda args, attrs, dtype: tuple(np.meshgrid(*args[0], indexing=_get(attrs, "indexing"))),
    "nn.pad": _pad,
    "nn.pixel_shuffle": _pixel_shuffle,
    "layout_transform": _layout,
    "tril": lambda args, attrs, dtype: np.tril(args[0], args[1]),
    "triu": lambda args, attrs, dtype: np.triu(args[0], args[1]),
    "shape_to_tensor": lambda args, attrs, dtype: np.array(args[0], np.int64),
    "size": lambda args, attrs, dtype: np.array(args[0].size, np.int64),
    "one_hot": _one_hot,
    "take": _take,
    "strided_slice": _slice,
    "gather_elements": lambda args, attrs, dtype: np.take_along_axis(args[0], args[1], _get(attrs, "axis")),
    "gather_nd": _gather_nd,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "slice_scatter": _slice_scatter,
    "index_tensor": lambda args, attrs, dtype: args[0][tuple(args[1])],
    "index_put": _index_put,
}
