"""`opsieve metrics` and its plots."""

import itertools
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from models import program

from opsieve.gen.metrics.isra import GRAPH_LEVEL, OPERATION_LEVEL
from opsieve.gen.metrics.plots import bar_plot, line_plot, ticks
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies.registry import generate
from opsieve.tui.cli import SETTINGS
from opsieve.tui.commands.find.metrics_command import command

SVG = "{http://www.w3.org/2000/svg}"
HEIGHTS = st.floats(0, 1e12, allow_nan=False)
POINTS = st.lists(st.tuples(HEIGHTS, HEIGHTS), max_size=30)


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(command, list(arguments), standalone_mode=False, **SETTINGS)
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.stdout, done.stderr


def test_the_command_walks_folders_and_names_what_it_passes_by(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "model.onnx").write_bytes(
        program("g (float[2] x) => (float[2] y) { y = Relu(x) }").model
    )
    (tmp_path / "two.onnx").write_bytes(generate("isra", 1).program.model)
    (tmp_path / "bad\n.onnx").write_bytes(b"no model")
    (tmp_path / "notes.txt").write_text("no model either")
    code, out, err = run(str(tmp_path), "--json", "--plot", str(tmp_path / "plots"))
    told = json.loads(out)
    assert code == 0
    assert (told["models"], told["nodes"]) == (
        2,
        1 + sum(1 for _ in all_nodes(generate("isra", 1).program.proto.graph.node)),
    )
    assert {"operators", "instances", "edges", "isra", "hirfuzz", "families"} <= told.keys()
    assert list(told["isra"]) == list(told["isra_all"]) == [*OPERATION_LEVEL, *GRAPH_LEVEL]
    assert [item["path"] for item in told["skipped"]] == [str(tmp_path / "bad\n.onnx")]
    assert "not an ONNX model" in told["skipped"][0]["reason"]
    assert err.count("\n") == 1
    assert [Path(path).name for path in told["plots"]] == ["growth.svg", "operators.svg", "families.svg"]
    assert all(Path(path).read_text().startswith("<svg") for path in told["plots"])
    table = run(str(tmp_path))[1]
    assert table.startswith("2 models, ")
    assert all(name in table for name in (*told["isra"], "arithmetic"))


def test_hostile_files_are_passed_by_and_the_rest_is_counted(hostile_corpus: list[tuple[Path, str]]) -> None:
    folder = next(parent for path, _ in hostile_corpus for parent in path.parents if parent.name == "corpus")
    code, out, err = run(str(folder), "--json")
    told = json.loads(out)
    assert code == 0
    assert told["models"] > 100
    assert len(told["skipped"]) > 300
    assert err.count("\n") == len(told["skipped"]) + len(told["untyped"])


def test_the_command_says_what_it_cannot_use(tmp_path: Path) -> None:
    for place, words in ((tmp_path, "no readable model"), (tmp_path / "nowhere", "there is no directory")):
        with pytest.raises(ValueError, match=words):
            run(str(place))
    (tmp_path / "a.onnx").write_bytes(program("g (float[2] x) => (float[2] y) { y = Relu(x) }").model)
    (tmp_path / "plots").write_text("a file")
    with pytest.raises(ValueError, match=r"is no(t a)? (folder|directory)"):
        run(str(tmp_path), "--plot", str(tmp_path / "plots"))
    assert (tmp_path / "plots").read_text() == "a file"


@given(st.text(), st.dictionaries(st.text(), POINTS, max_size=3))
def test_lines_are_sound_svg_whatever_their_names(
    title: str, series: dict[str, list[tuple[float, float]]]
) -> None:
    svg = line_plot(title, "across <&>", "up", series)
    root = ET.fromstring(svg)
    lines = root.findall(f"{SVG}polyline")
    assert len(lines) == len(series)
    for line, points in zip(lines, series.values(), strict=True):
        pairs = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
        assert len(pairs) == len(points)
        assert all(0 <= x <= 720 and 0 <= y <= 420 for x, y in pairs)
        higher = sorted(zip(points, pairs, strict=True), key=lambda both: both[0][1])
        assert all(one[1][1] >= two[1][1] for one, two in itertools.pairwise(higher))
    assert svg == line_plot(title, "across <&>", "up", series)


@given(st.dictionaries(st.text(), HEIGHTS, max_size=20))
def test_bars_are_as_long_as_their_numbers(bars: dict[str, float]) -> None:
    root = ET.fromstring(bar_plot("bars", bars))
    lengths = [float(bar.attrib["width"]) for bar in root.findall(f"{SVG}rect")]
    most = max(bars.values(), default=0)
    assert lengths == pytest.approx([value / most * 450 if most else 0 for value in bars.values()], abs=0.06)
    assert float(root.attrib["height"]) > 16 * len(bars)


def test_text_from_files_is_text_in_a_plot() -> None:
    svg = bar_plot('a "title" <b>', {"<script>alert(1)</script>": 3, "a\x00\u202eb": 1})
    root = ET.fromstring(svg)
    assert "<script>" not in svg
    assert root.attrib["aria-label"] == 'a "title" <b>'
    assert [text.text for text in root.findall(f"{SVG}text")][1] == "<script>alert(1)</script>"


def test_long_lines_keep_their_ends() -> None:
    svg = line_plot("t", "x", "y", {"a": [(place, place) for place in range(5001)]})
    points = ET.fromstring(svg).findall(f"{SVG}polyline")[0].attrib["points"].split()
    assert len(points) < 500
    assert points[0].startswith("64.0,")
    assert points[-1].startswith("688.0,")


@given(st.floats(1e-6, 1e15))
def test_ticks_reach_the_largest_number_in_a_few_equal_steps(most: float) -> None:
    steps = ticks(most)
    assert 3 <= len(steps) <= 6
    assert steps[0] == 0
    assert steps[-1] >= most * (1 - 1e-8)
    assert steps[-2] < most
    assert all(math.isclose(b - a, steps[1], rel_tol=1e-6) for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.0])
def test_numbers_that_cannot_be_plotted_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="cannot be plotted"):
        bar_plot("t", {"a": number})
    with pytest.raises(ValueError, match="cannot be plotted"):
        line_plot("t", "x", "y", {"a": [(0, number)]})
