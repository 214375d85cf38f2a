"""Rules of operators that only move, join, repeat or make elements. See table.py."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch


def reshape(n: Any, x: Any, shape: Any) -> Any:
    """Reshape: 0 keeps a dimension unless `allowzero`, -1 is computed from the others."""
    if not n("allowzero", 0):
        shape = [x.shape[at] if size == 0 else size for at, size in enumerate(shape)]
    # 0 where a size is 0: then -1 has no value, and torch's own error is the right one.
    known = math.prod([size for size in shape if size != -1])
    # With an empty tensor torch cannot tell what -1 is, ONNX's page can.
    if -1 in shape and known:
        shape = [x.numel() // known if size == -1 else size for size in shape]
    return x.reshape(shape)


def flatten(n: Any, x: Any) -> Any:
    """Reshape to a matrix: the dimensions before the axis, and those from it on."""
    axis = n("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape([math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


def squeeze(n: Any, x: Any, axes: Any = None) -> Any:
    """Remove the axes, which have one element, or all such axes."""
    axes = n("axes") if axes is None else axes
    if axes is None:
        axes = [at for at, size in enumerate(x.shape) if size == 1]
    # An asked tensor without dimensions is a number.
    axes = axes if isinstance(axes, list) else [axes]
    # Modulo by the rank 0 would raise ZeroDivisionError.
    gone = {axis % x.dim() for axis in axes} if x.dim() else set()
    if any(x.shape[axis] != 1 for axis in gone):
        raise ValueError("Squeeze of an axis that has not one element")
    return x.reshape([size for at, size in enumerate(x.shape) if at not in gone])


def unsqueeze(n: Any, x: Any, axes: Any = None) -> Any:
    """Insert axes of one element; their numbers are places in the result."""
    axes = n("axes") if axes is None else axes
    axes = axes if isinstance(axes, list) else [axes]
    rank = x.dim() + len(axes)
    places, sizes = {axis % rank for axis in axes}, iter(x.shape)
    return x.reshape([1 if at in places else next(sizes) for at in range(rank)])


def split(n: Any, x: Any, sizes: Any = None) -> Any:
    """Split into slices along an axis, equal ones (the last may be smaller) if no sizes are given."""
    axis, parts = n("axis", 0), n("num_outputs", n.wanted)
    sizes = n("split") if sizes is None else sizes
    if sizes is None:
        whole = x.shape[axis]
        # Rounded up: the last part is the smaller one.
        size = -(-whole // parts)
        sizes = [max(0, min(size, whole - size * at)) for at in range(parts)]
    return tuple(x.split(sizes, axis))


def slice_tensor(
    n: Any, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Any:
    """Slice axis by axis, with Python's rules."""
    # Opsets before 10 have attributes here instead of inputs.
    if starts is None:
        starts, ends, axes = n("starts"), n("ends"), n("axes")
    starts, ends = (value if isinstance(value, list) else [value] for value in (starts, ends))
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps):
        # Python's own slice clamps the bounds exactly as ONNX asks.
        places = range(x.shape[axis])[start:end:step]
        # torch's slices have no negative step.
        if step > 0:
            first = places.start if len(places) else 0
            cut = x.narrow(axis, first, places[-1] - first + 1 if len(places) else 0)
            whole = (slice(None),) * (axis % x.dim())
            x = cut[(*whole, slice(None, None, step))]
        else:
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64))
    return x


def expand(n: Any, x: Any, shape: Any) -> Any:
    """Broadcast in both directions."""
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(shape)))


