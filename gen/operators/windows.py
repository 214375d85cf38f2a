"""Windows that move over an image: their places, sizes and paddings. What convolutions, pools and samplers
share.

Sources: the ONNX operator pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.instance import Draft
from opsieve.gen.declarations.symbolic_arith import Size, ceil_quotient, window

_AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID")


def spatial(attrs: Mapping[str, Any], name: str, count: int, default: int = 1) -> list[Size]:
    """A list attribute with one entry for each spatial axis, or its default."""
    given = attrs.get(name)
    return list(given) if given else [default] * count


def infer_window_sizes(
    shape: Sequence[Size], kernel: Sequence[Size], attrs: Mapping[str, Any], ceil: bool = False
) -> tuple[Size, ...]:
    """Infer the spatial sizes of a windowed operator's output from those of its input."""
    count = len(shape)
    strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
    auto = attrs.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        return tuple(ceil_quotient(side, stride) for side, stride in zip(shape, strides, strict=True))
    pads = spatial(attrs, "pads", 2 * count, 0) if auto == "NOTSET" else [0] * (2 * count)
    sizes = []
    for axis, side in enumerate(shape):
        size = window(
            side, kernel[axis], strides[axis], dilations[axis], pads[axis] + pads[axis + count], ceil
        )
        sizes.append(size)
    return tuple(sizes)


def strides_fit(attrs: Mapping[str, Any], count: int) -> bool:
    """Return whether strides and dilations have one entry per axis, each at least 1."""
    lists = [spatial(attrs, name, count) for name in ("strides", "dilations")]
    return all(len(given) == count and min(given, default=1) >= 1 for given in lists)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over all axes of the first input but two: a `kernel`, and the attributes that place it where
    the operator page allows.

    With `keeps` paddings are smaller than the kernel, as poolings ask. `dilates` is the first opset that has
    dilations.
    """

    keeps: bool = False
    dilates: int = 1

    def __call__(self, draft: Draft) -> None:
        """Draw them."""
        rng, rates, attrs, sides = draft.rng, draft.builder.style.rates, draft.attrs, draft.x.shape[2:]
        kernel = [
            rng.draw_binned(1, min(side, 5)) if draft.open is None else draft.open.number(1, 7)
            for side in sides
        ]
        draft.sizes["kernel"] = kernel
        if draft.opset >= self.dilates and rng.random() < rates.dilated:
            attrs["dilations"] = [
                self._dilation(draft, side, k) for side, k in zip(sides, kernel, strict=True)
            ]
        if rng.random() < rates.strided:
            attrs["strides"] = [
                rng.choice((1, 1, 2, 3)) if draft.open is None else rng.draw_binned(1, 4) for _ in sides
            ]
        if rng.random() < rates.auto_pad:
            attrs["auto_pad"] = rng.choice(_AUTO)
            if attrs["auto_pad"] != "VALID":
                self._stay(draft, kernel)
        elif rng.random() < (rates.padded if draft.open is None else rates.open_padded):
            # As much at both ends, or not.
            rng, most = draft.rng, [k - 1 if self.keeps else k for k in kernel]
            if draft.open is not None:
                draft.attrs["pads"] = pads = [draft.open.number(0, 6, (0,)) for _ in (*kernel, *kernel)]
                draft.holds(*(pad <= end for pad, end in zip(pads, most * 2, strict=True)))
            elif rng.random() < draft.builder.style.rates.uneven_pads:
                draft.attrs["pads"] = [rng.between(0, min(end, 3)) for end in most * 2]
            else:
                draft.attrs["pads"] = [rng.between(0, min(end, 3)) for end in most] * 2

    def _dilation(self, draft: Draft, side: Size, kernel: Size) -> int:
        if draft.open is not None:
            return draft.rng.draw_binned(1, 3)
        return draft.rng.between(1, max(1, min(3, (side - 1) // (kernel - 1) if kernel > 1 else 3)))

    def _stay(self, draft: Draft, kernel: Sequence[Size]) -> None:
        """A stride beyond the window would ask for a negative padding."""
        attrs, count = draft.attrs, len(kernel)
        most = [(k - 1) * d + 1 for k, d in zip(kernel, spatial(attrs, "dilations", count), strict=True)]
        if draft.open is not None:
            draft.holds(*(s <= end for s, end in zip(spatial(attrs, "strides", count), most, strict=True)))
        elif "strides" in attrs:
            attrs["strides"] = list(map(min, attrs["strides"], most))


def declare_windowed(name: str, infer: Any, **more: Any) -> Operator:
    """Declare an operator over images: batch, channels and one to three spatial axes."""
    return Operator(
        name, infer=infer, ranks=more.pop("ranks", (3, 5)), family=more.pop("family", "window"), **more
    )
