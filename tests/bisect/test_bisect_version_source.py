"""A user's own source of versions, installed as a plug-in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from opsieve.bisect.sources.version_source import opener
from opsieve.gen.case.case import Case, save
from opsieve.gen.model.bad_input import BadInput
from opsieve.gen.model.program import OnnxProgram

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
def plugin(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the plug-in is installed."""
    (tmp_path / "nightly_plugin.py").write_text(PLUGIN)
    info = tmp_path / "nightly_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nightly_plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opsieve.version_sources]\nnightlies = nightly_plugin:nightlies\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path), "OPSIEVE_PROBES": str(tmp_path / "probes")}


def bisect(case: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opsieve", "bisect", str(case), "--target", "reference", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Neg(x) }')
    save(Case(OnnxProgram(model.SerializeToString()), {"x": np.ones(1, np.float32)}), tmp_path / "case")
    return tmp_path / "case"


def test_a_plug_in_is_searched(plugin: dict[str, str], case: Path) -> None:
    done = bisect(case, plugin, "--source", "nightlies:2026-01-17", "--json")
    answer = json.loads(done.stdout)
    assert (answer["first_bad"], answer["package"]) == ("2026-01-17", "nightlies:2026-01-17")
    assert answer["probes"] <= 7
    assert [(run["version"], run["symptom"]) for run in answer["evidence"]] == [
        ("2026-01-16", "ok"),
        ("2026-01-17", "value mismatch"),
    ]
    again = json.loads(bisect(case, plugin, "--source", "nightlies:2026-01-17", "--json").stdout)
    assert again["recalled"] == again["probes"] == answer["probes"]


def test_versions_that_are_no_release_numbers_are_named(plugin: dict[str, str], case: Path) -> None:
    done = bisect(case, plugin, "--source", "nightlies:2026-01-17", "--bad", "tomorrow")
    assert done.returncode == 2
    assert "they go from '2026-01-01' to '2026-01-28'" in done.stderr


def test_a_source_that_is_not_there_is_told() -> None:
    with pytest.raises(BadInput, match="there is no source of versions 'moon'"):
        opener("moon")


def test_two_failing_ends_are_a_sentence_and_not_a_sweep(plugin: dict[str, str], case: Path) -> None:
    answer = json.loads(bisect(case, plugin, "--source", "nightlies:2025", "--json").stdout)
    assert answer["probes"] == 2
    assert answer["answer"] == (
        "it fails in 2026-01-01 and in 2026-01-28; --good names a release without it, --sweep tests the 26 between"
    )
    assert (answer["first_bad"], answer["ends_verified"]) == ("", False)
