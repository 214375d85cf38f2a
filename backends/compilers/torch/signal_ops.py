"""Rules of Fourier transforms and of windows. See table.py."""

from __future__ import annotations

from typing import Any, Callable

import torch


def dft(n: Any, x: Any, length: Any = None, axis: Any = None) -> Any:
    """Transform by Fourier; complex numbers are pairs along the last axis, and a real input has one element
    there.
    """
    axis = n("axis", 1) if n.opset < 20 else -2 if axis is None else axis
    axis = axis % x.dim()
    length, axis = n.one(length), n.one(axis)
    if n("inverse", 0):
        # view_as_complex wants both parts next to each other.
        whole = torch.view_as_complex(x.contiguous())
        if n("onesided", 0):
            return torch.fft.irfft(whole, length, axis).unsqueeze(-1)
        return torch.view_as_real(torch.fft.ifft(whole, length, axis))
    if x.shape[-1] == 1:
        real = x[..., 0]
        made = torch.fft.rfft(real, length, axis) if n("onesided", 0) else torch.fft.fft(real, length, axis)
    else:
        made = torch.fft.fft(torch.view_as_complex(x.contiguous()), length, axis)
        if n("onesided", 0):
            made = made.narrow(axis, 0, made.shape[axis] // 2 + 1)
    return torch.view_as_real(made)


def stft(n: Any, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    """Transform frames of the signal, weighted by the window, each by itself."""
    size = window.shape[0] if window is not None else length
    length = size if length is None else length
    if x.dim() == 3 and x.shape[-1] == 2:
        n.refuse("a complex signal")
    frames = (x[..., 0] if x.dim() == 3 else x).unfold(1, size, step)
    frames = frames if window is None else frames * window
    made = torch.fft.rfft(frames, length, -1) if n("onesided", 1) else torch.fft.fft(frames, length, -1)
    return torch.view_as_real(made)


def window(*terms: float) -> Callable[..., Any]:
    """Sum cosines over a window of a size; periodic, unless it is symmetric."""

    def make_window(n: Any, size: Any) -> Any:
        to = n.dtype("output_datatype", torch.float32)
        # torch.cos of integers or of float16 would lose digits.
        wide = torch.float64 if to == torch.float64 else torch.float32
        angle = torch.arange(size, dtype=wide) * (2 * torch.pi / (size if n("periodic", 1) else size - 1))
        return sum(term * torch.cos(angle * at) for at, term in enumerate(terms)).to(to)

    return make_window


ASKS = {"DFT": (1, 2), "STFT": (1, 3), "HannWindow": (0,), "HammingWindow": (0,), "BlackmanWindow": (0,)}
TABLE: dict[str, Callable[..., Any]] = {
    "DFT": dft,
    "STFT": stft,
    "HannWindow": window(0.5, -0.5),
    "HammingWindow": window(25 / 46, -21 / 46),
    "BlackmanWindow": window(0.42, -0.5, 0.08),
}
