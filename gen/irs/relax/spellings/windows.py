"""Spellings of products, convolutions, pools, attention, and of operators that resample images."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.irs.relax.spellings.spelling import (
    Onnx,
    SpelledCall,
    Spelling,
    cast_to,
    is_float,
    reshape_to,
    spell_pair,
    to_constant,
    to_integers,
)


def _reorder_axes(onnx: Onnx, value: Any, order: str, wanted: str) -> Any:
    """Return a tensor whose axes are called by letters, in another order."""
    if sorted(order) != sorted(wanted):
        raise NotImplementedError(f"no spelling of the layout {order}")
    return value if order == wanted else onnx("Transpose", value, perm=list(map(order.index, wanted)))


def _letters(dims: int) -> str:
    return {1: "W", 2: "HW", 3: "DHW"}[dims]


def _convolution(operator: str, kernel: str, more: str) -> Spelling:
    def spell_call(call: SpelledCall) -> Any:
        space = _letters(call.args[0].ndim - 2)
        data = _reorder_axes(call, call.args[0], str(call["data_layout"]), f"NC{space}")
        weight = _reorder_axes(call, call.args[1], str(call["kernel_layout"]), f"{kernel}{space}")
        extra = {more: call[more]} if more else {}
        result = call(
            operator, cast_to(call, data, call.dtype), cast_to(call, weight, call.dtype),
            strides=call["strides"],
            pads=call["padding"], dilations=call["dilation"], group=call["groups"], **extra,
        )  # fmt: skip
        return _reorder_axes(call, result, f"NC{space}", str(call["out_layout"] or call["data_layout"]))

    return spell_call


def _pool(mean: bool) -> Spelling:
    """Pool padded data, because TVM's `ceil_mode` adds windows that ONNX leaves out."""

    def spell_call(call: SpelledCall) -> Any:
        space = _letters(call.args[0].ndim - 2)
        data = _reorder_axes(call, call.args[0], str(call["layout"]), f"NC{space}")
        # ONNX pools floats, and few of the integers.
        data = data if is_float(data) else cast_to(call, data, "float64")
        window = call["pool_size"]
        steps: dict[str, Any] = {
            "kernel_shape": window, "strides": call["strides"], "dilations": call["dilation"],
        }  # fmt: skip
        asked, widths = _widths(data, call)
        if not mean:
            result = call("MaxPool", _spell_padding(call, data, widths, -math.inf), **steps)
        else:
            # The padding that was asked for counts where the module says so, what `ceil_mode` adds does not.
            counted = np.ones_like(data)
            counted = np.pad(counted, asked, constant_values=float(bool(call["count_include_pad"])))
            more = [(0, after - said) for (_, after), (_, said) in zip(widths, asked, strict=True)]
            shares = call("AveragePool", np.pad(counted, more), **steps)
            total = call("AveragePool", _spell_padding(call, data, widths, 0), **steps)
            result = call("Div", total, call("Max", shares, to_constant(data, 1 / math.prod(window))))
        return _reorder_axes(call, cast_to(call, result, call.dtype), f"NC{space}", str(call["out_layout"]))

    return spell_call


