"""What README.md and the tutorial show is what the commands print. `UPDATE_GOLDEN=1` writes their outputs into the pages."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documented import Shown, comparable, rewrite, shown_in
from repository import ROOT

TUTORIAL, README = ROOT / "docs" / "tutorial.md", ROOT / "README.md"


def printed(command: str, folder: Path) -> str:
    """What a command prints on stdout, in a folder."""
    words = shlex.split(command)
    start = [sys.executable, *([] if words[0] == "python" else ["-m", "opsieve"]), *words[1:]]
    environment = {**os.environ, "COLUMNS": "120", "OPSIEVE_PROBES": str(folder / "probes")}
    done = subprocess.run(
        start, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode in (0, 1), f"{command}: {done.stderr}"
    return done.stdout


def held(commands: list[Shown], folder: Path) -> None:
    """Every command prints what is shown; with UPDATE_GOLDEN the pages are brought up to date instead."""
    outputs = {}
    for shown in commands:
        outputs[shown.command] = printed(shown.command, folder)
        if not os.environ.get("UPDATE_GOLDEN"):
            assert comparable(outputs[shown.command]) == comparable(shown.output), shown.command
    if os.environ.get("UPDATE_GOLDEN"):
        for page in (TUTORIAL, README):
            rewrite(page, outputs)


def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    commands = shown_in(TUTORIAL)
    assert len(commands) >= 5
    held([shown for shown in commands if not shown.network], tmp_path)


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows_of_old_releases(tmp_path: Path) -> None:
    commands = shown_in(TUTORIAL)
    before = [shown for shown in commands if shown.command.split()[1] in ("sample", "reduce")]
    held([*before, *(shown for shown in commands if shown.network)], tmp_path)


def test_readme_shows_only_what_the_tutorial_shows_too() -> None:
    tutorial = {shown.command: shown.output for shown in shown_in(TUTORIAL)}
    commands = shown_in(README)
    assert len(commands) >= 3
    for shown in commands:
        assert shown.output == tutorial[shown.command], shown.command
