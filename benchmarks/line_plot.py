"""Line plots as SVG. Equal figures give equal bytes; every text is escaped; readable
on light and dark ground.
"""

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from opsieve.gen.model.printable import printable

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 32, 60, 52
# all distinct on white and on black
_COLOURS = (
    "#3b82c4",
    "#d9822b",
    "#3a9a5b",
    "#c0504d",
    "#8e6bbf",
    "#8c7b52",
)
# Of a line; more of them are not seen at this size
_MOST_POINTS = 400
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#333}.title{font-size:15px}.grid{stroke:#8885}.axis{stroke:#888}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>"
)


def draw_lines(title: str, across: str, up: str, series: Mapping[str, Points]) -> str:
    """Draw an SVG document with a line for each series, axes from zero named `across` and `up`, and a key.

    Numbers must be finite and non-negative.
    """
    numbers = (number for points in series.values() for point in points for number in point)
    for number in numbers:
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"{number} cannot be plotted")
    right = max((x for points in series.values() for x, _ in points), default=0) or 1
    steps = choose_ticks(max((y for points in series.values() for _, y in points), default=0))
    top = steps[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + x / right * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM),
        )

    body = [_draw_text(_LEFT, 24, title, "title")]
    for step in steps:
        _, y = at(0, step)
        body.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        body.append(_draw_text(_LEFT - 6, y + 4, _format_number(step), anchor="end"))
    for step in (step for step in choose_ticks(right) if step <= right):
        x, y = at(step, 0)
        body.append(f'<line class="axis" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{y + 4:.1f}"/>')
        body.append(_draw_text(x, y + 18, _format_number(step), anchor="middle"))
    body.append(_draw_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, across, anchor="middle"))
    body.append(_draw_text(_LEFT - 6, _TOP - 8, up, anchor="start"))
    for place, (name, points) in enumerate(series.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in _thin_out(points))
        body.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        y = _TOP + 14 + 18 * place
        body.append(f'<rect x="{_LEFT + 12}" y="{y - 9}" width="18" height="4" fill="{colour}"/>')
        body.append(_draw_text(_LEFT + 36, y - 2, name))
    label = escape(printable(title), {'"': "&quot;"})
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
        f' height="{_HEIGHT}" role="img" aria-label="{label}">'
    )
    return "\n".join([opening, _STYLE, *body, "</svg>"]) + "\n"


def choose_ticks(most: float) -> list[float]:
    """Choose three to six round numbers from 0 to the first that is at least `most`; 0 and 1 if that is
    almost 0.
    """
    # The logarithm below needs a number that is not 0.
    if most < 1e-12:
        return [0.0, 1.0]
    unit = 10.0 ** math.floor(math.log10(most))
    step = next(share * unit for share in (0.2, 0.25, 0.5, 1, 2) if most / (share * unit) <= 5)
    # A quotient just above a whole number by rounding would add an empty tick.
    count = math.ceil(most / step - 1e-9)
    return [step * place for place in range(count + 1)]


def _thin_out(points: Points) -> Points:
    """Keep about `_MOST_POINTS` evenly spaced points, including the last."""
    stride = -(-len(points) // _MOST_POINTS)
    return [*points[::stride], points[-1]] if stride > 1 else points


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"


def _draw_text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    # Names come from stores, so both markup and control characters are made harmless.
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(printable(text))}</text>'
