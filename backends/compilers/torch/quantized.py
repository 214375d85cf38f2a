"""Rules of quantisation and of products of quantised tensors. See table.py."""

from __future__ import annotations

from typing import Any, Callable

import torch

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16)


def spread(n: Any, scale: Any, x: Any) -> Any:
    """Return scales or zero points of a tensor, of an axis or of blocks of it, in a shape that broadcasts
    with `x`.
    """
    block, axis = n("block_size", 0), n("axis", 1)
    if scale.numel() == 1 and scale.dim() <= 1 and not block:
        return scale.reshape(())
    axis = axis % x.dim()
    if not block:
        return scale.reshape([-1 if at == axis else 1 for at in range(x.dim())])
    bits = scale if scale.dtype not in FLOAT8 else scale.float()
    return bits.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


def round_to_type(x: Any, zero: Any, to: Any) -> Any:
    """Round half to even, add the zero point and clamp to the range of the type."""
    bounds = torch.iinfo(to)
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    # Rounded before the zero point is added: an odd one would turn ties around.
    moved = torch.round(x.to(wide)) + (0 if zero is None else zero.to(wide))
    return torch.clamp(moved, bounds.min, bounds.max).to(torch.int32).to(to)


def quantize(n: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    """Quantise to 8-bit and 16-bit integers and to float8."""
    to = n.dtype("output_dtype", torch.uint8) if zero is None else zero.dtype
    precision = n.dtype("precision", scale.dtype if n.opset >= 23 else x.dtype)
    if x.dtype == torch.int32:
        precision = torch.float32
    y = x.to(precision) / spread(n, scale, x).to(precision)
    if to in INTEGERS:
        return round_to_type(y, None if zero is None else spread(n, zero, x), to)
    if to not in FLOAT8:
        n.refuse("to %s" % to)
    if not n("saturate", 1):
        n.refuse("float8 without a saturating cast")
    top = torch.finfo(to).max
    return torch.where(torch.isnan(y), y, torch.clamp(y, -top, top)).to(to)


def dequantize(n: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    """Return (x - zero) * scale, in the type of the scale."""
    to = n.dtype("output_dtype", scale.dtype)
    wide = torch.float64 if scale.dtype == torch.float64 else torch.float32
    # float32 does not hold every int32: the difference is taken first.
    if x.dtype == torch.int32 and wide == torch.float32:
        difference = (x if zero is None else x - spread(n, zero, x)).to(wide)
    else:
        difference = x.to(wide) - (0 if zero is None else spread(n, zero, x).to(wide))
    return (difference * spread(n, scale, x).to(wide)).to(to)


def dynamic(n: Any, x: Any) -> Any:
    """Quantise to uint8 by the range of the tensor, which includes zero."""
    low, high = torch.clamp(x.amin(), max=0), torch.clamp(x.amax(), min=0)
    scale = (high - low) / 255
    # A tensor of zeros has no range to divide by.
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.clamp(torch.round(-low / safe), 0, 255)
    y = torch.clamp(torch.round(x / safe) + zero, 0, 255).to(torch.uint8)
    return y, scale, zero.to(torch.uint8)


def subtract_zero_point(value: Any, zero: Any, row: bool) -> Any:
    """Subtract the zero point (of the whole matrix, each row or each column) in float64, which holds the sums
    exactly.
    """
    if zero is None:
        return value.double()
    if zero.dim() == 1 and zero.numel() > 1 and row:
        zero = zero.reshape(-1, 1)
    return value.double() - zero.double()


def matmul_integer(n: Any, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """Compute int32 sums of products of 8-bit integers."""
    return torch.matmul(subtract_zero_point(a, a_zero, True), subtract_zero_point(b, b_zero, False)).to(
        torch.int32
    )


def qlinear_matmul(
    n: Any, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    """Multiply the integers, then scale and round once."""
    sums = torch.matmul(subtract_zero_point(a, a_zero, True), subtract_zero_point(b, b_zero, False))
    left = a_scale.reshape(-1, 1) if a_scale.dim() == 1 and a_scale.numel() > 1 else a_scale
    factor = left.double() * b_scale.double() / y_scale.double()
    return round_to_type(sums * factor, y_zero.double(), y_zero.dtype)


ASKS: dict[str, tuple[int, ...]] = {}
TABLE: dict[str, Callable[..., Any]] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
}
