"""The real program in a real terminal: open, filter, drill in, mark, undo, export the script, run what was
exported.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import SAMPLES
from stores import CAMPAIGN, filled, finding

from opsieve.gen.case.case import open_case
from opsieve.triage.store.finished_test import FinishedTest
from opsieve.triage.store.queries import Queries

SAMPLE = SAMPLES / "pad-maxpool-wrong-value"  # wrong in every release since 1.20
TMUX = shutil.which("tmux")
_PATIENCE = 60.0  # seconds


class Terminal:
    """A tmux server of our own with one pane."""

    def __init__(self, folder: Path, command: list[str], width: int = 80, height: int = 24) -> None:
        self._tmux = [str(TMUX), "-S", str(folder / "socket"), "-f", os.devnull]
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        for name in ("TMUX", "NO_COLOR"):
            environment.pop(name, None)
        self._run(
            "new-session",
            "-d",
            "-s",
            "t",
            "-x",
            str(width),
            "-y",
            str(height),
            "-c",
            str(folder),
            f"{shlex.join(command)}; echo ended with $?; exec sleep 600",
            environment=environment,
        )

    def _run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        return subprocess.run(
            [*self._tmux, *words], check=True, capture_output=True, text=True, env=environment, timeout=30
        ).stdout

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", "t")

    def press(self, *keys: str) -> None:
        for key in keys:
            self._run("send-keys", "-t", "t", key)

    def type(self, text: str) -> None:
        self._run("send-keys", "-t", "t", "-l", text)

    def shows(self, *words: str) -> str:
        end = time.monotonic() + _PATIENCE
        while not all(word in (seen := self.screen()) for word in words):
            assert time.monotonic() < end, f"never showed {words}:\n{seen}"
            time.sleep(0.05)
        return seen

    def exit_code(self) -> str:
        """The program's own: tmux, asked so often, at times misses the end of a child on a busy machine."""
        seen = self.shows("ended with")
        return seen.rpartition("ended with")[2].strip()

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=30)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    case = open_case(SAMPLE)
    wrong = finding("", kind="mismatch", target="onnxruntime", operators=("Pad", "MaxPool"))
    crash = finding("died", kind="crash", frames=["main", "free"], signal=11)
    answers = {"fake": ("fail", 0.1), "onnxruntime": ("fail", 0.1)}
    filled(
        tmp_path / "weekend",
        [FinishedTest(0, case, answers, (wrong,)), FinishedTest(1, case, answers, (crash,))],
    )
    assert CAMPAIGN.targets == ("fake", "onnxruntime")
    command = [sys.executable, "-m", "opsieve", "tui", "--store", "weekend", "--offline"]
    made = Terminal(tmp_path, command)
    yield made
    made.close()


@pytest.mark.slow(seconds=5)
@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
def test_from_the_list_of_bugs_to_a_script_that_shows_one(terminal: Terminal, tmp_path: Path) -> None:
    terminal.shows("weekend: 2 of 2 clusters", "SIGSEGV")
    terminal.press("/")
    terminal.type("kind:mismatch")
    terminal.shows("1 of 1 cluster", "wrong values of MaxPool Pad")
    terminal.press("Enter")
    terminal.press("Enter")
    terminal.shows("c1  new  1 of 1 member")
    terminal.press("m")
    terminal.shows("Mark c1 as")
    terminal.press("c")
    terminal.shows("c1  confirmed")
    with Queries(tmp_path / "weekend") as store:
        assert store.cluster("c1").status == "confirmed"
    terminal.press("u")
    terminal.shows("undone: marked c1 confirmed", "c1  new")
    terminal.press("x")
    terminal.shows("exactly as shown", "import", "repro.py")
    terminal.press("Enter")
    terminal.shows("wrote repro.py")
    terminal.press("q")
    terminal.shows("c1  new")
    terminal.press("q")
    terminal.shows("1 of 1 cluster")
    terminal.press("q")
    assert terminal.exit_code() == "0"
    script = tmp_path / "repro.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 1, done.stdout + done.stderr
