"""Rules of convolutions, pools and attention, for any number of spatial axes, layout NC... ."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.tree import Attributes

Rule = Callable[[Any, Attributes, str], Any]


def _get(attrs: Attributes, name: str) -> Any:
    return attrs.get(name)


def _padded(data: Any, padding: tuple[int, ...], value: float) -> Any:
    dims = data.ndim - 2
    widths = [(0, 0), (0, 0), *zip(padding[:dims], padding[dims:], strict=True)]
    return np.pad(data, widths, constant_values=value)


def _taps(
    data: Any, window: tuple[int, ...], strides: Any, dilation: Any, out: tuple[int, ...]
) -> Iterator[tuple[Any, Any]]:
    """Each place in the window, and the elements that stand there for all outputs at once."""
    for tap in itertools.product(*map(range, window)):
        cut = [slice(None), slice(None)]
        for place, step, gap, size in zip(tap, strides, dilation, out, strict=True):
            cut.append(slice(place * gap, place * gap + (size - 1) * step + 1, step))
        yield tap, data[tuple(cut)]


def _size(length: int, taps: int, step: int, gap: int) -> int:
    return (length - gap * (taps - 1) - 1) // step + 1


def _conv(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, weight = args
    strides, dilation, groups = _get(attrs, "strides"), _get(attrs, "dilation"), _get(attrs, "groups")
    data = _padded(data, _get(attrs, "padding"), 0)
    window = weight.shape[2:]
    out = tuple(map(_size, data.shape[2:], window, strides, dilation))
    result = np.zeros((data.shape[0], weight.shape[0], *out), np.result_type(data, weight))
    inner, outer = weight.shape[1], weight.shape[0] // groups
    for tap, part in _taps(data, window, strides, dilation, out):
        for group in range(groups):
            chosen = weight[(slice(group * outer, (group + 1) * outer), slice(None), *tap)]
            piece = part[:, group * inner : (group + 1) * inner]
            result[:, group * outer : (group + 1) * outer] += np.einsum("nc...,oc->no...", piece, chosen)
    return result.astype(dtype)


def _transposed(args: Any, attrs: Attributes, dtype: str) -> Any:
    data, weight = args
    strides, padding, extra = _get(attrs, "strides"), _get(attrs, "padding"), _get(attrs, "output_padding")
    dims = data.ndim - 2
    window = weight.shape[2:]
    full = [
        (size - 1) * step + taps for size, step, taps in zip(data.shape[2:], strides, window, strict=True)
    ]
    grown = [size + more for size, more in zip(full, extra, strict=True)]
    result = np.zeros((data.shape[0], weight.shape[1], *grown), np.result_type(data, weight))
    for tap in itertools.product(*map(range, window)):
        cut = [slice(None), slice(None)]
        for place, step, size in zip(tap, strides, data.shape[2:], strict=True):
            cut.append(slice(place, place + (size - 1) * step + 1, step))
        result[tuple(cut)] += np.einsum("nc...,co->no...", data, weight[(slice(None), slice(None), *tap)])
    ends = [size - after for size, after in zip(grown, padding[dims:], strict=True)]
    kept = [slice(before, end) for before, end in zip(padding[:dims], ends, strict=True)]
    return result[(slice(None), slice(None), *kept)].astype(dtype)


def _geometry(data: Any, attrs: Attributes) -> tuple[Any, ...]:
    window, strides, dilation = _get(attrs, "pool_size"), _get(attrs, "strides"), _get(attrs, "dilation")
    padding = list(_get(attrs, "padding"))
    dims = data.ndim - 2
    out = []
    for axis in range(dims):
        length = data.shape[2 + axis] + padding[axis] + padding[dims + axis]
        span = length - dilation[axis] * (window[axis] - 1) - 1
        step = strides[axis]
        count = (-(-span // step) if _get(attrs, "ceil_mode") else span // step) + 1
        out.append(count)
        padding[dims + axis] += max(0, (count - 1) * step + dilation[axis] * (window[axis] - 1) + 1 - length)
    return window, strides, dilation, tuple(padding), tuple(out)


def _max_pool(args: Any, attrs: Attributes, dtype: str) -> Any:
    data = args[0]
    window, strides, dilation, padding, out = _geometry(data, attrs)
    low = -np.inf if data.dtype.kind in "fV" else np.iinfo(data.dtype).min
    data = _padded(data, padding, low)
    result = np.full((*data.shape[:2], *out), low, data.dtype)
    for _, part in _taps(data, window, strides, dilation, out):
        result = np.maximum(result, part)
    return result


def _avg_pool(args: Any, attrs: Attributes, dtype: str) -> Any:
    data = args[0]
    window, strides, dilation, padding, out = _geometry(data, attrs)
    inside = np.ones_like(data)
    # the padding that was asked for counts, what `ceil_mode` adds does not
    if _get(attrs, "count_include_pad"):
        asked = _get(attrs, "padding")
        dims = data.ndim - 2
        more = tuple(after - said for after, said in zip(padding[dims:], asked[dims:], strict=True))
        inside = _padded(np.ones_like(_padded(data, asked, 0)), (*(0,) * dims, *more), 0)
    else:
        inside = _padded(inside, padding, 0)
    data = _padded(data, padding, 0)
    total = np.zeros((*data.shape[:2], *out), data.dtype)
    count = np.zeros_like(total)
    for (_, part), (_, there) in zip(
        _taps(data, window, strides, dilation, out),
        _taps(inside, window, strides, dilation, out),
        strict=True,
    ):
        total, count = total + part, count + there
    return (total / np.maximum(count, 1)).astype(dtype)


def _adaptive(args: Any, attrs: Attributes, dtype: str) -> Any:
    data = args[0]
    out = _get(attrs, "output_size")
    result = np.zeros((*data.shape[:2], *out), data.dtype)
    for place in np.ndindex(*out):
        cut = [slice(None), slice(None)]
        for index, size, length in zip(place, out, data.shape[2:], strict=True):
            cut.append(slice(index * length // size, -(-(index + 1) * length // size)))
        result[(slice(None), slice(None), *place)] = data[tuple(cut)].mean(axis=tuple(range(2, data.ndim)))
    return result


def _attention(args: Any, attrs: Attributes, dtype: str) -> Any:
    query, key, value = args[:3]
    scale = _get(attrs, "scale")
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) * (
        1 / math.sqrt(query.shape[-1]) if scale is None else scale
    )
    if len(args) > 3:
        scores = scores + args[3]
    mask = _get(attrs, "causal_mask")
    if mask:
        rows, columns = scores.shape[-2:]
        shift = columns - rows if mask == "BottomRight" else 0
        scores = np.where(np.tril(np.ones((rows, columns), bool), shift), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, value).astype(dtype)


RULES: Mapping[str, Rule] = {
    **{f"nn.conv{n}d": _conv for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _transposed for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": _max_pool for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _avg_pool for n in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive for n in (1, 2, 3)},
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
}
