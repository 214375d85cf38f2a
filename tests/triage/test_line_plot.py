"""Plots of a campaign's coverage as SVG."""

import itertools
import math
import xml.etree.ElementTree as ET

import pytest
from benchmarks.line_plot import choose_ticks, draw_lines
from hypothesis import given, strategies as st

SVG = "{http://www.w3.org/2000/svg}"
HEIGHTS = st.floats(0, 1e12, allow_nan=False)
POINTS = st.lists(st.tuples(HEIGHTS, HEIGHTS), max_size=30)


@given(st.text(), st.dictionaries(st.text(), POINTS, max_size=3))
def test_lines_are_sound_svg_whatever_their_names(
    title: str, series: dict[str, list[tuple[float, float]]]
) -> None:
    svg = draw_lines(title, "across <&>", "up", series)
    root = ET.fromstring(svg)
    lines = root.findall(f"{SVG}polyline")
    assert len(lines) == len(series)
    for line, points in zip(lines, series.values(), strict=True):
        pairs = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
        assert len(pairs) == len(points)
        assert all(0 <= x <= 720 and 0 <= y <= 420 for x, y in pairs)
        higher = sorted(zip(points, pairs, strict=True), key=lambda both: both[0][1])
        assert all(one[1][1] >= two[1][1] for one, two in itertools.pairwise(higher))
    assert svg == draw_lines(title, "across <&>", "up", series)


def test_long_lines_keep_their_ends() -> None:
    svg = draw_lines("t", "x", "y", {"a": [(place, place) for place in range(5001)]})
    points = ET.fromstring(svg).findall(f"{SVG}polyline")[0].attrib["points"].split()
    assert len(points) < 500
    assert points[0].startswith("64.0,")
    assert points[-1].startswith("688.0,")


@given(st.floats(1e-6, 1e15))
def test_ticks_reach_the_largest_number_in_a_few_equal_steps(most: float) -> None:
    steps = choose_ticks(most)
    assert 3 <= len(steps) <= 6
    assert steps[0] == 0
    assert steps[-1] >= most * (1 - 1e-8)
    assert steps[-2] < most
    assert all(math.isclose(b - a, steps[1], rel_tol=1e-6) for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.0])
def test_numbers_that_cannot_be_plotted_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="cannot be plotted"):
        draw_lines("t", "x", "y", {"a": [(0, number)]})
