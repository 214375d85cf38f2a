"""A self-contained SVG picture of a campaign: tests and clusters over time."""

from collections.abc import Sequence

from opsieve.gen.model.printable import count_noun

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 56, 28, 40
# Blue and orange, which those who see no red can tell apart; one line is dashed.
_TESTS, _CLUSTERS = (
    "#2f6f9f",
    "#b3541e",
)

# seconds, tests, clusters
Point = tuple[float, int, int]


def draw_picture(growth: Sequence[Point]) -> str:
    """Draw the picture; its data are numbers only."""
    points = [(0.0, 0, 0), *growth]
    seconds = max(1.0, max(point[0] for point in points))
    tests = max(1, *(point[1] for point in points))
    clusters = max(1, *(point[2] for point in points))
    wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def draw_line(place: int, most: int) -> str:
        return " ".join(
            f"{_LEFT + wide * point[0] / seconds:.1f},{_TOP + high * (1 - point[place] / most):.1f}"
            for point in points
        )

    right, floor = _LEFT + wide, _TOP + high
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
                ' role="img" font-family="sans-serif" font-size="12">'
            ),
            (
                f"<title>{count_noun(tests, 'test')} and {count_noun(clusters if growth else 0, 'cluster')} over"
                f" {_format_time(seconds)}</title>"
            ),
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<path d="M{_LEFT} {_TOP}V{floor}H{right}V{_TOP}" fill="none" stroke="#888888"/>',
            f'<polyline points="{draw_line(1, tests)}" fill="none" stroke="{_TESTS}" stroke-width="2"/>',
            (
                f'<polyline points="{draw_line(2, clusters)}" fill="none" stroke="{_CLUSTERS}" stroke-width="2"'
                ' stroke-dasharray="6 3"/>'
            ),
            f'<text x="{_LEFT}" y="{_TOP - 10}" fill="{_TESTS}">tests</text>',
            (
                f'<text x="{right}" y="{_TOP - 10}" text-anchor="end" fill="{_CLUSTERS}">clusters'
                " (dashed)</text>"
            ),
            f'<text x="{_LEFT - 6}" y="{_TOP + 4}" text-anchor="end" fill="{_TESTS}">{tests:,}</text>',
            f'<text x="{_LEFT - 6}" y="{floor + 4}" text-anchor="end" fill="#444444">0</text>',
            f'<text x="{right + 6}" y="{_TOP + 4}" fill="{_CLUSTERS}">{clusters:,}</text>',
            f'<text x="{right}" y="{HEIGHT - 14}" text-anchor="end" fill="#444444">{_format_time(seconds)}</text>',
            "</svg>",
        ]
    )


def _format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
