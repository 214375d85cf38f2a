"""Rules of reductions, of matrix products and of normalisations. See table.py."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

# torch's own name for it
import torch.nn.functional as F  # noqa: N812


def reduction(function: Callable[..., Any], newest: int = 18) -> Callable[..., Any]:
    """Return the rule of a reduction over axes, an attribute before the opset `newest`: `function(x, axes,
    keepdims)`.
    """

    def run_reduction(n: Any, x: Any, axes: Any = None) -> Any:
        axes = n("axes") if n.opset < newest else axes
        if not axes and n("noop_with_empty_axes", 0):
            axes = []
        elif not axes:
            axes = range(x.dim())
        # A scalar has no axes to name.
        axes = sorted({axis % x.dim() for axis in axes}) if x.dim() else []
        return function(x, axes, bool(n("keepdims", 1)))

    return run_reduction


def total(x: Any, axes: Any, keep: bool) -> Any:
    """Compute the sum in the type of the elements."""
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype) if axes else x


def product(x: Any, axes: Any, keep: bool) -> Any:
    """Compute the product in the type of the elements."""
    # torch.prod takes one axis; from the last one, so that the others keep their places.
    for axis in reversed(axes):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def mean(x: Any, axes: Any, keep: bool) -> Any:
    """Compute the mean; that of integers is rounded towards zero."""
    if not axes:
        return x
    if x.is_floating_point():
        return torch.mean(x, axes, keepdim=keep)
    return torch.mean(x.double(), axes, keepdim=keep).to(x.dtype)


def limit(function: Callable[..., Any], highest: bool) -> Callable[..., Any]:
    """Return the largest or smallest element; for an empty tensor, the other end of the type's range."""

    def find_limit(x: Any, axes: Any, keep: bool) -> Any:
        if not axes:
            return x
        # torch refuses the extreme of an empty axis.
        if all(x.shape[axis] for axis in axes):
            return function(x, axes, keepdim=keep)
        if x.is_floating_point():
            nothing: Any = -math.inf if highest else math.inf
        elif x.dtype == torch.bool:
            nothing = not highest
        else:
            info = torch.iinfo(x.dtype)
            nothing = info.min if highest else info.max
        return torch.full_like(total(x, axes, keep), nothing)

    return find_limit


def log_sum_exp(x: Any, axes: Any, keep: bool) -> Any:
    """Compute the logarithm of the sum of powers of e."""
    if x.is_floating_point():
        return torch.logsumexp(x, axes, keepdim=keep) if axes else x
    return torch.logsumexp(x.double(), axes, keepdim=keep).to(x.dtype) if axes else x


def take_root(x: Any) -> Any:
    """Return the square root, rounded towards zero for integers."""
    return torch.sqrt(x) if x.is_floating_point() else torch.sqrt(x.double()).to(x.dtype)


def take_logarithm(x: Any) -> Any:
    """Return the logarithm, rounded towards zero for integers."""
    return torch.log(x) if x.is_floating_point() else torch.log(x.double()).to(x.dtype)


def gemm(n: Any, a: Any, b: Any, c: Any = None) -> Any:
    """Compute alpha * A' * B' + beta * C."""
    a, b = a.t() if n("transA", 0) else a, b.t() if n("transB", 0) else b
    made = torch.mm(a, b)
    alpha, beta = n("alpha", 1.0), n("beta", 1.0)
    if not made.is_floating_point() and (alpha != int(alpha) or beta != int(beta)):
        n.refuse("integers by a fraction")
    # A float factor would turn integers into floats.
    scale = float if made.is_floating_point() else int
    made = made if alpha == 1 else made * scale(alpha)
    if c is None or beta == 0:
        return made
    return made + (c if beta == 1 else c * scale(beta))


def columns(value: Any, rank: int) -> Any:
    """Return a vector of channels that broadcasts with [N, C, ...]."""
    return value.reshape([1, -1] + [1] * (rank - 2))


