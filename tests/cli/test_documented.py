"""What README.md and the tutorial show is what the commands print. `UPDATE_GOLDEN=1` writes their outputs
into the pages.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import opsieve
from documented import Shown, comparable, rewrite, shown_in
from repository import ROOT

TUTORIAL, README = ROOT / "docs" / "tutorial.md", ROOT / "README.md"


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints on stdout, in this folder."""
    words = shlex.split(command)
    if words[0] == "python":
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=False)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code, out, err = opsieve(*words[1:], capsys=capsys)
    assert code in (0, 1), f"{command}: {err}"
    return out


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder to work in, and a terminal of 120 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("OPSIEVE_PROBES", str(tmp_path / "probes"))


def held(commands: list[Shown], capsys: pytest.CaptureFixture[str]) -> None:
    """Every command prints what is shown; with UPDATE_GOLDEN the pages are brought up to date instead."""
    outputs = {}
    for shown in commands:
        outputs[shown.command] = printed(shown.command, capsys)
        if not os.environ.get("UPDATE_GOLDEN"):
            assert comparable(outputs[shown.command]) == comparable(shown.output), shown.command
    if os.environ.get("UPDATE_GOLDEN"):
        for page in (TUTORIAL, README):
            rewrite(page, outputs)


@pytest.mark.usefixtures("_folder")
def test_the_tutorial_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    commands = shown_in(TUTORIAL)
    assert len(commands) >= 5
    held([shown for shown in commands if not shown.network], capsys)


@pytest.mark.slow
@pytest.mark.usefixtures("_folder")
def test_the_tutorial_prints_what_it_shows_of_old_releases(capsys: pytest.CaptureFixture[str]) -> None:
    commands = shown_in(TUTORIAL)
    before = [shown for shown in commands if shown.command.split()[1] in ("sample", "reduce")]
    held([*before, *(shown for shown in commands if shown.network)], capsys)


def test_readme_shows_only_what_the_tutorial_shows_too() -> None:
    tutorial = {shown.command: shown.output for shown in shown_in(TUTORIAL)}
    commands = shown_in(README)
    assert len(commands) >= 3
    for shown in commands:
        assert shown.output == tutorial[shown.command], shown.command
