"""Windows that move over an image: their places, sizes and paddings. What convolutions, pools and samplers share.

Sources: the ONNX operator pages.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from opsieve.gen.spec.builder import Builder, OpenBuilder, Sizes
from opsieve.gen.spec.declaration import Operator, Sampler
from opsieve.gen.spec.symbolic_arith import Size, ceil_quotient, window
from opsieve.gen.spec.tensor import Attributes

_AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID")


def spatial(attrs: Mapping[str, Any], name: str, count: int, default: int = 1) -> list[Size]:
    """A list attribute with one entry for each spatial axis, or its default."""
    given = attrs.get(name)
    return list(given) if given else [default] * count


def placed(
    shape: Sequence[Size], kernel: Sequence[Size], attrs: Mapping[str, Any], ceil: bool = False
) -> tuple[Size, ...]:
    """The spatial sizes of what a window gives over an image of these spatial sizes."""
    count = len(shape)
    strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
    auto = attrs.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        return tuple(ceil_quotient(side, stride) for side, stride in zip(shape, strides, strict=True))
    pads = spatial(attrs, "pads", 2 * count, 0) if auto == "NOTSET" else [0] * (2 * count)
    sizes = []
    for axis, side in enumerate(shape):
        size = window(side, kernel[axis], strides[axis], dilations[axis], pads[axis] + pads[axis + count], ceil)
        sizes.append(size)
    return tuple(sizes)


def strides_fit(attrs: Mapping[str, Any], count: int) -> bool:
    """Whether strides and dilations are as many as axes, and none below 1."""
    lists = [spatial(attrs, name, count) for name in ("strides", "dilations")]
    return all(len(given) == count and min(given, default=1) >= 1 for given in lists)


def place_windows(
    builder: Builder, sides: Sizes, kernel: Sequence[int], attrs: Attributes, dilates: bool, keeps: bool = False
) -> None:
    """Draw strides, dilations and paddings under which every window lies where the operator page allows; into `attrs`.

    With `keeps` paddings are smaller than the kernel, as poolings ask.
    """
    rng, count = builder.rng, len(sides)
    dilations = [1] * count
    if dilates and rng.random() < builder.style.rates.dilated:
        dilations = [
            rng.between(1, max(1, min(3, (side - 1) // (k - 1) if k > 1 else 3)))
            for side, k in zip(sides, kernel, strict=True)
        ]
        attrs["dilations"] = dilations
    if rng.random() < builder.style.rates.strided:
        attrs["strides"] = [rng.choice((1, 1, 2, 3)) for _ in sides]
    if rng.random() < builder.style.rates.auto_pad:
        attrs["auto_pad"] = rng.choice(_AUTO)
        if (
            attrs["auto_pad"] != "VALID" and "strides" in attrs
        ):  # a stride beyond the window would ask for a negative padding
            attrs["strides"] = [
                min(stride, (k - 1) * d + 1) for stride, k, d in zip(attrs["strides"], kernel, dilations, strict=True)
            ]
        return
    if rng.random() < builder.style.rates.padded:
        most = [k - 1 if keeps else k for k in kernel]
        attrs["pads"] = [rng.between(0, min(most[axis], 3)) for axis in range(count)] * 2
        if rng.random() < builder.style.rates.uneven_pads:  # uneven ones
            attrs["pads"] = [rng.between(0, min(most[axis % count], 3)) for axis in range(2 * count)]


def kernel_for(builder: Builder, sides: Sequence[int]) -> list[int]:
    """A kernel that is no larger than the image."""
    return [builder.rng.binned(1, min(side, 5)) for side in sides]


def windowed(name: str, sample: Sampler | None, infer: Any, **more: Any) -> Operator:
    """An operator over images: batch, channels and one to three spatial axes."""
    return Operator(
        name, sample, infer=infer, ranks=more.pop("ranks", (3, 5)), family=more.pop("family", "window"), **more
    )


def open_window(builder: OpenBuilder, count: int, keeps: bool, dilates: bool) -> tuple[list[Size], Attributes]:
    """A kernel with strides, dilations and paddings; with `keeps` paddings are smaller than the kernel."""
    rng, attrs = builder.rng, Attributes()
    kernel = [builder.number(1, 7) for _ in range(count)]
    if dilates and rng.random() < builder.style.rates.dilated:
        attrs["dilations"] = [rng.binned(1, 3) for _ in range(count)]
    if rng.random() < builder.style.rates.strided:
        attrs["strides"] = [rng.binned(1, 4) for _ in range(count)]
    if rng.random() < builder.style.rates.auto_pad:
        attrs["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if attrs["auto_pad"] != "VALID":  # a stride beyond the window would ask for a negative padding
            strides, dilations = spatial(attrs, "strides", count), spatial(attrs, "dilations", count)
            builder.relations += [s <= (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations, strict=True)]
    elif rng.random() < builder.style.rates.open_padded:
        attrs["pads"] = [builder.number(0, 6, (0,)) for _ in range(2 * count)]
        builder.relations += [
            pad < kernel[place % count] if keeps else pad <= kernel[place % count]
            for place, pad in enumerate(attrs["pads"])
        ]
    return kernel, attrs