def batch_norm(n: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """Normalise by the given statistics; in training by those of the batch, and update the running ones."""
    eps = n("epsilon", 1e-5)
    training = n("training_mode", 0) if n.opset >= 14 else n.wanted > 1
    if n("spatial", 1) == 0:
        n.refuse("statistics of each element")
    if not training:
        # torch wants one type, and the statistics may be wider than x.
        kind = mean.dtype
        y = F.batch_norm(x.to(kind), mean, var, scale.to(kind), bias.to(kind), False, 0.0, eps)
        return y.to(x.dtype)
    if n.opset < 14:
        n.refuse("training before opset 14")
    axes = [axis for axis in range(x.dim()) if axis != 1]
    now, spread = torch.mean(x, axes), torch.var(x, axes, correction=0)
    scaled = (x - columns(now, x.dim())) * torch.rsqrt(columns(spread, x.dim()) + eps)
    y = scaled * columns(scale, x.dim()) + columns(bias, x.dim())
    keep = n("momentum", 0.9)
    running = (mean * keep + now * (1 - keep), var * keep + spread * (1 - keep))
    return (y.to(x.dtype), running[0].to(mean.dtype), running[1].to(var.dtype))


def instance_norm(n: Any, x: Any, scale: Any, bias: Any) -> Any:
    """Normalise each channel of each sample by itself; torch's own operator refuses a single element."""
    eps = n("epsilon", 1e-5)
    if math.prod(x.shape[2:]) > 1:
        return F.instance_norm(x, weight=scale, bias=bias, eps=eps)
    axes = list(range(2, x.dim()))
    now, spread = torch.mean(x, axes, keepdim=True), torch.var(x, axes, correction=0, keepdim=True)
    return (x - now) * torch.rsqrt(spread + eps) * columns(scale, x.dim()) + columns(bias, x.dim())


def stash(n: Any, x: Any) -> Any:
    """Return the input in the type that statistics are computed in: float32 at least, as `stash_type` says by
    default.
    """
    if n("stash_type", 1) != 1:
        n.refuse("stash_type %d" % n("stash_type"))
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def layer_norm(n: Any, x: Any, scale: Any, bias: Any = None) -> Any:
    """Normalise over the last axes; return the mean and the inverse deviation too if they are wanted."""
    axis, eps, fine = n("axis", -1) % x.dim(), n("epsilon", 1e-5), stash(n, x)
    shape = list(x.shape[axis:])
    if (
        # The fused kernel gives neither mean nor deviation, and knows no other shape of the scale.
        n.wanted == 1
        and fine is x
        and list(scale.shape) == shape
        and (bias is None or bias.shape == scale.shape)
    ):
        return F.layer_norm(x, shape, scale, bias, eps)
    axes = list(range(axis, x.dim()))
    now, spread = torch.mean(fine, axes, keepdim=True), torch.var(fine, axes, correction=0, keepdim=True)
    inverse = torch.rsqrt(spread + eps)
    y = ((fine - now) * inverse).to(x.dtype) * scale
    return (y if bias is None else y + bias), now, inverse


def rms_norm(n: Any, x: Any, scale: Any) -> Any:
    """Divide by the root of the mean square over the last axes."""
    axis, eps, fine = n("axis", -1) % x.dim(), n("epsilon", 1e-5), stash(n, x)
    mean_square = torch.mean(fine * fine, list(range(axis, x.dim())), keepdim=True)
    return (fine * torch.rsqrt(mean_square + eps)).to(x.dtype) * scale


def group_norm(n: Any, x: Any, scale: Any, bias: Any) -> Any:
    """Normalise groups of channels; before opset 21 there was a scale for each group, which ONNX then found
    of no use.
    """
    groups, fine = n("num_groups"), stash(n, x)
    if n.opset < 21:
        scale, bias = (value.repeat_interleave(x.shape[1] // groups) for value in (scale, bias))
    if fine is x:
        return F.group_norm(x, groups, scale, bias, n("epsilon", 1e-5))
    y = F.group_norm(fine, groups, None, None, n("epsilon", 1e-5)).to(x.dtype)
    return y * columns(scale, x.dim()) + columns(bias, x.dim())


def lrn(n: Any, x: Any) -> Any:
    """Normalise across the channels from c - floor((size - 1) / 2) to c + ceil((size - 1) / 2)."""
    size = n("size")
    before = (size - 1) // 2
    padded = torch.constant_pad_nd(x * x, [0, 0] * (x.dim() - 2) + [before, size - 1 - before], 0)
    square = padded.unfold(1, size, 1).sum(-1)
    return x / (n("bias", 1.0) + n("alpha", 1e-4) / size * square) ** n("beta", 0.75)


def lp_norm(n: Any, x: Any) -> Any:
    """Divide by the norm along an axis; zeros stay zeros."""
    axis = n("axis", -1)
    size = (
        torch.sum(x.abs(), axis, keepdim=True)
        if n("p", 2) == 1
        else torch.sqrt(torch.sum(x * x, axis, keepdim=True))
    )
    return torch.where(size == 0, torch.zeros_like(x), x / size)


def mean_variance(n: Any, x: Any) -> Any:
    """Normalise by ONNX's definition: 1e-9 is added to the deviation, not to the variance."""
    axes = n("axes", [0, 2, 3])
    now = torch.mean(x, axes, keepdim=True)
    spread = torch.sqrt(torch.mean(x * x, axes, keepdim=True) - now * now)
    return (x - now) / (spread + 1e-9)


ASKS = {
    "Reduce" + name: (1,)
    for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
}
TABLE: dict[str, Callable[..., Any]] = {
    "ReduceSum": reduction(total, 13),
    "ReduceProd": reduction(product),
    "ReduceMean": reduction(mean),
    "ReduceMax": reduction(limit(torch.amax, True)),
    "ReduceMin": reduction(limit(torch.amin, False)),
    "ReduceL1": reduction(lambda x, axes, keep: total(torch.abs(x), axes, keep)),
    "ReduceL2": reduction(lambda x, axes, keep: take_root(total(x * x, axes, keep))),
    "ReduceSumSquare": reduction(lambda x, axes, keep: total(x * x, axes, keep)),
    "ReduceLogSum": reduction(lambda x, axes, keep: take_logarithm(total(x, axes, keep))),
    "ReduceLogSumExp": reduction(log_sum_exp),
    "MatMul": lambda n, a, b: torch.matmul(a, b),
    "Gemm": gemm,
    "Einsum": lambda n, *values: torch.einsum(n("equation"), *values),
    "Det": lambda n, x: torch.linalg.det(x),
    "BatchNormalization": batch_norm,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "GroupNormalization": group_norm,
    "LRN": lrn,
    "LpNormalization": lp_norm,
    "MeanVarianceNormalization": mean_variance,
}
