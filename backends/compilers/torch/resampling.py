"""Rules of Resize, GridSample and their kin. See table.py."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

# torch's own name for it
import torch.nn.functional as F  # noqa: N812

MODES = {
    "linear": "bilinear",
    "bilinear": "bilinear",
    "nearest": "nearest",
    "cubic": "bicubic",
    "bicubic": "bicubic",
}


class Axis:
    """One axis of a Resize: where each output element lies among the `size` elements of the input."""

    def __init__(self, n: Any, size: int, out: int, scale: float, roi: tuple[float, float]) -> None:
        self.n, self.size, self.out, self.scale, self.roi = n, size, out, scale, roi
        legacy = n.op == "Upsample" or n.opset < 11
        self.how = "asymmetric" if legacy else n("coordinate_transformation_mode", "half_pixel")
        self.rounding = "floor" if legacy else n("nearest_mode", "round_prefer_floor")
        self.places = [self.place(at) for at in range(out)]

    def place(self, at: int) -> float:
        """Return the coordinate of an output element in the input, by the formulas of ONNX's Resize page."""
        size, scale = self.size, self.scale
        # `length_resized`
        long = self.out
        if self.how == "asymmetric":
            return at / scale
        if self.how == "half_pixel":
            return (at + 0.5) / scale - 0.5
        if self.how == "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if long != 1 else 0.0
        if self.how == "align_corners":
            return 0.0 if long == 1 else at * (size - 1) / (long - 1)
        if self.how == "half_pixel_symmetric":
            return size / 2 * (1 - self.out / (scale * size)) + (at + 0.5) / scale - 0.5
        if self.how == "tf_crop_and_resize":
            start, end = self.roi
            if long == 1:
                return (start + end) * (size - 1) / 2
            return start * (size - 1) + at * (end - start) * (size - 1) / (long - 1)
        raise NotImplementedError("Resize: coordinate_transformation_mode %s" % self.how)

    def nearest(self) -> list[int]:
        """Return the input element nearest to each output element."""
        rounds: dict[str, Callable[[float], int]] = {
            "floor": math.floor,
            "ceil": math.ceil,
            # Python's `round` goes to the even neighbour, and not always down.
            "round_prefer_floor": lambda x: math.ceil(x - 0.5),
            "round_prefer_ceil": lambda x: math.floor(x + 0.5),
        }
        return [min(max(rounds[self.rounding](x), 0), self.size - 1) for x in self.places]

    def get_weights(self, cubic: bool) -> tuple[list[list[int]], list[list[float]]]:
        """Return, for each output element, the input elements it depends on and their weights."""
        antialias = self.n("antialias", 0)
        # Antialiasing widens the kernel where the image shrinks, and never narrows it.
        scale = min(self.scale, 1.0) if antialias else 1.0
        reach = 2 if cubic else 1
        first = math.floor(-reach / scale) + 1
        span = range(first, 2 - first) if cubic else range(first, 2 - first)
        indices, weights = [], []
        for x in self.places:
            base = math.ceil(x) - 1
            raw = [base + step for step in span]
            row = [self.kernel((base + step - x) * scale, cubic) for step in span]
            if self.n("exclude_outside", 0):
                row = [w if 0 <= at < self.size else 0.0 for at, w in zip(raw, row)]
            # Without the elements left out the weights no longer add up to 1.
            if antialias or self.n("exclude_outside", 0):
                row = [w / sum(row) for w in row]
            indices.append([min(max(at, 0), self.size - 1) for at in raw])
            weights.append(row)
        return indices, weights

    def kernel(self, x: float, cubic: bool) -> float:
        """Return the weight of an element at a distance: a hat, or the cubic convolution kernel of Keys
        (1981).
        """
        x = abs(x)
        if not cubic:
            return max(0.0, 1 - x)
        a = float(self.n("cubic_coeff_a", -0.75))
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0

    def outside(self) -> list[bool]:
        """Return which output elements lie outside of the input and get the extrapolation value."""
        if self.how != "tf_crop_and_resize":
            return [False] * self.out
        return [x < 0 or x > self.size - 1 for x in self.places]


def sizes_of(n: Any, x: Any, axes: list[int], scales: Any, sizes: Any) -> tuple[list[int], list[float]]:
    """Return the size of each resized axis, and its scale."""
    if not sizes:
        return [math.floor(x.shape[axis] * scale) for axis, scale in zip(axes, scales)], list(scales)
    policy = n("keep_aspect_ratio_policy", "stretch")
    ratios = [size / x.shape[axis] for axis, size in zip(axes, sizes)]
    if policy == "stretch":
        return list(sizes), ratios
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(ratio * x.shape[axis] + 0.5) for axis in axes], [ratio] * len(axes)


def resize(n: Any, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """Resize axis after axis: each output element is a weighted sum along it."""
    if n.op == "Upsample" or n.opset < 11:
        roi, scales = None, n("scales") if roi is None else roi
    axes = [axis % x.dim() for axis in n("axes", range(x.dim()))]
    outs, ratios = sizes_of(n, x, axes, scales, sizes)
    mode, masks = n("mode", "nearest"), []
    half = len(axes)
    floating = x.is_floating_point()
    # Weights are fractions: integers are computed in float64 and rounded towards zero at the end.
    y = x if floating or mode == "nearest" else x.double()
    for at, (axis, out, ratio) in enumerate(zip(axes, outs, ratios)):
        place = Axis(n, x.shape[axis], out, ratio, (roi[at], roi[half + at]) if roi else (0.0, 1.0))
        # Such an axis stays as it is; a region of interest may still cut it.
        if out == x.shape[axis] and ratio == 1 and place.how != "tf_crop_and_resize":
            continue
        masks.append((axis, place.outside()))
        if mode == "nearest":
            y = y.index_select(axis, torch.tensor(place.nearest(), dtype=torch.int64))
            continue
        indices, weights = place.get_weights(mode == "cubic")
        count = len(indices[0]) if indices else 1
        taken = y.index_select(
            axis, torch.tensor([item for row in indices for item in row], dtype=torch.int64)
        )
        taken = taken.reshape([*y.shape[:axis], out, count, *y.shape[axis + 1 :]])
        table = torch.tensor(weights, dtype=y.dtype).reshape([out, count] + [1] * (y.dim() - axis - 1))
        y = (taken * table).sum(axis + 1)
    if not floating and mode != "nearest":
        y = y.to(x.dtype)
    for axis, mask in masks:
        if any(mask):
            shape = [-1 if at == axis else 1 for at in range(x.dim())]
            beyond = torch.full_like(y, n("extrapolation_value", 0.0))
            y = torch.where(torch.tensor(mask).reshape(shape), beyond, y)
    return y


def grid_sample(n: Any, x: Any, grid: Any) -> Any:
    """Apply torch's own operator."""
    mode = MODES[n("mode", "linear")]
    # What torch's operator has
    if x.dim() not in (4, 5) or (mode == "bicubic" and x.dim() == 5):
        n.refuse("%s over %d dimensions" % (mode, x.dim()))
    return F.grid_sample(x, grid, mode, n("padding_mode", "zeros"), bool(n("align_corners", 0)))


ASKS = {"Resize": (1, 2, 3), "Upsample": (1,), "AffineGrid": (1,)}
TABLE: dict[str, Callable[..., Any]] = {
    "Resize": resize,
    "Upsample": resize,
    "GridSample": grid_sample,
    "AffineGrid": lambda n, theta, size: F.affine_grid(theta, list(size), bool(n("align_corners", 0))),
}
