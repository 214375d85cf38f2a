"""A user's own source of versions, installed as a plug-in."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import opsieve
from onnx import parser

from opsieve.bisect.search.ends import NEVER
from opsieve.bisect.sources.version_sequence import load_opener
from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram

PLUGIN = """
from contextlib import contextmanager
from opsieve.bisect.sources.outcome import VersionOutcome


class Nightlies:
    def __init__(self, first_bad):
        self.versions = [f"2026-01-{day:02}" for day in range(1, 29)]
        self.first_bad = first_bad

    def evaluate(self, version):
        if version == "2026-01-10":
            return VersionOutcome("skip", symptom="no such nightly")
        bad = version >= self.first_bad
        return VersionOutcome("bad", "key", "trait", "value mismatch", "done") if bad else VersionOutcome("good", symptom="ok")


@contextmanager
def nightlies(case, target, argument, offline):
    yield Nightlies(argument)
"""


@pytest.fixture
def _plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in is installed."""
    (tmp_path / "nightly_plugin.py").write_text(PLUGIN)
    info = tmp_path / "nightly_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nightly_plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[opsieve.version_sources]\nnightlies = nightly_plugin:nightlies\n"
        "[opsieve.oracles]\nmine = nightly_plugin:nightlies\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPSIEVE_PROBES", str(tmp_path / "probes"))


def bisect(case: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a search."""
    return opsieve("bisect", case, "--target", "reference", *arguments, capsys=capsys)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Neg(x) }'
    )
    save(Case(OnnxProgram(model.SerializeToString()), {"x": np.ones(1, np.float32)}), tmp_path / "case")
    return tmp_path / "case"


@pytest.mark.usefixtures("_plugin")
def test_a_plug_in_is_searched(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = ["--source", "nightlies:2026-01-17", "--json"]
    answer = json.loads(bisect(case, *search, capsys=capsys)[1])
    assert (answer["first_bad"], answer["package"]) == ("2026-01-17", "nightlies:2026-01-17")
    # Seven releases, and three more runs of the last good one.
    assert answer["probes"] <= 10
    assert [(run["version"], run["symptom"]) for run in answer["evidence"]] == [
        ("2026-01-16", "ok"),
        ("2026-01-17", "value mismatch"),
    ]
    again = json.loads(bisect(case, *search, capsys=capsys)[1])
    assert again["recalled"] == again["probes"] == answer["probes"]


@pytest.mark.usefixtures("_plugin")
def test_an_oracle_becomes_part_of_the_target(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = ["--source", "nightlies:2026-01-17", "--oracle", "mine", "--json"]
    answer = json.loads(bisect(case, *search, capsys=capsys)[1])
    assert (answer["target"], answer["recalled"]) == ("reference:oracle=mine", 0)


@pytest.mark.usefixtures("_plugin")
def test_versions_that_are_no_release_numbers_are_named(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = bisect(case, "--source", "nightlies:2026-01-17", "--bad", "tomorrow", capsys=capsys)
    assert code == 2
    assert "they go from '2026-01-01' to '2026-01-28'" in err
    twice = ["--good", "2026-01-20", "--bad", "2026-01-20", "--repro-rate", "auto"]
    code, _, err = bisect(case, "--source", "nightlies:2026-01-17", *twice, capsys=capsys)
    assert (code, "both name '2026-01-20': name two releases" in err) == (2, True)


def test_a_source_that_is_not_there_is_told() -> None:
    with pytest.raises(BadInput, match="there is no source of versions 'moon'"):
        load_opener("moon")


@pytest.mark.usefixtures("_plugin")
def test_two_failing_ends_are_a_sentence_and_not_a_sweep(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = json.loads(bisect(case, "--source", "nightlies:2025", "--json", capsys=capsys)[1])
    assert answer["probes"] == 2
    assert (
        answer["answer"]
        == "it fails in 2026-01-01 and in 2026-01-28; --good names a release without it, --sweep tests the 26"
        " between"
    )
    assert (answer["first_bad"], answer["ends_verified"]) == ("", False)


@pytest.mark.usefixtures("_plugin")
def test_two_named_ends_that_do_not_fail_are_a_sentence_and_not_a_sweep(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["--source", "nightlies:2026-01-17", "--good", "2026-01-03", "--bad", "2026-01-08", "--json"]
    answer = json.loads(bisect(case, *named, capsys=capsys)[1])
    assert (answer["ends_verified"], answer["wrong_ends"]) == (False, ["2026-01-08"])
    assert answer["probes"] == 1 + NEVER
    assert (
        answer["answer"]
        == "2026-01-08 is not what --good or --bad says; it does not fail in 2026-01-03 or in 2026-01-08;"
        " --bad names a release with it, --sweep tests the 4 between"
    )
    swept = json.loads(bisect(case, *named, "--sweep", capsys=capsys)[1])
    assert [run["version"] for run in swept["versions"]] == [f"2026-01-{day:02}" for day in range(3, 9)]


@pytest.mark.usefixtures("_plugin")
def test_where_neither_end_fails_nothing_more_is_installed(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = json.loads(bisect(case, "--source", "nightlies:2027", "--json", capsys=capsys)[1])
    assert (answer["probes"], answer["first_bad"]) == (2, "")
    assert (
        answer["answer"]
        == "it does not fail in 2026-01-01 or in 2026-01-28; --bad names a release with it, --sweep tests the"
        " 26 between"
    )
