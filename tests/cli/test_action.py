"""action.yml: the script of its steps, run by bash as GitHub's runner does, on a corpus."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from commands import opsieve
from models import X, chain
from repository import ROOT

from opsieve.gen.case.case import Case, save

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def replayed(folder: Path, **inputs: str) -> tuple[int, ElementTree.Element]:
    """The exit code of the step that replays the corpus, and the suite in its JUnit file."""
    (step,) = [step for step in ACTION["runs"]["steps"] if step["name"] == "Replay the corpus"]
    given = {name: value["default"] for name, value in ACTION["inputs"].items()} | {
        "corpus": "corpus",
        **{name.replace("_", "-"): value for name, value in inputs.items()},
    }
    words = {
        name: given[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, text in step["env"].items()
    }
    environment = {
        **os.environ,
        **words,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OPSIEVE_STORE": str(folder / "releases"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    environment.pop("OPSIEVE_INSTALL", None)
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(
        shell,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, ElementTree.parse(folder / "opsieve-results" / "corpus.xml").getroot()[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A corpus of a case that passes, recorded on a release that is not installed, too."""
    save(Case(chain("Exp"), X), tmp_path / "exp")
    monkeypatch.chdir(tmp_path)
    assert opsieve("corpus", "add", "corpus", "exp", "-t", "fake", capsys=capsys)[0] == 0
    path = tmp_path / "corpus" / "corpus.json"
    file = json.loads(path.read_text())
    targets = file["cases"]["exp"]["targets"]
    targets["onnxruntime==0.0.1"] = targets["fake"]
    path.write_text(json.dumps(file))
    return tmp_path


def test_a_release_that_only_the_corpus_names_is_not_installed_and_the_job_is_red(folder: Path) -> None:
    code, suite = replayed(folder)
    (error,) = suite.findall("testcase/error")
    assert (code, suite.attrib["errors"]) == (2, "1")
    assert "--yes installs it" in error.attrib["message"]
    assert "1 not judged" in (folder / "summary.md").read_text()
    assert replayed(folder, allow_unjudged="true")[0] == 0


@pytest.mark.slow(seconds=6)
def test_what_the_inputs_name_may_be_installed(folder: Path) -> None:
    code, suite = replayed(folder, install="onnxruntime==0.0.1\n")
    (error,) = suite.findall("testcase/error")
    assert code == 2  # there is no such release: it was looked for
    assert "--yes installs it" not in error.attrib["message"]


@pytest.mark.slow(seconds=4)
def test_the_targets_of_the_action_replace_those_of_the_corpus(folder: Path) -> None:
    assert replayed(folder, targets="fake\n")[0] == 0
    assert replayed(folder, targets="fake\nfake:error@Exp\n")[0] == 1