def _widths(data: Any, call: SpelledCall) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the padding of each axis: as declared, and with the elements that `ceil_mode` adds."""
    window, strides, dilation, padding = (
        call[name] for name in ("pool_size", "strides", "dilation", "padding")
    )
    dims = data.ndim - 2
    asked = [(0, 0), (0, 0), *zip(padding[:dims], padding[dims:], strict=True)]
    widths = list(asked[:2])
    for size, (before, after), taps, step, gap in zip(
        data.shape[2:],
        asked[2:],
        window,
        strides,
        dilation,
        strict=True,
    ):
        reach = gap * (taps - 1) + 1
        # The page of pools: output size = floor((size + pads - reach) / stride) + 1, or ceil.
        span = size + before + after - reach
        count = -(-span // step) if call["ceil_mode"] else span // step
        widths.append((before, after + max(0, count * step - span)))
    return asked, widths


def _spell_padding(onnx: Onnx, data: Any, widths: Sequence[tuple[int, int]], value: float) -> Any:
    if not any(map(any, widths)):
        return data
    befores, afters = zip(*widths, strict=True)
    return onnx("Pad", data, to_integers([*befores, *afters]), to_constant(data, value))


def _adaptive(call: SpelledCall) -> Any:
    """Compute the mean over windows as a product with a matrix of shares per axis."""
    space = _letters(call.args[0].ndim - 2)
    data = _reorder_axes(call, call.args[0], str(call["layout"]), f"NC{space}")
    sizes: tuple[int, ...] = data.shape[2:]
    out = call["output_size"] or sizes
    matrices = [_shares(*ends).astype(data.dtype) for ends in zip(sizes, out, strict=True)]
    terms = ["px", "qy", "rz"][: len(sizes)]
    befores, afters = ("".join(term[place] for term in terms) for place in (1, 0))
    pooled = call("Einsum", data, *matrices, equation=f"nc{befores},{','.join(terms)}->nc{afters}")
    return _reorder_axes(call, pooled, f"NC{space}", str(call["out_layout"]))


def _shares(size: int, count: int) -> Any:
    """Return the share that each of `size` elements has in each of `count` means."""
    shares = np.zeros((count, size))
    for index in range(count):
        # As in PyTorch: window i goes from floor(i * size / count) to ceil((i + 1) * size / count).
        window = slice(index * size // count, -(-(index + 1) * size // count))
        shares[index, window] = 1 / (window.stop - window.start)
    return shares


def _attention(call: SpelledCall) -> Any:
    query, key, value = call.args[:3]
    scale = call["scale"]
    factor = to_constant(query, 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = call("Mul", call("Einsum", query, key, equation="bqhd,bkhd->bhqk"), factor)
    if len(call.args) > 3:
        scores = call("Add", scores, call.args[3])
    if call["causal_mask"]:
        rows, columns = scores.shape[-2:]
        # "BottomRight" aligns the last query with the last key, "TopLeft" the first ones.
        shift = columns - rows if call["causal_mask"] == "BottomRight" else 0
        seen = np.tril(np.ones((rows, columns), bool), shift)
        scores = call("Where", seen, scores, to_constant(scores, -math.inf))
    return call("Einsum", call("Softmax", scores, axis=-1), value, equation="bhqk,bkhd->bqhd")


_METHODS = {"nearest_neighbor": "nearest", "bilinear": "linear", "bicubic": "cubic"}
_ROUNDING = {"round": "round_prefer_ceil", "floor": "floor", "ceil": "ceil", "": "round_prefer_ceil"}


def _resize(call: SpelledCall) -> Any:
    space = _letters(call.args[0].ndim - 2)
    data = _reorder_axes(call, call.args[0], str(call["layout"]), f"NC{space}")
    method = str(call["method"])
    rounding = str(call["rounding_method"])
    result = call(
        "Resize", data, None, None, to_integers([*data.shape[:2], *call.args[1]]), mode=_METHODS.get(method,
        method),
        coordinate_transformation_mode=call["coordinate_transformation_mode"],
        cubic_coeff_a=call["cubic_alpha"], exclude_outside=call["cubic_exclude"],
        nearest_mode=_ROUNDING.get(rounding, rounding),
    )  # fmt: skip
    return _reorder_axes(call, cast_to(call, result, call.dtype), f"NC{space}", str(call["layout"]))


def _grid_sample(call: SpelledCall) -> Any:
    method = str(call["method"])
    # TVM's grid is [N, 2, H, W], that of ONNX [N, H, W, 2].
    grid = call("Transpose", call.args[1], perm=[0, *range(2, call.args[1].ndim), 1])
    return call(
        "GridSample", call.args[0], grid, mode=_METHODS.get(method, method),
        padding_mode=call["padding_mode"],
        align_corners=int(bool(call["align_corners"])),
    )  # fmt: skip


def _affine_grid(call: SpelledCall) -> Any:
    """Return the places of a grid over [-1, 1], moved by a matrix for each image."""
    theta, (height, width) = call.args[0], call.args[1]
    y, x = (
        # Aligned corners are at -1 and 1; otherwise these are the edges, and places the centres of cells.
        np.linspace(-1, 1, size) if call["align_corners"] else (2 * np.arange(size) + 1) / size - 1
        for size in (height, width)
    )
    rows, columns = np.meshgrid(y, x, indexing="ij")
    places = np.stack([columns.ravel(), rows.ravel(), np.ones(rows.size)]).astype(theta.dtype)
    return reshape_to(call, call("MatMul", theta, places), (theta.shape[0], 2, height, width))


def _roi_align(call: SpelledCall) -> Any:
    mode = str(call["mode"])
    if mode != "avg":
        raise NotImplementedError("the RoiAlign of ONNX takes another maximum")
    data = _reorder_axes(call, call.args[0], str(call["layout"]), "NCHW")
    images, corners = call.outputs("Split", 2, call.args[1], to_integers([1, 4]), axis=1)
    images = cast_to(call, call("Squeeze", images, to_integers(1)), "int64")
    height, width = call["pooled_size"]
    taps = call["sample_ratio"]
    shift = "output_half_pixel"
    if call["aligned"]:
        # TVM's flag omits the least size of a region alone; that of ONNX moves regions by half a pixel, too
        shift, half = "half_pixel", 0.5 / float(call["spatial_scale"])
        corners = call("Add", corners, to_constant(corners, half))
    return call(
        "RoiAlign", data, corners, images, mode=mode, output_height=height, output_width=width,
        sampling_ratio=max(0, taps), spatial_scale=call["spatial_scale"],
        coordinate_transformation_mode=shift,
    )  # fmt: skip


SPELLINGS: Mapping[str, Spelling] = {
    "matmul": lambda call: call("MatMul", *(cast_to(call, arg, call.dtype) for arg in call.args)),
    "einsum": lambda call: call(
        "Einsum", *(cast_to(call, arg, call.dtype) for arg in call.args[0]), equation=call["subscripts"]
    ),
    "outer": spell_pair(
        lambda onnx, x, y: onnx(
            "Mul", onnx("Unsqueeze", x, to_integers(1)), onnx("Unsqueeze", y, to_integers(0))
        )
    ),
    **{f"nn.conv{n}d": _convolution("Conv", "OI", "") for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _convolution("ConvTranspose", "IO", "output_padding") for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": _pool(mean=False) for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _pool(mean=True) for n in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive for n in (1, 2, 3)},
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
    "image.resize2d": _resize,
    "image.resize3d": _resize,
    "image.grid_sample": _grid_sample,
    "image.affine_grid": _affine_grid,
    "vision.roi_align": _roi_align,
}
