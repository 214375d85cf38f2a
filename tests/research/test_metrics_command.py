"""`opsieve metrics` and its plots."""

import importlib.metadata
import json
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import opsieve
from hypothesis import given, settings, strategies as st
from models import program

from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies.registry import generate
from opsieve.tui.cli import SETTINGS
from opsieve_research.isra import GRAPH_LEVEL, OPERATION_LEVEL
from opsieve_research.metrics_command import command
from opsieve_research.plots import write_bars, write_lines

SVG = "{http://www.w3.org/2000/svg}"


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
    assert all(Path(path).read_text().startswith("<?xml") for path in told["plots"])
    table = run(str(tmp_path))[1]
    assert table.startswith("2 models, ")
    assert all(name in table for name in (*told["isra"], "arithmetic"))


@pytest.mark.slow
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


@pytest.mark.slow(seconds=3)
@given(st.dictionaries(st.text(), st.floats(0, 1e12, allow_nan=False), max_size=6))
@settings(max_examples=10)
def test_plots_are_sound_svg_whatever_the_names(bars: dict[str, float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_bars(Path(folder, "bars.svg"), "bars", bars)
        write_lines(Path(folder, "lines.svg"), "t", "x", "y", {name: [(0, 1)] for name in bars})
        for path in Path(folder).iterdir():
            assert ET.parse(path).getroot().tag == f"{SVG}svg"


def test_text_from_files_is_text_in_a_plot(tmp_path: Path) -> None:
    bars = {"<script>alert(1)</script>": 3.0, "a\x00\u202eb": 1.0, "$\\frac{a}$": 2.0}
    for name in ("one", "two"):
        write_bars(tmp_path / name, "t", bars)
    svg = (tmp_path / "one").read_text()
    assert "<script>" not in svg
    assert "<script>alert(1)</script>" in [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]
    assert svg == (tmp_path / "two").read_text()


def test_without_the_kit_the_command_names_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    code, out, err = opsieve("metrics", "models", capsys=capsys)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "pip install ./benchmarks/research" in err
