"""A plot of stated probabilities against how often they were true, as SVG."""

import itertools
import math
from collections.abc import Mapping, Sequence

BINS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.01)
_SIDE, _EDGE = 320, 48
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c")
_Z = 1.645  # of a two-sided interval of 90 %


def calibration_svg(sets: Mapping[str, Sequence[tuple[float, bool]]]) -> str:
    """For each set its answers as (stated, true): a point for each bin of stated probability, with its 90 %
    interval (Wilson) and count.
    """
    size = _SIDE + 2 * _EDGE
    body = [
        f'<rect x="{_EDGE}" y="{_EDGE}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#888"/>',
        f'<path d="M {_place(0, 0)} L {_place(1, 1)}" stroke="#bbb" stroke-dasharray="4 4"/>',
    ]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x, _ = _point(tick, 0)
        _, y = _point(0, tick)
        body.append(f'<text x="{x:.0f}" y="{_EDGE + _SIDE + 16}" text-anchor="middle">{tick:.0%}</text>')
        body.append(f'<text x="{_EDGE - 6}" y="{y + 4:.0f}" text-anchor="end">{tick:.0%}</text>')
    for number, (name, answers) in enumerate(sets.items()):
        colour, shift = _COLOURS[number % len(_COLOURS)], 6 * number
        body.append(
            f'<text x="{_EDGE + 8}" y="{_EDGE + 18 + 16 * number}" fill="{colour}">{name}:'
            f" {len(answers)}</text>"
        )
        for low, high in itertools.pairwise(BINS):
            there = [(stated, true) for stated, true in answers if low <= stated < high]
            if there:
                body += _bin(there, colour, shift)
    body.append(
        f'<text x="{size / 2:.0f}" y="{size - 10}" text-anchor="middle">stated for the first commit</text>'
    )
    middle = f"12 {size / 2:.0f}"
    body.append(
        f'<text x="12" y="{size / 2:.0f}" text-anchor="middle" transform="rotate(-90 {middle})">it was the'
        " true one</text>"
    )
    style = 'font-family="sans-serif" font-size="11"'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" width="{size}" height="{size}"'
        f" {style}>"
    )
    return (
        "\n".join([opening, f'<rect width="{size}" height="{size}" fill="white"/>', *body, "</svg>"]) + "\n"
    )


def _bin(there: Sequence[tuple[float, bool]], colour: str, shift: int) -> list[str]:
    count = len(there)
    stated = sum(each for each, _ in there) / count
    share = sum(true for _, true in there) / count
    low, high = _interval(share, count)
    x, y = _point(stated, share)
    top, bottom = _point(stated, high)[1], _point(stated, low)[1]
    x += shift
    return [
        f'<path d="M {x:.1f} {top:.1f} V {bottom:.1f}" stroke="{colour}"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
        f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" fill="{colour}">{count}</text>',
    ]


def _interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    scale = 1 + _Z**2 / count
    middle = (share + _Z**2 / (2 * count)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _point(stated: float, share: float) -> tuple[float, float]:
    return _EDGE + _SIDE * stated, _EDGE + _SIDE * (1 - share)


def _place(stated: float, share: float) -> str:
    return " ".join(f"{value:.1f}" for value in _point(stated, share))