def pad(n: Any, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    """Pad with a constant, by reflection, by the edge or around; negative padding cuts."""
    pads = n("pads") if pads is None else pads
    value = n("value", 0) if value is None else n.one(value)
    axes = range(x.dim()) if axes is None else [axis % x.dim() for axis in axes]
    mode, half = n("mode", "constant"), len(pads) // 2
    # A newer opset may add a mode.
    if mode not in ("constant", "reflect", "edge", "wrap"):
        n.refuse("mode %s" % mode)
    both = dict(zip(axes, zip(pads[:half], pads[half:])))
    # The only mode in which torch takes axes of any number and negative widths.
    if mode == "constant":
        flat = [amount for axis in reversed(range(x.dim())) for amount in both.get(axis, (0, 0))]
        return torch.constant_pad_nd(x, flat, value)
    for axis, (before, after) in both.items():
        size = x.shape[axis]
        cut = list(range(size))[max(0, -before) : size - max(0, -after)]
        places = around(len(cut), max(0, before), max(0, after), mode)
        # An axis without padding would otherwise be copied.
        if len(places) != size or places != cut:
            x = x.index_select(axis, torch.tensor([cut[at] for at in places], dtype=torch.int64))
    return x


def around(size: int, before: int, after: int, mode: str) -> list[int]:
    """Return which of `size` elements each place of the padded axis holds. Python's integers: a compiler
    would trace numpy's.
    """
    every = range(-before, size + after)
    if mode == "edge":
        return [min(max(at, 0), size - 1) for at in every]
    if mode == "wrap":
        return [at % size for at in every]
    # The edge itself is not repeated.
    period = max(1, 2 * (size - 1))
    return [min(at % period, period - at % period) if size > 1 else 0 for at in every]


def center_crop_pad(n: Any, x: Any, shape: Any) -> Any:
    """Cut or pad each axis with zeros at both ends, the odd element at its end."""
    axes = [axis % x.dim() for axis in n("axes", range(x.dim()))]
    flat = [0] * (2 * x.dim())
    for axis, size in zip(axes, shape):
        more = size - x.shape[axis]
        before = more // 2 if more >= 0 else -(-more // 2)
        at = 2 * (x.dim() - 1 - axis)
        flat[at : at + 2] = [before, more - before]
    return torch.constant_pad_nd(x, flat, 0)


def depth_to_space(n: Any, x: Any) -> Any:
    """Move channels to blocks of space, in the order of the mode."""
    batch, depth, height, width = x.shape
    side = n("blocksize")
    if n("mode", "DCR") == "DCR":
        y = x.reshape(batch, side, side, depth // side**2, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(batch, depth // side**2, side, side, height, width).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(batch, depth // side**2, height * side, width * side)


def space_to_depth(n: Any, x: Any) -> Any:
    """Move blocks of space to channels; for CRD the reverse of DepthToSpace in that mode."""
    batch, depth, height, width = x.shape
    side = n("blocksize")
    y = x.reshape(batch, depth, height // side, side, width // side, side)
    y = y.permute(0, 3, 5, 1, 2, 4) if n("mode", "DCR") == "DCR" else y.permute(0, 1, 3, 5, 2, 4)
    return y.reshape(batch, depth * side**2, height // side, width // side)


def trilu(n: Any, x: Any, k: Any = 0) -> Any:
    """Keep the triangle above or below a diagonal."""
    # Beyond the size of the matrix the diagonal makes no difference, and a hostile one must not overflow.
    k = max(-(2**31), min(2**31, n.one(k, 0)))
    return torch.triu(x, k) if n("upper", 1) else torch.tril(x, k)


def eye(n: Any, x: Any) -> Any:
    """Return ones on a diagonal, in the shape of a matrix."""
    rows, columns = torch.arange(x.shape[0]), torch.arange(x.shape[1])
    return (rows[:, None] + n("k", 0) == columns).to(n.dtype("dtype", x.dtype))


def one_hot(n: Any, x: Any, depth: Any, values: Any) -> Any:
    """Put the second value at each index, and the first elsewhere and for an index that is out of range."""
    depth = n.one(depth)
    places = x.to(torch.int64)
    # ONNX allows indices from -depth on; torch.nn.functional.one_hot does not.
    places = torch.where(places < 0, places + int(depth), places)
    axis = n("axis", -1)
    axis = axis + x.dim() + 1 if axis < 0 else axis
    row = torch.arange(int(depth)).reshape([-1 if at == axis else 1 for at in range(x.dim() + 1)])
    off, on = values.unbind()
    return torch.where(places.unsqueeze(axis) == row, on, off)


def make_range(n: Any, start: Any, limit: Any, delta: Any, first: Any, last: Any, by: Any) -> Any:
    """Count from start by delta up to, and excluding, the limit."""
    first, last, by = map(n.one, (first, last, by))
    # In floats a count by division can be one off, as ONNX's formula has it.
    exact = not isinstance(first, float)
    count = len(range(first, last, by)) if exact else max(0, math.ceil((last - first) / by))
    steps = torch.arange(count)
    return (start + steps.to(start.dtype) * delta).reshape(-1).to(start.dtype)


def constant_of_shape(n: Any, shape: Any) -> Any:
    """Fill a shape with one value, by default float32's 0."""
    value = n("value", torch.zeros(1)).reshape(())
    # Expanded tensors share memory, and an operator in place would write to every element.
    return value.expand(shape).clone()


def shape_of(n: Any, x: Any) -> Any:
    """Return the shape, or a part of it."""
    return torch.tensor(list(x.shape)[n("start", 0) : n("end")], dtype=torch.int64)


ASKS = {
    "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "Slice": (1, 2, 3, 4), "Expand": (1,),
    "Tile": (1,), "Pad": (1, 2, 3), "CenterCropPad": (1,), "Trilu": (1,), "OneHot": (1,),
    "ConstantOfShape": (0,),
}  # fmt: skip
ALSO = {"Range": (0, 1, 2)}
TABLE: dict[str, Callable[..., Any]] = {
    "Shape": shape_of,
    "Size": lambda n, x: torch.tensor(x.numel(), dtype=torch.int64),
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": lambda n, x: x.permute(n("perm", list(range(x.dim()))[::-1])),
    "Concat": lambda n, *values: torch.cat(values, n("axis")),
    "Split": split,
    "Slice": slice_tensor,
    "Expand": expand,
    "Tile": lambda n, x, repeats: x.repeat(repeats) if repeats else x,
    "Pad": pad,
    "CenterCropPad": center_crop_pad,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Trilu": trilu,
    "EyeLike": eye,
    "OneHot": one_hot,
    "Range": make_range,
    "ConstantOfShape": constant_of_shape,
}
