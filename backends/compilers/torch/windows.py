"""Rules of convolutions and pools. Padding that torch's own operators cannot express is done before them. See
table.py.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any, Callable, List, Sequence, Tuple

import torch

# torch's own name for it
import torch.nn.functional as F  # noqa: N812

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
MAX_POOLS = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
AVERAGE_POOLS = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


def edges(pads: Sequence[int]) -> list[int]:
    """Return ONNX's pads (all beginnings, then all ends) in torch's order, the last axis first."""
    half = len(pads) // 2
    return [amount for at in reversed(range(half)) for amount in (pads[at], pads[half + at])]


def same(n: Any, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the pads of a window by `auto_pad` or as given; `kernel` is its extent with dilation."""
    how, rank = n("auto_pad", "NOTSET"), len(sizes)
    if how == "VALID":
        return [0] * (2 * rank)
    if how == "NOTSET":
        return list(n("pads", [0] * (2 * rank)))
    whole = [max(0, (-(-size // s) - 1) * s + k - size) for size, k, s in zip(sizes, kernel, strides)]
    small, large = [item // 2 for item in whole], [item - item // 2 for item in whole]
    return small + large if how == "SAME_UPPER" else large + small


def extents(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Return the sizes that a dilated kernel covers."""
    return [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations)]


def read_window(n: Any, x: Any) -> Tuple[int, List[int], List[int]]:
    """Return the number of spatial dimensions (one to three), the strides and the dilations."""
    rank = x.dim() - 2
    if not 1 <= rank <= 3:
        n.refuse("%d spatial dimensions" % rank)
    return rank, n("strides", [1] * rank), n("dilations", [1] * rank)


def conv(n: Any, x: Any, w: Any, bias: Any = None) -> Any:
    """Compute a convolution over one to three dimensions."""
    rank, strides, dilations = read_window(n, x)
    pads = same(n, x.shape[2:], extents(w.shape[2:], dilations), strides)
    padding = pads[:rank]
    # torch pads both ends alike, and by no negative number.
    if padding != pads[rank:] or min(padding) < 0:
        x, padding = torch.constant_pad_nd(x, edges(pads), 0), [0] * rank
    return CONVOLUTIONS[rank - 1](x, w, bias, strides, padding, dilations, n("group", 1))


def conv_transpose(n: Any, x: Any, w: Any, bias: Any = None) -> Any:
    """Compute all that the kernel reaches, cut or extend it as the pads say, then add the bias."""
    rank, strides, dilations = read_window(n, x)
    extra, shape = n("output_padding", [0] * rank), n("output_shape")
    # Without torch's own paddings, which cannot differ between the ends.
    full = TRANSPOSED[rank - 1](x, w, None, strides, 0, 0, n("group", 1), dilations)
    sizes = [size + more for size, more in zip(full.shape[2:], extra)]
    how = n("auto_pad", "NOTSET")
    if shape is None and how.startswith("SAME"):
        shape = [size * stride for size, stride in zip(x.shape[2:], strides)]
    if shape is None:
        pads = [0] * (2 * rank) if how == "VALID" else n("pads", [0] * (2 * rank))
    else:
        whole = [size - wanted for size, wanted in zip(sizes, shape)]
        small, large = [item // 2 for item in whole], [item - item // 2 for item in whole]
        pads = small + large if how == "SAME_UPPER" else large + small
    grown = [-amount for amount in pads]
    for at in range(rank):
        grown[rank + at] += extra[at]
    full = torch.constant_pad_nd(full, edges(grown), 0) if any(grown) else full
    return full if bias is None else full + bias.reshape([1, -1] + [1] * rank)


def deform_conv(n: Any, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """Read each tap with torch's grid_sample at its moved place, zero outside; return the weighted sum."""
    if x.dim() != 4:
        n.refuse("%d dimensions" % x.dim())
    batch, channels, *size = x.shape
    kernel, out, shares, groups = w.shape[2:], offset.shape[2:], n("offset_group", 1), n("group", 1)
    strides, dilations, pads = n("strides", [1, 1]), n("dilations", [1, 1]), n("pads", [0] * 4)
    # Places in float16 would miss their elements.
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    moved = offset.to(wide.dtype).reshape([batch * shares, *kernel, 2, *out])
    places = []
    # torch returns the column before the row.
    for at in (1, 0):
        shape = [-1 if axis == at else 1 for axis in range(2)]
        taps = (torch.arange(kernel[at]) * dilations[at]).reshape([*shape, 1, 1])
        starts = (torch.arange(out[at]) * strides[at] - pads[at]).reshape(shape)
        place = moved[:, :, :, at] + (taps + starts).to(wide.dtype)
        # grid_sample wants places from -1 to 1, from border to border (`align_corners` off).
        places.append((2 * place + 1) / size[at] - 1)
    grid = torch.stack(places, -1).reshape([batch * shares, kernel[0] * kernel[1] * out[0], out[1], 2])
    split = wide.reshape([batch * shares, channels // shares, *size])
    read = F.grid_sample(split, grid, "bilinear", "zeros", False).reshape([batch, shares, -1, *kernel, *out])
    if mask is not None:
        read = read * mask.to(wide.dtype).reshape([batch, shares, 1, *kernel, *out])
    terms = channels // groups * kernel[0] * kernel[1]
    weights = w.to(wide.dtype).reshape([groups, -1, terms])
    y = torch.matmul(weights, read.reshape([batch, groups, terms, -1])).reshape([batch, -1, *out])
    y = y if bias is None else y + bias.to(wide.dtype).reshape([1, -1, 1, 1])
    return y.to(x.dtype)


def laid_out(n: Any, x: Any, rank: int) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Return the kernel, strides, dilations and pads of a pool, and what `ceil_mode` adds at the ends."""
    kernel = n("kernel_shape")
    strides, dilations = n("strides", [1] * rank), n("dilations", [1] * rank)
    cover = extents(kernel, dilations)
    pads = same(n, x.shape[2:], cover, strides)
    more = [0] * rank
    if n("ceil_mode", 0):
        for at in range(rank):
            size = x.shape[2 + at] + pads[at] + pads[rank + at]
            count = -(-(size - cover[at]) // strides[at]) + 1
            if (count - 1) * strides[at] >= x.shape[2 + at] + pads[at]:
                # A window starts inside of the input or of its first padding
                count -= 1
            more[at] = max(0, (count - 1) * strides[at] + cover[at] - size)
    return kernel, strides, dilations, pads, more


def windows(x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Any:
    """Return a view [N, C, outputs..., elements] of every window, its elements in row-major order."""
    rank = len(kernel)
    for at, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations)):
        x = x.unfold(2 + at, (size - 1) * dilation + 1, stride)[..., ::dilation]
    return x.reshape([*x.shape[: 2 + rank], math.prod(kernel)])


def lowest(dtype: Any) -> Any:
    """Return the smallest value of a type."""
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def max_pool(n: Any, x: Any) -> Any:
    """Return the largest element of each window, and its place in the input if requested."""
    rank = x.dim() - 2
    kernel, strides, dilations, pads, more = laid_out(n, x, rank)
    around = pads[:rank] + [end + extra for end, extra in zip(pads[rank:], more)]
    padded = torch.constant_pad_nd(x, edges(around), lowest(x.dtype)) if any(around) else x
    if n.wanted == 1:
        # torch's pools take no integers.
        if x.is_floating_point() and 1 <= rank <= 3:
            return MAX_POOLS[rank - 1](padded, kernel, strides, 0, dilations)
        return torch.amax(windows(padded, kernel, strides, dilations), -1)
    seen = windows(padded, kernel, strides, dilations)
    best = torch.argmax(seen, -1, keepdim=True)
    within = list(product(*(range(size) for size in kernel)))
    place = torch.zeros(best.shape[:-1], dtype=torch.int64)
    sizes = list(x.shape[2:])
    order = range(rank) if not n("storage_order", 0) else reversed(range(rank))
    for at in order:
        offset = torch.tensor([cell[at] * dilations[at] for cell in within])[best[..., 0]]
        steps = torch.arange(best.shape[2 + at]) * strides[at] - pads[at]
        place = (
            place * sizes[at]
            + offset
            + steps.reshape([-1 if axis == 2 + at else 1 for axis in range(rank + 2)])
        )
    planes = torch.arange(x.shape[0] * x.shape[1]).reshape([*x.shape[:2]] + [1] * rank)
    return torch.gather(seen, -1, best)[..., 0], place + planes * math.prod(sizes)


def average_pool(n: Any, x: Any) -> Any:
    """Compute the mean of each window; `count_include_pad` counts the padding, what `ceil_mode` adds never
    counts.
    """
    rank = x.dim() - 2
    kernel, strides, dilations, pads, more = laid_out(n, x, rank)
    counted = bool(n("count_include_pad", 0))
    # What torch's own operator can express; all else is computed from windows.
    plain = pads[:rank] == pads[rank:] and not any(more) and set(dilations) == {1}
    if plain and 1 <= rank <= 3 and all(2 * pad <= size for pad, size in zip(pads, kernel)):
        return AVERAGE_POOLS[rank - 1](x, kernel, strides, pads[:rank], False, counted)
    around, ends = edges(pads), edges([0] * rank + more)
    padded = torch.constant_pad_nd(torch.constant_pad_nd(x, around, 0), ends, 0)
    ones = torch.constant_pad_nd(torch.ones_like(x[:1, :1]), around, 1 if counted else 0)
    counts = windows(torch.constant_pad_nd(ones, ends, 0), kernel, strides, dilations).sum(-1)
    return windows(padded, kernel, strides, dilations).sum(-1) / counts


def lp_pool(n: Any, x: Any) -> Any:
    """Compute the p-norm of each window; padding is zero."""
    rank, p = x.dim() - 2, n("p", 2)
    kernel, strides, dilations, pads, more = laid_out(n, x, rank)
    around = pads[:rank] + [end + extra for end, extra in zip(pads[rank:], more)]
    seen = windows(torch.constant_pad_nd(x.abs(), edges(around), 0), kernel, strides, dilations)
    return (seen**p).sum(-1) ** (1 / p)


def max_unpool(n: Any, x: Any, places: Any, shape: Any = None) -> Any:
    """Put the elements at their places in the input of the pool, zeros elsewhere."""
    rank = x.dim() - 2
    kernel, strides = n("kernel_shape"), n("strides", [1] * rank)
    pads = n("pads", [0] * (2 * rank))
    grown = [
        (size - 1) * stride + k - pads[at] - pads[rank + at]
        for at, (size, stride, k) in enumerate(zip(x.shape[2:], strides, kernel))
    ]
    inner = [*x.shape[:2], *grown]
    if shape is not None and list(shape) != inner:
        # The places were made for the pool's own output shape: they are kept, row by row, in the larger one.
        n.refuse("an output shape other than that of the pool")
    flat = torch.zeros(math.prod(inner), dtype=x.dtype)
    return flat.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(inner)


def over_space(function: Callable[..., Any]) -> Callable[..., Any]:
    """Reduce all spatial dimensions, which are kept."""
    return lambda n, x: function(n, x, list(range(2, x.dim())))


def col2im(n: Any, x: Any, image: Any, block: Any) -> Any:
    """Sum blocks up where they overlap."""
    if len(image) != 2:
        n.refuse("%d spatial dimensions" % len(image))
    dilations, pads, strides = n("dilations", [1, 1]), n("pads", [0] * 4), n("strides", [1, 1])
    grown = [image[0] + pads[0] + pads[2], image[1] + pads[1] + pads[3]]
    full = F.fold(x, grown, block, dilations, 0, strides)
    return torch.constant_pad_nd(full, edges([-amount for amount in pads]), 0)


def conv_integer(n: Any, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    """Compute int32 sums in float64, which holds them."""
    x, w = x.double() - (0 if x_zero is None else x_zero.double()), w.double()
    if w_zero is not None:
        w = w - w_zero.double().reshape([-1] + [1] * (w.dim() - 1))
    return conv(n, x, w).to(torch.int32)


ASKS = {"Col2Im": (1, 2), "MaxUnpool": (2,)}
TABLE: dict[str, Callable[..., Any]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "ConvInteger": conv_integer,
    "DeformConv": deform_conv,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "LpPool": lp_pool,
    "MaxUnpool": max_unpool,
    "GlobalAveragePool": over_space(lambda n, x, axes: torch.mean(x, axes, keepdim=True)),
    "GlobalMaxPool": over_space(lambda n, x, axes: torch.amax(x, axes, keepdim=True)),
    "GlobalLpPool": over_space(
        lambda n, x, axes: torch.sum(x.abs() ** n("p", 2), axes, keepdim=True) ** (1 / n("p", 2))
    ),
    "Col2Im": col2im,
}
